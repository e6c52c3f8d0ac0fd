"""Distributions of durations, as a profile writes them."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

MAX_SECONDS = 1_000_000.0
MAX_SIGMA = 10.0

_LIMITS = {"sigma": MAX_SIGMA, "share": 1.0}
_CALL = re.compile(r"([a-z]+)\(([^()]*)\)")


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


def read_number(text: str, *, at_most: float) -> float:
    """Read a number from 0 to `at_most`; raises ValueError."""
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"'{text.strip()}' is not a number") from None
    if not 0 <= value <= at_most:
        raise ValueError(f"{text.strip()} is not from 0 to {at_most:g}")
    return value


def read_distribution(text: str) -> Distribution:
    """Read a distribution, or a bare number of seconds; raises ValueError."""
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
    args = tuple(read_number(value, at_most=limit) for value, limit in zip(raw, limits, strict=True))
    if shape == "lognormal" and args[0] == 0:
        raise ValueError("a lognormal's median must be more than 0")
    if shape == "uniform" and args[0] > args[1]:
        raise ValueError("a uniform's first bound must not exceed its second")
    return Distribution(shape, args)


def _written_shapes() -> str:
    return ", ".join(f"{name}({','.join(shape.parameters)})" for name, shape in SHAPES.items())
