"""Events in, summary out: every figure of a run, made again from ``events.jsonl`` at will."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from treadstone_user.model import Event, EventKind
from treadstone_user.verdict import judge_client, startup_share

PERCENTILES = (50, 95, 99)

# What a scenario says that does not say it.
_DEFAULT_TIMEOUT_SEC = 900
_DEFAULT_POLL_SEC = 10


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


def _time_to_ready(events: Sequence[Event], timeout_ms: float) -> dict[str, Any]:
    """From the create call to ready, over all created sandboxes.

    One that failed or timed out never got ready, which takes at least the timeout; one whose
    wait was interrupted takes at least as long as it was waited for. Of one whose end a killed
    run did not tell, nothing is known.
    """
    never = (EventKind.FAILED_STATUS, EventKind.POLL_TIMEOUT)
    bounds = [timeout_ms for event in events if event["event"] in never]
    bounds += _numbers(events, EventKind.INTERRUPTED, "waited_ms")
    bounds += [0.0] * _without_end(events)
    return censored(_numbers(events, EventKind.READY, "ready_latency_ms"), bounds)


def _without_end(events: Iterable[Event]) -> int:
    """How many created sandboxes have no end, as in a run that was killed."""
    count = Counter(event["event"] for event in events)
    ended = (EventKind.READY, EventKind.FAILED_STATUS, EventKind.POLL_TIMEOUT, EventKind.INTERRUPTED)
    return max(0, count[EventKind.CREATE_OK] - sum(count[kind] for kind in ended))


def _uncertainty(events: Iterable[Event]) -> list[float]:
    """How far apart the bounds of each ready time are."""
    return [
        event["ready_latency_ms"] - event["ready_after_ms"]
        for event in events
        if event["event"] == EventKind.READY and event.get("ready_after_ms") is not None
    ]


def error_key(event: Event) -> str:
    """How a failed call is counted: by HTTP status, or by kind where there was none."""
    status = event.get("http_status")
    return str(status) if status is not None else str(event.get("error_kind"))


def _rate(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


def _numbers(events: Sequence[Event], kind: EventKind, name: str) -> list[float]:
    return [event[name] for event in events if event["event"] == kind and event.get(name) is not None]


def bucket(events: Sequence[Event], *, timeout_ms: float) -> dict[str, Any]:
    """Counts, rates and latencies of a set of events.

    timeout_ms: how long the run waited for a sandbox to get ready.

    A sandbox counts once as deleted: `deleted_err` are those that were never removed, however
    often that was tried; `delete_errors` counts the failed calls by HTTP status.
    """
    count = Counter(event["event"] for event in events)
    removed = {event["sandbox_id"] for event in events if event["event"] == EventKind.DELETE_OK}
    refused = {event["sandbox_id"] for event in events if event["event"] == EventKind.DELETE_ERR}
    submitted, created = count[EventKind.CREATE_SUBMITTED], count[EventKind.CREATE_OK]
    return {
        "submitted": submitted,
        "created_ok": created,
        "created_err": count[EventKind.CREATE_ERR],
        "ready": count[EventKind.READY],
        "failed_status": count[EventKind.FAILED_STATUS],
        "poll_timeout": count[EventKind.POLL_TIMEOUT],
        "interrupted": count[EventKind.INTERRUPTED],
        "lost": count[EventKind.LOST],
        "deleted_ok": len(removed),
        "deleted_err": len(refused - removed),
        "create_success_rate": _rate(created, submitted),
        "ready_rate_of_created": _rate(count[EventKind.READY], created),
        "ready_rate_of_submitted": _rate(count[EventKind.READY], submitted),
        "create_errors": _errors(events, EventKind.CREATE_ERR),
        "failed_statuses": _count(events, EventKind.FAILED_STATUS, lambda event: event["last_status"]),
        "delete_errors": _errors(events, EventKind.DELETE_ERR),
        "create_latency_ms": distribution(_numbers(events, EventKind.CREATE_OK, "latency_ms")),
        "queue_ms": distribution(_numbers(events, EventKind.CREATE_OK, "queue_ms")),
        "ready_latency_ms": distribution(_numbers(events, EventKind.READY, "ready_latency_ms")),
        "ready_uncertainty_ms": distribution(_uncertainty(events)),
        "time_to_ready_ms": _time_to_ready(events, timeout_ms),
        "server_ready_ms": distribution(_numbers(events, EventKind.SERVER_TIMES, "server_ready_ms")),
    }


def _count(events: Iterable[Event], kind: EventKind, key: Callable[[Event], Any]) -> dict[str, int]:
    found = Counter(str(key(event)) for event in events if event["event"] == kind)
    return dict(sorted(found.items()))


def _errors(events: Iterable[Event], kind: EventKind) -> dict[str, int]:
    return _count(events, kind, error_key)


def _by(
    events: Iterable[Event], key: Callable[[Event], str], *, timeout_ms: float
) -> dict[str, dict[str, Any]]:
    groups: dict[str, list[Event]] = {}
    for event in events:
        if event.get("template") is not None:  # a failed poll belongs to no sandbox
            groups.setdefault(key(event), []).append(event)
    return {name: bucket(group, timeout_ms=timeout_ms) for name, group in sorted(groups.items())}


def burst(events: Iterable[Event]) -> dict[str, float | None]:
    """How the creates were spread: seconds from the first to the last one sent, and their rate."""
    sent = [e["t_ms"] for e in events if e["event"] == EventKind.CREATE_SUBMITTED and "t_ms" in e]
    spread_sec = (max(sent) - min(sent)) / 1000 if len(sent) > 1 else None
    rate = (len(sent) - 1) / spread_sec if spread_sec else None
    return {
        "burst_spread_sec": None if spread_sec is None else round(spread_sec, 3),
        "creates_per_sec": None if rate is None else round(rate, 2),
    }


def summarize(events: Iterable[Event], run: Mapping[str, Any]) -> dict[str, Any]:
    """The content of ``summary.json``.

    events: the decoded lines of ``events.jsonl``, in any order.
    run: the decoded ``run.json``; it tells what was planned, how the run ended and what the
        clean-up left.
    """
    events = list(events)
    scenario = run.get("scenario") or {}
    timeout_ms = scenario.get("ready_timeout_sec", _DEFAULT_TIMEOUT_SEC) * 1000
    overall = bucket(events, timeout_ms=timeout_ms)
    by_template = _by(events, lambda event: event["template"], timeout_ms=timeout_ms)
    by_persist = _by(events, lambda event: "true" if event["persist"] else "false", timeout_ms=timeout_ms)
    wanted = {"poll_interval_ms": scenario.get("poll_interval_sec", _DEFAULT_POLL_SEC) * 1000}
    client = {**(run.get("client") or {}), **wanted, **burst(events)}
    share = startup_share(overall, client)
    client["cli_startup_share"] = None if share is None else round(share, 3)
    return {
        "run_id": run["run_id"],
        "verdict": judge_client(overall, client),
        "total_duration_sec": run.get("duration_sec"),
        "ending": run.get("ending"),
        "planned": run.get("planned"),
        "overall": overall,
        "by_template": by_template,
        "by_persist": by_persist,
        "polls_failed": _errors(events, EventKind.POLL_ERR),
        "client": client,
        "cleanup": run.get("cleanup"),
    }
