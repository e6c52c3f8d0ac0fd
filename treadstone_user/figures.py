"""Figures from samples: percentiles, distributions, counts of events."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from treadstone_user.model import Event, EventKind

PERCENTILES = (50, 95, 99)


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The percentile of an ascending, non-empty sequence by linear interpolation.

    Definition 7 of Hyndman and Fan, "Sample Quantiles in Statistical Packages", 1996: the
    value at rank ``percent / 100 * (n - 1)``, interpolated between its two neighbours.
    """
    rank = percent / 100 * (len(ordered) - 1)
    below = int(rank)
    if rank == below:
        return ordered[below]  # a value itself, however far away the next one is
    return ordered[below] + (ordered[below + 1] - ordered[below]) * (rank - below)


def carries(count: int, percent: float) -> bool:
    """Whether so many samples can carry this percentile: at least one lies beyond it."""
    return round(count * (100 - percent), 6) >= 100


def distribution(values: Iterable[float]) -> dict[str, Any]:
    """p50, p95, p99, max and n of milliseconds; null without a sample.

    `unsupported` names the percentiles that are given but that n is too small to carry.
    """
    ordered = sorted(values)
    found: dict[str, Any] = {f"p{p}": None for p in PERCENTILES} | {"max": None}
    if ordered:
        found = {f"p{p}": round(percentile(ordered, p), 1) for p in PERCENTILES}
        found["max"] = round(ordered[-1], 1)
    found["n"] = len(ordered)
    found["unsupported"] = [f"p{p}" for p in PERCENTILES if ordered and not carries(len(ordered), p)]
    return found


def censored(exact: Iterable[float], at_least: Iterable[float]) -> dict[str, Any]:
    """The distribution of durations of which some are only known to be at least so long.

    Each figure is the lowest that it can be, with every unknown at its bound. Those that could
    be higher, were the unknowns endless, are named in `at_least`; the others are exact.
    """
    known, bounds = sorted(exact), list(at_least)
    lowest = sorted([*known, *bounds])
    highest = [*known, *([math.inf] * len(bounds))]
    found = distribution(lowest)
    open_ended = [f"p{p}" for p in PERCENTILES if highest and _moves(lowest, highest, p)]
    found["at_least"] = open_ended + (["max"] if bounds else [])
    return found


def _moves(lowest: Sequence[float], highest: Sequence[float], percent: float) -> bool:
    above = math.ceil(percent / 100 * (len(highest) - 1))
    return math.isinf(highest[above]) or percentile(lowest, percent) != percentile(highest, percent)


def apart(events: Iterable[Event], kind: EventKind, lower: str, upper: str) -> list[float]:
    """How far apart the bounds of each time are."""
    return [
        event[upper] - event[lower]
        for event in events
        if event["event"] == kind and event.get(lower) is not None
    ]


def error_key(event: Event) -> str:
    """How a failed call is counted: by HTTP status, or by kind where there was none."""
    status = event.get("http_status")
    return str(status) if status is not None else str(event.get("error_kind"))


def rate(part: int, whole: int) -> float | None:
    """A share, 0 to 1; None of nothing."""
    return round(part / whole, 4) if whole else None


def numbers(events: Sequence[Event], kind: EventKind, name: str) -> list[float]:
    """The values of a field in all events of a kind that tell it."""
    return [event[name] for event in events if event["event"] == kind and event.get(name) is not None]


def count(events: Iterable[Event], kind: EventKind, key: Callable[[Event], Any]) -> dict[str, int]:
    """How many events of a kind there are for each key."""
    found = Counter(str(key(event)) for event in events if event["event"] == kind)
    return dict(sorted(found.items()))


def errors(events: Iterable[Event], kind: EventKind) -> dict[str, int]:
    """How many failed calls there are for each status, or kind."""
    return count(events, kind, error_key)
