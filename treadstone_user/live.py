"""A run as charts show it while it goes: bins instead of points, whatever its size and length."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from treadstone_user.figures import censored, error_key
from treadstone_user.model import Event, EventKind, variant_title

MAX_BINS = 240
"""More bins of time than this are merged, two by two."""

_FIRST_BIN_MS = 250.0
_HISTOGRAM_BINS = 40


class State(StrEnum):
    """What a sandbox is to a run at a moment."""

    STARTING = "starting"
    """Its create was sent, and it has no result yet."""
    READY = "ready"
    FAILED = "failed"
    """It has a result and never got ready: refused, failed, too late, interrupted or lost."""
    DELETED = "deleted"
    """Its delete was accepted; it is gone once the list does not show it."""


_FAILED = {
    EventKind.CREATE_ERR,
    EventKind.FAILED_STATUS,
    EventKind.POLL_TIMEOUT,
    EventKind.INTERRUPTED,
    EventKind.LOST,
}
_ERRORS = {EventKind.CREATE_ERR: "create", EventKind.DELETE_ERR: "delete", EventKind.POLL_ERR: "poll"}
_ERRORS |= {EventKind.EXEC_ERR: "exec", EventKind.QUERY_ERR: "query", EventKind.STREAM_ERR: "stream"}


_OTHERS = {
    EventKind.EXEC_OK: ("exec", "first_answer_ms"),
    EventKind.EXEC_ERR: ("exec", None),
    EventKind.QUERY_OK: ("query", "latency_ms"),
    EventKind.QUERY_ERR: ("query", None),
    EventKind.STREAM_OK: ("stream", "first_output_ms"),
    EventKind.STREAM_ERR: ("stream", None),
}
"""What happens beside creating and waiting, and the milliseconds that are of interest of it."""


class Others:
    """Counts, means and maxima of commands, queries and streams, by what they are."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], Counter[str]] = {}
        self._longest: dict[tuple[str, str], float] = {}

    def add(self, event: Event) -> None:
        """Take in an event of one of these kinds."""
        kind, figure = _OTHERS[EventKind(event["event"])]
        name = event.get("query") or event.get("path") or "first answer"
        counts = self._counts.setdefault((kind, name), Counter())
        counts["count"] += 1
        cut_off = event.get("error_kind") == "interrupted"  # by the run's end: the server did nothing wrong
        counts["failed"] += figure is None and not cut_off
        took_ms = event.get(figure) if figure is not None else None
        if took_ms is not None:
            counts["timed"] += 1
            counts["sum_us"] += round(took_ms * 1000)
            self._longest[kind, name] = max(took_ms, self._longest.get((kind, name), 0.0))

    def rows(self) -> list[dict[str, Any]]:
        """A row for each; milliseconds are null where nothing has succeeded."""
        return [
            {
                "kind": kind,
                "name": name,
                "count": counts["count"],
                "failed": counts["failed"],
                "mean_ms": round(counts["sum_us"] / counts["timed"] / 1000, 1) if counts["timed"] else None,
                "max_ms": self._longest.get((kind, name)),
            }
            for (kind, name), counts in sorted(self._counts.items())
        ]


class Timeline:
    """How often something happened in each bin of time. Bins are merged as time goes on.

    bin_ms: the width of a bin, in milliseconds.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.bin_ms = _FIRST_BIN_MS
        self._counts: dict[str, list[int]] = {name: [0] for name in names}

    def add(self, name: str, t_ms: float, change: int = 1) -> None:
        """Take note of something at `t_ms`; events may come out of order."""
        self._reach(t_ms)
        self._counts[name][self._bin(t_ms)] += change

    def counts(self, name: str, until_ms: float) -> list[int]:
        """The count of each bin up to the one of `until_ms`."""
        self._reach(until_ms)
        return self._counts[name][: self._bin(until_ms) + 1]

    def _bin(self, t_ms: float) -> int:
        return max(0, int(t_ms // self.bin_ms))

    def _reach(self, t_ms: float) -> None:
        while self._bin(t_ms) >= MAX_BINS:
            self.bin_ms *= 2
            for name, counts in self._counts.items():
                self._counts[name] = [sum(counts[at : at + 2]) for at in range(0, len(counts), 2)]
        missing = self._bin(t_ms) + 1 - len(next(iter(self._counts.values())))
        for counts in self._counts.values():
            counts.extend([0] * missing)


class Live:
    """Takes in a run's events, and gives what charts and tables show of it.

    timeout_ms: how long the run waits for a sandbox to get ready.
    """

    def __init__(self, *, timeout_ms: float) -> None:
        self._timeout_ms = timeout_ms
        self._last_ms = 0.0
        self._changes = Timeline([*State, "created", "got_ready"])
        self._state_of: dict[str, State] = {}
        self._sent_ms: dict[int, float] = {}
        self._waiting: dict[int, float] = {}
        self._templates: dict[str, Counter[str]] = {}
        self._errors: Counter[tuple[str, str]] = Counter()
        self._ready_ms = array("d")
        self._at_least_ms = array("d")
        self._totals: Counter[str] = Counter()
        self._others = Others()

    def add(self, event: Event) -> None:
        """Take in an event."""
        kind = event["event"]
        at = event.get("t_ms", self._last_ms)
        self._last_ms = max(self._last_ms, at)
        self._totals[kind] += 1
        if kind in _ERRORS and event.get("error_kind") != "interrupted":
            self._errors[_ERRORS[EventKind(kind)], error_key(event)] += 1
        elif kind in _FAILED and kind != EventKind.INTERRUPTED:
            self._errors["wait", _why(event)] += 1
        if kind in _OTHERS:
            self._others.add(event)
        elif kind == EventKind.CREATE_SUBMITTED:
            self._sent_ms[event["task"]] = at
            self._enter(event, at, State.STARTING)
            self._changes.add("created", at)
        elif kind == EventKind.CREATE_OK:
            self._waiting[event["task"]] = self._sent_ms.pop(event["task"], at)
        elif kind == EventKind.READY:
            self._end(event)
            self._ready_ms.append(event["ready_latency_ms"])
            self._changes.add("got_ready", at)
            self._move(event, at, State.STARTING, State.READY)
        elif kind in _FAILED:
            self._fail(event, at)
        elif kind == EventKind.DELETE_OK:
            self._remove(event, at)

    def _end(self, event: Event) -> None:
        self._sent_ms.pop(event["task"], None)
        self._waiting.pop(event["task"], None)

    def _fail(self, event: Event, at: float) -> None:
        kind = event["event"]
        self._end(event)
        if kind in (EventKind.FAILED_STATUS, EventKind.POLL_TIMEOUT):
            self._at_least_ms.append(self._timeout_ms)
        elif kind == EventKind.INTERRUPTED:
            self._at_least_ms.append(event["waited_ms"])
        elif kind == EventKind.LOST and event["sandbox_id"] is not None:
            self._at_least_ms.append(0.0)  # nobody knows, as in the summary
        if kind == EventKind.LOST and not event["submitted"]:
            self._enter(event, at, State.FAILED)
        else:
            self._move(event, at, State.STARTING, State.FAILED)

    def _remove(self, event: Event, at: float) -> None:
        before = self._state_of.get(event["sandbox_id"])
        if before in (State.READY, State.FAILED):  # not of a foreign one, and not twice
            self._move(event, at, before, State.DELETED)

    def _enter(self, event: Event, at: float, state: State) -> None:
        self._changes.add(state, at)
        self._template(event)[state] += 1

    def _move(self, event: Event, at: float, before: State, after: State) -> None:
        self._changes.add(before, at, -1)
        self._changes.add(after, at)
        counts = self._template(event)
        counts[before] -= 1
        counts[after] += 1
        if event.get("sandbox_id") is not None:
            self._state_of[event["sandbox_id"]] = after

    def _waited(self, now_ms: float) -> list[float]:
        """How long each sandbox that has no result yet has been waited for: it takes so long at least.

        Without these, the figures of a run that goes on would be those of its fastest sandboxes.
        """
        return [now_ms - sent_ms for sent_ms in self._waiting.values()]

    def _template(self, event: Event) -> Counter[str]:
        title = variant_title(event["template"], event["persist"], event["storage_size"])
        return self._templates.setdefault(title, Counter())

    def snapshot(self, now_ms: float) -> dict[str, Any]:
        """All that the charts need, as plain values of a bounded size.

        now_ms: up to where time is shown, in milliseconds since the run began.
        """
        until = max(now_ms, self._last_ms)
        totals = {state: sum(counts[state] for counts in self._templates.values()) for state in State}
        self._changes.counts(State.READY, until)  # first, as it may widen the bins
        return {
            "bin_ms": self._changes.bin_ms,
            "states": {state: _sums(self._changes.counts(state, until)) for state in State},
            "created": self._changes.counts("created", until),
            "got_ready": self._changes.counts("got_ready", until),
            "totals": totals | {"submitted": self._totals[EventKind.CREATE_SUBMITTED]},
            "got_ready_total": self._totals[EventKind.READY],
            "failed_total": sum(self._totals[kind] for kind in _FAILED),
            "templates": [
                {"template": title, "submitted": counts.total(), **{state: counts[state] for state in State}}
                for title, counts in sorted(self._templates.items())
            ],
            "errors": [
                {"step": step, "error": error, "count": count}
                for (step, error), count in sorted(self._errors.items())
            ],
            "others": self._others.rows(),
            "time_to_ready_ms": censored(self._ready_ms, [*self._at_least_ms, *self._waited(until)]),
            "histogram": histogram(self._ready_ms),
        }


def histogram(values_ms: Sequence[float]) -> dict[str, Any]:
    """Counts of values in bins of a round width, `width_ms`, the first of them from 0 on."""
    ordered = sorted(values_ms)
    if not ordered:
        return {"width_ms": None, "counts": []}
    width = _round_width(ordered[-1] / _HISTOGRAM_BINS)
    edges = [width * place for place in range(1, int(ordered[-1] // width) + 1)]
    upto = [*(bisect_right(ordered, edge - 1e-9) for edge in edges), len(ordered)]
    return {"width_ms": width, "counts": [b - a for a, b in zip([0, *upto], upto, strict=False)]}


def _round_width(least: float) -> float:
    """The smallest of 10, 20, 50, 100, 200 ... that is at least so wide."""
    width, steps = 10.0, (2.0, 2.5, 2.0)
    for step in range(60):
        if width >= least:
            break
        width *= steps[step % 3]
    return width


def _sums(changes: Sequence[int]) -> list[int]:
    total, sums = 0, []
    for change in changes:
        total += change
        sums.append(total)
    return sums


def _why(event: Event) -> str:
    """Why a sandbox that was waited for never got ready."""
    if event["event"] == EventKind.FAILED_STATUS:
        return f"status {event['last_status']}"
    return "not ready in time" if event["event"] == EventKind.POLL_TIMEOUT else "lost with its worker"
