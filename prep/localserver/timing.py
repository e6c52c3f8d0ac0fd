"""How long things take: distributions of seconds, and the rhythm of a stream's outputs."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType


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


@dataclass(frozen=True)
class Rhythm:
    """When a stream's outputs are sent, in seconds from the arrival of its request.

    Every moment is counted from the arrival and not from the output before, so that no delay adds up.
    """

    first: float
    count: int
    gap: float

    def at(self, number: int) -> float:
        """Tell when an output is sent; the first has number 0."""
        return self.first + number * self.gap

    def last(self, count: int) -> float:
        """Tell when the last of the first `count` outputs is sent."""
        return self.at(max(count - 1, 0))
