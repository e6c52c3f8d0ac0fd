"""The profile: a short string that says how the local server behaves.

Clauses are separated by white space and each may stand once, in any order:

    ready=lognormal(2.0,0.4) error=2% never=5% gone=uniform(0.1,0.5) create=429:5%,500:1%
    latency=fixed(0.01) label_filter=on foreign=1500 clock=+37 seed=7

and on a bad day:

    list=500:5% get=500:5% delete=500:10%,429:5% lost=5% lost_delete=1% garble=cut:2%,html:2%
    expire=20 down=5+30 down_delete=0+inf

Distributions give seconds: `lognormal(median,sigma)`, `uniform(a,b)`, `exponential(mean)`, `fixed(x)`,
`mix(share,rare,usual)`, or a bare number. A clause is a row in `CLAUSES` and a field of `Profile`: that is
all that a new one takes.
"""

from __future__ import annotations

import difflib
import math
import random
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from prep.localserver.errors import CREATE_REFUSALS

MAX_SECONDS = 1_000_000.0
MAX_SIGMA = 10.0
MAX_FOREIGN = 100_000
GARBLES = ("cut", "json", "html", "page", "big", "slow", "reset")
"""Half a body; half a JSON; a proxy's page with 502, and with 200; 10 MB; a trickle; a connection reset."""

_STATUSES = (404, 409, 429, 500, 502, 503)
_LIMITS = {"sigma": MAX_SIGMA, "share": 1.0}


class ProfileError(ValueError):
    """A profile that cannot be used, with every problem in it."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class Distribution:
    """A distribution of durations in seconds: its shape and the shape's arguments."""

    shape: str
    args: tuple[float, ...]

    def sample(self, rng: random.Random) -> float:
        """Draw one duration, in seconds, 0 or more."""
        return SHAPES[self.shape].draw(rng, *self.args)


@dataclass(frozen=True)
class Shape:
    """How a distribution is written, and how it is drawn from."""

    parameters: tuple[str, ...]
    draw: Callable[..., float]


def _lognormal(rng: random.Random, median: float, sigma: float) -> float:
    return rng.lognormvariate(math.log(median), sigma)


def _exponential(rng: random.Random, mean: float) -> float:
    return rng.expovariate(1 / mean) if mean > 0 else 0.0


def _mix(rng: random.Random, share: float, rare: float, usual: float) -> float:
    return rare if rng.random() < share else usual


SHAPES: Mapping[str, Shape] = MappingProxyType(
    {
        "lognormal": Shape(("median", "sigma"), _lognormal),
        "uniform": Shape(("a", "b"), lambda rng, a, b: rng.uniform(a, b)),
        "exponential": Shape(("mean",), _exponential),
        "fixed": Shape(("x",), lambda _rng, x: x),
        "mix": Shape(("share", "rare", "usual"), _mix),
    }
)


@dataclass(frozen=True, kw_only=True)
class Profile:
    """How the local server behaves. Times are distributions of seconds, shares are 0 to 1."""

    ready: Distribution = Distribution("lognormal", (2.0, 0.4))
    """From create to ready (or to error)."""
    error: float = 0.0
    """Share of sandboxes that turn error at the time they would have been ready."""
    never: float = 0.0
    """Share of sandboxes that stay creating."""
    gone: Distribution = Distribution("uniform", (0.1, 0.5))
    """From delete until the sandbox is no longer there."""
    create: tuple[tuple[int, float], ...] = ()
    """HTTP statuses with which creates are refused, each with its share of the create calls."""
    latency: Distribution = Distribution("fixed", (0.01,))
    """Time that a create takes to answer."""
    label_filter: bool = False
    """Whether the list's label filter works; on the real server it answers 500."""
    foreign: int = 0
    """Ready sandboxes that are there from the start and belong to nobody's run."""
    clock: float = 0.0
    """Seconds that the server's clock is ahead of this machine's, negative if behind."""
    seed: int = 1
    list: tuple[tuple[int, float], ...] = ()
    """HTTP statuses with which lists are refused, each with its share; likewise gets and deletes."""
    get: tuple[tuple[int, float], ...] = ()
    delete: tuple[tuple[int, float], ...] = ()
    lost: float = 0.0
    """Share of creates that are carried out and never answered."""
    lost_delete: float = 0.0
    """Share of deletes that are carried out and never answered."""
    garble: tuple[tuple[str, float], ...] = ()
    """How answers to creates, gets and lists are garbled, each with its share."""
    expire: float | None = None
    """Seconds after which no credential is valid any more."""
    down: tuple[float, float] | None = None
    """Seconds from the first create until the server is away, and for how long it is."""
    down_delete: tuple[float, float] | None = None
    """The same, from the first delete."""

    @classmethod
    def parse(cls, text: str) -> Profile:
        """Read a profile string.

        Raises:
            ProfileError: with all problems of the string.
        """
        values: dict[str, Any] = {}
        problems: list[str] = []
        for clause in _CLAUSE.findall(text):
            name, equals, value = clause.partition("=")
            if problem := _misnamed(name, equals, values):
                problems.append(problem)
                continue
            try:
                values[name] = CLAUSES[name](value)
            except ValueError as error:
                values[name] = None  # so that a second one is still told as a duplicate
                problems.append(f"{clause}: {error}")
        if problems:
            raise ProfileError(problems)
        return cls(**values)

    def stream(self, purpose: str) -> random.Random:
        """Give the random numbers for one purpose.

        Each purpose has a stream of its own, so that adding a clause leaves the other clauses' draws alone.
        """
        return random.Random(f"{self.seed}/{purpose}")


_CLAUSE = re.compile(r"(?:[^\s(]|\([^)]*\)?)+")  # white space separates, except within parentheses
_CALL = re.compile(r"([a-z]+)\(([^()]*)\)")


def _misnamed(name: str, equals: str, seen: Mapping[str, Any]) -> str | None:
    if name not in CLAUSES:
        close = difflib.get_close_matches(name, CLAUSES, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(CLAUSES)}"
        return f"{name}: no such clause; {hint}"
    if not equals:
        return f"{name}: write {name}=VALUE"
    if name in seen:
        return f"{name}: given more than once"
    return None


def _number(text: str, *, at_most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"'{text.strip()}' is not a number") from None
    if not 0 <= value <= at_most:
        raise ValueError(f"{text.strip()} is not from 0 to {at_most:g}")
    return value


def _offset(text: str) -> float:
    if not re.fullmatch(r"[+-]\d{1,6}", text):
        raise ValueError(f"'{text}' is not an offset in whole seconds, such as +37")
    return float(text)


def _whole_number(text: str, *, at_most: int) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise ValueError(f"'{text}' is not a whole number, 0 or more")
    if int(text) > at_most:
        raise ValueError(f"{text} is more than {at_most}")
    return int(text)


def _distribution(text: str) -> Distribution:
    call = _CALL.fullmatch(text)
    if call is None and text[:1].isalpha():
        raise ValueError(f"'{text}' is not a distribution; write {_written_shapes()} or a number of seconds")
    shape, raw_args = call.groups() if call else ("fixed", text)
    if shape not in SHAPES:
        raise ValueError(f"no distribution '{shape}'; write {_written_shapes()} or a number of seconds")
    parameters = SHAPES[shape].parameters
    raw = raw_args.split(",")
    if len(raw) != len(parameters):
        raise ValueError(f"{shape} takes {','.join(parameters)}")
    limits = [_LIMITS.get(name, MAX_SECONDS) for name in parameters]
    args = tuple(_number(value, at_most=limit) for value, limit in zip(raw, limits, strict=True))
    if shape == "lognormal" and args[0] == 0:
        raise ValueError("a lognormal's median must be more than 0")
    if shape == "uniform" and args[0] > args[1]:
        raise ValueError("a uniform's first bound must not exceed its second")
    return Distribution(shape, args)


def _written_shapes() -> str:
    return ", ".join(f"{name}({','.join(shape.parameters)})" for name, shape in SHAPES.items())


def _share(text: str) -> float:
    if not text.endswith("%"):
        raise ValueError("write a share as a percentage, such as 5%")
    return _number(text.removesuffix("%"), at_most=100) / 100


def _shares[T](
    what: str, known: Mapping[str, T], example: str
) -> Callable[[str], tuple[tuple[T, float], ...]]:
    """A reader of ``NAME:P%`` pairs, of which each name is known and given once."""

    def read(text: str) -> tuple[tuple[T, float], ...]:
        shares: dict[T, float] = {}
        for part in text.split(","):
            name, colon, share_text = part.partition(":")
            if not colon:
                raise ValueError(f"'{part}' is not {example}")
            if name not in known:
                raise ValueError(f"{what} {name}; there are {', '.join(known)}")
            if known[name] in shares:
                raise ValueError(f"{name} given more than once")
            shares[known[name]] = _share(share_text)
        if sum(shares.values()) > 1 + 1e-9:
            raise ValueError("the shares add up to more than 100%")
        return tuple(shares.items())

    return read


def _refusals(calls: str, statuses: Iterable[int]) -> Callable[[str], tuple[tuple[int, float], ...]]:
    known = {str(status): status for status in statuses}
    return _shares(f"{calls} are not refused with", known, "STATUS:P%, such as 429:5%")


def _window(text: str) -> tuple[float, float]:
    after, plus, lasts = text.partition("+")
    if not plus:
        raise ValueError(f"'{text}' is not AFTER+LASTS in seconds, such as 5+30 or 5+inf")
    endless = lasts == "inf"
    return _number(after, at_most=MAX_SECONDS), math.inf if endless else _number(lasts, at_most=MAX_SECONDS)


def _switch(text: str) -> bool:
    if text not in ("on", "off"):
        raise ValueError("write on or off")
    return text == "on"


CLAUSES: Mapping[str, Callable[[str], Any]] = MappingProxyType(
    {
        "ready": _distribution,
        "error": _share,
        "never": _share,
        "gone": _distribution,
        "create": _refusals("creates", CREATE_REFUSALS),
        "latency": _distribution,
        "label_filter": _switch,
        "foreign": lambda text: _whole_number(text, at_most=MAX_FOREIGN),
        "clock": _offset,
        "seed": lambda text: _whole_number(text, at_most=2**53),
        "list": _refusals("lists", _STATUSES),
        "get": _refusals("gets", _STATUSES),
        "delete": _refusals("deletes", _STATUSES),
        "lost": _share,
        "lost_delete": _share,
        "garble": _shares(
            "answers are not garbled by", {kind: kind for kind in GARBLES}, "KIND:P%, such as cut:5%"
        ),
        "expire": lambda text: _number(text, at_most=MAX_SECONDS),
        "down": _window,
        "down_delete": _window,
    }
)
"""Each clause's name, which is also its field in `Profile`, and how its value is read (ValueError if not)."""
