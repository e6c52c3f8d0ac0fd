"""Queries and streams, and what each account did: figures beside those of sandboxes, from the same events."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from treadstone_user.figures import count, distribution, errors, numbers
from treadstone_user.model import Event, EventKind


def by_account(events: Iterable[Event]) -> dict[str, dict[str, Any]]:
    """What each account's sandboxes came to; empty where there is only that of the environment."""
    kinds = (EventKind.CREATE_SUBMITTED, EventKind.CREATE_OK, EventKind.CREATE_ERR, EventKind.READY)
    found = _grouped(events, kinds, lambda event: event.get("account"))
    return {
        account: {
            "submitted": _times(group, EventKind.CREATE_SUBMITTED),
            "created_ok": _times(group, EventKind.CREATE_OK),
            "ready": _times(group, EventKind.READY),
            "create_errors": errors(group, EventKind.CREATE_ERR),
        }
        for account, group in found.items()
    }


def queries(events: Iterable[Event]) -> dict[str, dict[str, Any]]:
    """How often each thing was asked, what failed, and how long answers took (ms)."""
    kinds = (EventKind.QUERY_OK, EventKind.QUERY_ERR)
    found = _grouped(events, kinds, lambda event: event.get("query"))
    return {
        query: {
            "asked": len(group),
            "failed": _times(group, EventKind.QUERY_ERR),
            "errors": errors(group, EventKind.QUERY_ERR),
            "latency_ms": distribution(numbers(group, EventKind.QUERY_OK, "latency_ms")),
        }
        for query, group in found.items()
    }


def streams(events: Iterable[Event]) -> dict[str, dict[str, Any]]:
    """How the streams of each path flowed; distributions are over streams that did not fail.

    ``asked``: also for those that never came. ``tokens``: null where no stream told any. ``first_output_ms``:
    from the request to the first output. ``mean_gap_ms``, ``longest_gap_ms``: between
    the outputs of one stream. ``total_ms``: of streams that came to their own end. Rates are of one stream,
    from its first output to its last.
    """
    kinds = (EventKind.STREAM_OK, EventKind.STREAM_ERR)
    found = _grouped(events, kinds, lambda event: event.get("path"))
    return {path: _flow(group) for path, group in found.items()}


def _flow(group: list[Event]) -> dict[str, Any]:
    ended = [event for event in group if event["event"] == EventKind.STREAM_OK]
    whole = [event for event in ended if event.get("ended") != "stopped"]  # by the run's end
    figures = ("first_output_ms", "mean_gap_ms", "longest_gap_ms")
    rates = ("outputs", "characters", "tokens")
    counted = [event["tokens"] for event in group if event.get("tokens") is not None]
    return {
        "asked": len(group),
        "failed": len(group) - len(ended),
        "errors": errors(group, EventKind.STREAM_ERR),
        "endings": count(group, EventKind.STREAM_OK, lambda event: event.get("ended")),
        **{name: sum(event.get(name) or 0 for event in group) for name in rates},
        "tokens": sum(counted) if counted else None,
        **{name: distribution(numbers(ended, EventKind.STREAM_OK, name)) for name in figures},
        "total_ms": distribution(numbers(whole, EventKind.STREAM_OK, "total_ms")),
        **{f"{name}_per_sec": distribution(_rates(ended, name)) for name in rates},
    }


def _rates(ended: Iterable[Event], name: str) -> list[float]:
    """How many of these a second each stream gave, after its first output, which it does not count in."""
    found = []
    for event in ended:
        flowing_ms = event.get("flowing_ms")
        outputs, amount = event.get("outputs") or 0, event.get(name)
        if flowing_ms and amount and outputs > 1:
            found.append(amount * (outputs - 1) / outputs / (flowing_ms / 1000))
    return found


def _times(group: Iterable[Event], kind: EventKind) -> int:
    return sum(event["event"] == kind for event in group)


def _grouped(
    events: Iterable[Event], kinds: Iterable[EventKind], key: Callable[[Event], str | None]
) -> dict[str, list[Event]]:
    wanted, groups = set(kinds), dict[str, list[Event]]()
    for event in events:
        name = key(event) if event["event"] in wanted else None
        if name is not None:
            groups.setdefault(name, []).append(event)
    return dict(sorted(groups.items()))
