"""Reading the values of a profile's clauses.

Each reader takes a text, and raises ValueError, saying what to write, if it makes no sense.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping

from prep.localserver.timing import SHAPES, Distribution, Rhythm

MAX_SECONDS = 1_000_000.0
MAX_SIGMA = 10.0
MAX_OUTPUTS = 100_000

_LIMITS = {"sigma": MAX_SIGMA, "share": 1.0}
_CALL = re.compile(r"([a-z]+)\(([^()]*)\)")
_RHYTHM = re.compile(r"([^+x]+)\+([^+x]+)x([^+x]+)")


def number(text: str, *, at_most: float) -> float:
    """Read a number of 0 or more."""
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"'{text.strip()}' is not a number") from None
    if not 0 <= value <= at_most:
        raise ValueError(f"{text.strip()} is not from 0 to {at_most:g}")
    return value


def seconds(text: str) -> float:
    """Read a number of seconds."""
    return number(text, at_most=MAX_SECONDS)


def offset(text: str) -> float:
    """Read an offset in whole seconds, with its sign."""
    if not re.fullmatch(r"[+-]\d{1,6}", text):
        raise ValueError(f"'{text}' is not an offset in whole seconds, such as +37")
    return float(text)


def up_to(at_most: int) -> Callable[[str], int]:
    """Make a reader of whole numbers from 0 to a limit."""

    def read(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,18}", text):
            raise ValueError(f"'{text}' is not a whole number, 0 or more")
        if int(text) > at_most:
            raise ValueError(f"{text} is more than {at_most}")
        return int(text)

    return read


def distribution(text: str) -> Distribution:
    """Read a distribution of seconds, or a bare number of them."""
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
    args = tuple(number(value, at_most=limit) for value, limit in zip(raw, limits, strict=True))
    if shape == "lognormal" and args[0] == 0:
        raise ValueError("a lognormal's median must be more than 0")
    if shape == "uniform" and args[0] > args[1]:
        raise ValueError("a uniform's first bound must not exceed its second")
    return Distribution(shape, args)


def _written_shapes() -> str:
    return ", ".join(f"{name}({','.join(shape.parameters)})" for name, shape in SHAPES.items())


def rhythm(text: str) -> Rhythm:
    """Read a stream's rhythm, ``FIRST+COUNTxGAP``."""
    parts = _RHYTHM.fullmatch(text)
    if parts is None:
        raise ValueError(f"'{text}' is not FIRST+COUNTxGAP in seconds, such as 0.3+50x0.02")
    first, count, gap = parts.groups()
    outputs = up_to(MAX_OUTPUTS)(count)
    if outputs == 0:
        raise ValueError("a stream has at least one output")
    return Rhythm(seconds(first), outputs, seconds(gap))


def share(text: str) -> float:
    """Read a share, written as a percentage, as 0 to 1."""
    if not text.endswith("%"):
        raise ValueError("write a share as a percentage, such as 5%")
    return number(text.removesuffix("%"), at_most=100) / 100


def shares[T](
    what: str, known: Mapping[str, T], example: str
) -> Callable[[str], tuple[tuple[T, float], ...]]:
    """Make a reader of ``NAME:P%`` pairs, of which each name is known and given once."""

    def read(text: str) -> tuple[tuple[T, float], ...]:
        read_shares: dict[T, float] = {}
        for part in text.split(","):
            name, colon, share_text = part.partition(":")
            if not colon:
                raise ValueError(f"'{part}' is not {example}")
            if name not in known:
                raise ValueError(f"{what} {name}; there are {', '.join(known)}")
            if known[name] in read_shares:
                raise ValueError(f"{name} given more than once")
            read_shares[known[name]] = share(share_text)
        if sum(read_shares.values()) > 1 + 1e-9:
            raise ValueError("the shares add up to more than 100%")
        return tuple(read_shares.items())

    return read


def refusals(calls: str, statuses: Iterable[int]) -> Callable[[str], tuple[tuple[int, float], ...]]:
    """Make a reader of HTTP statuses with which some calls are refused, each with its share."""
    known = {str(status): status for status in statuses}
    return shares(f"{calls} are not refused with", known, "STATUS:P%, such as 429:5%")


def window(text: str) -> tuple[float, float]:
    """Read ``AFTER+LASTS`` in seconds; the second may be endless."""
    after, plus, lasts = text.partition("+")
    if not plus:
        raise ValueError(f"'{text}' is not AFTER+LASTS in seconds, such as 5+30 or 5+inf")
    return seconds(after), math.inf if lasts == "inf" else seconds(lasts)


def switch(text: str) -> bool:
    """Read on or off."""
    if text not in ("on", "off"):
        raise ValueError("write on or off")
    return text == "on"


def one_of(*words: str) -> Callable[[str], str]:
    """Make a reader of one word out of some."""

    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"'{text}' is not one of {', '.join(words)}")
        return text

    return read
