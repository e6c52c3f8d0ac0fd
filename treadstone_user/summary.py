"""Events in, summary out: every figure of a run, made again from ``events.jsonl`` at will."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from treadstone_user.figures import apart, censored, count, distribution, errors, numbers, rate
from treadstone_user.model import Event, EventKind
from treadstone_user.traffic import by_account, queries, streams
from treadstone_user.verdict import judge_client, startup_share

# What a scenario says that does not say it.
_DEFAULT_TIMEOUT_SEC = 900
_DEFAULT_POLL_SEC = 10


def _time_to_ready(events: Sequence[Event], timeout_ms: float) -> dict[str, Any]:
    """From the create call to ready, over all created sandboxes.

    One that failed or timed out never got ready, which takes at least the timeout; one whose
    wait was interrupted takes at least as long as it was waited for. Of one whose end a killed
    run did not tell, nothing is known.
    """
    never = (EventKind.FAILED_STATUS, EventKind.POLL_TIMEOUT)
    bounds = [timeout_ms for event in events if event["event"] in never]
    bounds += numbers(events, EventKind.INTERRUPTED, "waited_ms")
    bounds += [0.0] * _without_end(events)
    return censored(numbers(events, EventKind.READY, "ready_latency_ms"), bounds)


def _without_end(events: Iterable[Event]) -> int:
    """How many created sandboxes have no end, as in a run that was killed."""
    count = Counter(event["event"] for event in events)
    ended = (EventKind.READY, EventKind.FAILED_STATUS, EventKind.POLL_TIMEOUT, EventKind.INTERRUPTED)
    return max(0, count[EventKind.CREATE_OK] - sum(count[kind] for kind in ended))


def bucket(events: Sequence[Event], *, timeout_ms: float) -> dict[str, Any]:
    """Counts, rates and latencies of a set of events.

    timeout_ms: how long the run waited for a sandbox to get ready.

    A sandbox counts once as deleted: `deleted_err` are those that were never removed, however
    often that was tried; `delete_errors` counts the failed calls by HTTP status.
    """
    counts = Counter(event["event"] for event in events)
    removed = {event["sandbox_id"] for event in events if event["event"] == EventKind.DELETE_OK}
    refused = {event["sandbox_id"] for event in events if event["event"] == EventKind.DELETE_ERR}
    submitted, created = counts[EventKind.CREATE_SUBMITTED], counts[EventKind.CREATE_OK]
    return {
        "submitted": submitted,
        "created_ok": created,
        "created_err": counts[EventKind.CREATE_ERR],
        "ready": counts[EventKind.READY],
        "failed_status": counts[EventKind.FAILED_STATUS],
        "poll_timeout": counts[EventKind.POLL_TIMEOUT],
        "interrupted": counts[EventKind.INTERRUPTED],
        "lost": counts[EventKind.LOST],
        "deleted_ok": len(removed),
        "deleted_err": len(refused - removed),
        "create_success_rate": rate(created, submitted),
        "ready_rate_of_created": rate(counts[EventKind.READY], created),
        "ready_rate_of_submitted": rate(counts[EventKind.READY], submitted),
        "create_errors": errors(events, EventKind.CREATE_ERR),
        "failed_statuses": count(events, EventKind.FAILED_STATUS, lambda event: event["last_status"]),
        "delete_errors": errors(events, EventKind.DELETE_ERR),
        "create_latency_ms": distribution(numbers(events, EventKind.CREATE_OK, "latency_ms")),
        "queue_ms": distribution(numbers(events, EventKind.CREATE_OK, "queue_ms")),
        "ready_latency_ms": distribution(numbers(events, EventKind.READY, "ready_latency_ms")),
        "ready_uncertainty_ms": distribution(
            apart(events, EventKind.READY, "ready_after_ms", "ready_latency_ms")
        ),
        "time_to_ready_ms": _time_to_ready(events, timeout_ms),
        "server_ready_ms": distribution(numbers(events, EventKind.SERVER_TIMES, "server_ready_ms")),
        "exec_ok": counts[EventKind.EXEC_OK],
        "exec_err": counts[EventKind.EXEC_ERR] - _interrupted_commands(events),
        "exec_errors": errors(events, EventKind.EXEC_ERR),
        "exec_latency_ms": distribution(numbers(events, EventKind.EXEC_OK, "latency_ms")),
        "first_answer_ms": distribution(numbers(events, EventKind.EXEC_OK, "first_answer_ms")),
        "first_answer_uncertainty_ms": distribution(
            apart(events, EventKind.EXEC_OK, "first_answer_after_ms", "first_answer_ms")
        ),
    }


def _interrupted_commands(events: Iterable[Event]) -> int:
    """Commands that the run's end cut off: the server did nothing wrong."""
    return sum(e["event"] == EventKind.EXEC_ERR and e.get("error_kind") == "interrupted" for e in events)


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
    asked = queries(events)
    client["cli_startup_share"] = None if share is None else round(share, 3)
    return {
        "run_id": run["run_id"],
        "verdict": judge_client(overall, client, asked),
        "total_duration_sec": run.get("duration_sec"),
        "ending": run.get("ending"),
        "planned": run.get("planned"),
        "overall": overall,
        "by_template": by_template,
        "by_persist": by_persist,
        "by_account": by_account(events),
        "queries": asked,
        "streams": streams(events),
        "polls_failed": errors(events, EventKind.POLL_ERR),
        "client": client,
        "cleanup": run.get("cleanup"),
    }
