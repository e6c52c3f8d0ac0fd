"""The profile: a short string that says how the local server behaves.

Clauses are separated by white space and each may stand once, in any order:

    ready=lognormal(2.0,0.4) error=2% never=5% gone=uniform(0.1,0.5) create=429:5%,500:1%
    latency=fixed(0.01) label_filter=on foreign=1500 clock=+37 seed=7

and on a bad day:

    list=500:5% get=500:5% delete=500:10%,429:5% lost=5% lost_delete=1% garble=cut:2%,html:2%
    expire=20 down=5+30 down_delete=0+inf

and where accounts have plans, and sandboxes are used:

    plans=free credit=10 max_users=20 max_sandboxes=100 max_storage=50 mail=smtp
    proxy=1.5 exec=fixed(0.01) exec_status=500:1% stream=0.3+50x0.02 chunks=mixed breaks=5%

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

from prep.localserver import chunks
from prep.localserver.distributions import MAX_SECONDS, Distribution, read_distribution, read_number
from prep.localserver.errors import CREATE_REFUSALS

MAX_FOREIGN = 100_000
GARBLES = ("cut", "json", "html", "page", "big", "slow", "reset")
"""Half a body; half a JSON; a proxy's page with 502, and with 200; 10 MB; a trickle; a connection reset."""

_STATUSES = (404, 409, 429, 500, 502, 503)


class ProfileError(ValueError):
    """A profile that cannot be used, with every problem in it."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class Rhythm:
    """A stream's outputs: the first after `first` seconds, `count` in all, one every `gap` seconds."""

    first: float
    count: int
    gap: float


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
    plans: str | None = None
    """The tier of the account that the server begins with; None where plans are not enforced."""
    credit: float | None = None
    """CU-hours that each account has left; None for what its plan gives."""
    max_users: int | None = None
    """Accounts that the server takes; likewise sandboxes, and GiB of storage."""
    max_sandboxes: int | None = None
    max_storage: int | None = None
    mail: bool = True
    """Whether mails stay in memory, so that an admin can read the tokens in them."""
    proxy: Distribution = Distribution("fixed", (0.0,))
    """From ready until the sandbox's proxy reaches it."""
    exec: Distribution = Distribution("fixed", (0.01,))
    """Time that a command takes."""
    exec_status: tuple[tuple[int, float], ...] = ()
    """HTTP statuses with which commands are refused, each with its share."""
    stream_rhythm: Rhythm = Rhythm(0.05, 5, 0.02)
    """When a stream gives its outputs."""
    chunks: str = chunks.WHOLE
    """How a stream's bytes are cut."""
    breaks: float = 0.0
    """Share of streams whose connection breaks half way."""

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
                values[_FIELDS.get(name, name)] = CLAUSES[name](value)
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


_FIELDS = {"stream": "stream_rhythm"}  # a profile's `stream` is its random numbers
_CLAUSE = re.compile(r"(?:[^\s(]|\([^)]*\)?)+")  # white space separates, except within parentheses


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


def _share(text: str) -> float:
    if not text.endswith("%"):
        raise ValueError("write a share as a percentage, such as 5%")
    return read_number(text.removesuffix("%"), at_most=100) / 100


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
    return read_number(after, at_most=MAX_SECONDS), math.inf if endless else read_number(
        lasts, at_most=MAX_SECONDS
    )


def _rhythm(text: str) -> Rhythm:
    match = re.fullmatch(r"([^+]+)\+(\d{1,6})x([^x+]+)", text)
    if match is None:
        raise ValueError(f"'{text}' is not FIRST+COUNTxGAP in seconds, such as 0.3+50x0.02")
    first, gap = (read_number(part, at_most=MAX_SECONDS) for part in (match[1], match[3]))
    return Rhythm(first, _whole_number(match[2], at_most=1_000_000), gap)


def _one_of(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"write {', '.join(words[:-1])} or {words[-1]}")
        return text

    return read


def _switch(text: str) -> bool:
    if text not in ("on", "off"):
        raise ValueError("write on or off")
    return text == "on"


CLAUSES: Mapping[str, Callable[[str], Any]] = MappingProxyType(
    {
        "ready": read_distribution,
        "error": _share,
        "never": _share,
        "gone": read_distribution,
        "create": _refusals("creates", CREATE_REFUSALS),
        "latency": read_distribution,
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
        "expire": lambda text: read_number(text, at_most=MAX_SECONDS),
        "down": _window,
        "down_delete": _window,
        "plans": _one_of("free", "pro", "ultra", "custom"),
        "credit": lambda text: read_number(text, at_most=MAX_SECONDS),
        "max_users": lambda text: _whole_number(text, at_most=2**31),
        "max_sandboxes": lambda text: _whole_number(text, at_most=2**31),
        "max_storage": lambda text: _whole_number(text, at_most=2**31),
        "mail": lambda text: _one_of("memory", "smtp")(text) == "memory",
        "proxy": read_distribution,
        "exec": read_distribution,
        "exec_status": _refusals("commands", _STATUSES),
        "stream": _rhythm,
        "chunks": _one_of(*chunks.KINDS),
        "breaks": _share,
    }
)
"""Each clause's name, which is also its field in `Profile`, and how its value is read (ValueError if not)."""
