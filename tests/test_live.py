"""What charts show of a run: compared with counts made anew from the same events."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadstone_user.live import MAX_BINS, Live, State, histogram
from treadstone_user.summary import bucket

ABOUT = {"template": "t", "persist": False, "storage_size": None}


def _life(number: int, start: float, took: float, end: str = "ready") -> list[dict[str, Any]]:
    """The events of one sandbox that is deleted a second after its end."""
    name = {"task": number, "sandbox_id": f"s{number}", **ABOUT}
    ends: dict[str, dict[str, Any]] = {
        "ready": {"ready_latency_ms": took, "ready_after_ms": took - 10},
        "failed_status": {"last_status": "error", "waited_ms": took},
        "poll_timeout": {"last_status": "creating", "waited_ms": took},
        "interrupted": {"last_status": "creating", "waited_ms": took},
        "lost": {"submitted": True, "lost_worker": "w1"},
    }
    return [
        {"event": "create_submitted", "t_ms": start, **ABOUT, "task": number},
        {"event": "create_ok", "t_ms": start + 5, "latency_ms": 5.0, **name},
        {"event": end, "t_ms": start + took, **ends[end], **name},
        {"event": "delete_ok", "t_ms": start + took + 1000, "latency_ms": 5.0, **name},
    ]


def _live(events: list[dict[str, Any]], timeout_ms: float = 60_000.0) -> Live:
    live = Live(timeout_ms=timeout_ms)
    for event in events:
        live.add(event)
    return live


def test_states_at_each_moment() -> None:
    """A sandbox is starting until its result, then what it came to, and deleted at last."""
    events = _life(1, 0, 1000) + _life(2, 500, 2000, "failed_status")
    shown = _live(events).snapshot(4000)
    assert shown["bin_ms"] == 250
    at = {
        state: [shown["states"][state][int(t / 250)] for t in (0, 500, 1000, 2000, 2500, 3500)]
        for state in State
    }
    assert at == {
        "starting": [1, 2, 1, 1, 0, 0],
        "ready": [0, 0, 1, 0, 0, 0],
        "failed": [0, 0, 0, 0, 1, 0],
        "deleted": [0, 0, 0, 1, 1, 2],
    }
    assert shown["totals"] == {"starting": 0, "ready": 0, "failed": 0, "deleted": 2, "submitted": 2}
    assert sum(shown["created"]) == 2
    assert sum(shown["got_ready"]) == shown["got_ready_total"] == shown["failed_total"] == 1


ENDS = ("ready", "failed_status", "poll_timeout", "interrupted", "lost")
LIVES = st.lists(
    st.tuples(st.floats(0, 1e6), st.floats(1, 1e5), st.sampled_from(ENDS)), min_size=1, max_size=30
)


@given(LIVES, st.randoms(use_true_random=False))
def test_every_bin_says_what_the_events_say_up_to_its_end(
    lives: list[tuple[float, float, str]], order: Any
) -> None:
    """However long the run is, and though workers' events come out of order."""
    events = [
        life for number, (start, took, end) in enumerate(lives) for life in _life(number, start, took, end)
    ]
    workers = [[life for life in events if life["task"] % 3 == worker] for worker in range(3)]
    order.shuffle(workers)
    shown = _live([event for worker in workers for event in worker]).snapshot(0)
    width, states = shown["bin_ms"], shown["states"]
    assert len(states["ready"]) <= MAX_BINS
    for place in range(len(states["ready"])):
        until = (place + 1) * width
        seen = Counter(event["event"] for event in events if event["t_ms"] < until)
        ended = sum(seen[end] for end in ENDS)
        assert states["starting"][place] == seen["create_submitted"] - ended
        assert states["deleted"][place] == seen["delete_ok"]
        assert states["ready"][place] + states["failed"][place] == ended - seen["delete_ok"]


def test_time_goes_on_though_nothing_happens() -> None:
    """The chart reaches to now."""
    shown = _live(_life(1, 0, 1000)[:2]).snapshot(10_000)
    assert len(shown["states"]["starting"]) == 41
    assert shown["states"]["starting"][-1] == 1


def test_errors_by_step_and_kind() -> None:
    """Grouped as in the summary: by status, or by kind where there is none."""
    refused = {
        "event": "create_err",
        "t_ms": 5.0,
        "http_status": 429,
        "error_kind": "quota_exceeded",
        **ABOUT,
    }
    submitted = {"event": "create_submitted", "task": 1, "t_ms": 1.0, **ABOUT}
    events = [submitted, {**refused, "task": 1}, submitted, {**refused, "task": 2}]
    events += _life(3, 0, 10, "failed_status") + _life(4, 0, 10, "poll_timeout") + _life(5, 0, 10, "lost")
    events += [{"event": "poll_err", "t_ms": 9.0, "http_status": None, "error_kind": "connect_error"}]
    events += [
        {
            "event": "delete_err",
            "t_ms": 9.0,
            "http_status": 500,
            "error_kind": "x",
            "sandbox_id": "s3",
            **ABOUT,
        }
    ]
    found = {(row["step"], row["error"]): row["count"] for row in _live(events).snapshot(0)["errors"]}
    assert found == {
        ("create", "429"): 2,
        ("wait", "status error"): 1,
        ("wait", "not ready in time"): 1,
        ("wait", "lost with its worker"): 1,
        ("poll", "connect_error"): 1,
        ("delete", "500"): 1,
    }


def test_those_that_never_got_ready_take_at_least_the_timeout() -> None:
    """As in the summary: the percentiles are of all, with a bound where they are not exact."""
    events = [event for number in range(8) for event in _life(number, 0, 1000.0)]
    events += _life(8, 0, 10, "failed_status") + _life(9, 0, 20, "poll_timeout")
    figures = _live(events, timeout_ms=30_000.0).snapshot(0)["time_to_ready_ms"]
    assert (figures["n"], figures["p50"], figures["p95"]) == (10, 1000.0, 30_000.0)
    assert figures["at_least"] == ["p95", "p99", "max"]


ANY_LIVES = st.lists(st.tuples(st.floats(1, 1e5), st.sampled_from(ENDS)), min_size=1, max_size=20)


@given(ANY_LIVES)
def test_time_to_ready_is_that_of_the_summary(lives: list[tuple[float, str]]) -> None:
    """Whatever became of the sandboxes: the page and the file never disagree."""
    events = [event for number, (took, end) in enumerate(lives) for event in _life(number, 0, took, end)]
    found = _live(events, timeout_ms=30_000.0).snapshot(0)["time_to_ready_ms"]
    assert found == bucket(events, timeout_ms=30_000.0)["time_to_ready_ms"]


def test_those_still_waited_for_take_at_least_as_long_as_they_have_been() -> None:
    """While a run goes, its figures are not those of its fastest sandboxes."""
    events = _life(1, 0, 1000.0) + [event for n in (2, 3) for event in _life(n, 500, 9000.0)[:2]]
    figures = _live(events).snapshot(4500)["time_to_ready_ms"]
    assert (figures["n"], figures["p50"], figures["max"]) == (3, 4000.0, 4000.0)
    assert figures["at_least"] == ["p50", "p95", "p99", "max"]


def test_deletes_of_others_and_second_deletes_move_nothing() -> None:
    """A foreign sandbox under the run's label is no sandbox of the run."""
    twice = _life(1, 0, 100)
    foreign = {**twice[-1], "sandbox_id": "foreign", "task": None}
    shown = _live([*twice, twice[-1], foreign]).snapshot(0)
    assert shown["totals"]["deleted"] == 1
    assert shown["states"]["deleted"][-1] == 1


def test_a_task_lost_before_its_create_was_known_counts_as_failed_alone() -> None:
    """It never was starting."""
    lost = {"event": "lost", "t_ms": 10.0, "task": 1, "sandbox_id": None, "submitted": False, **ABOUT}
    assert _live([lost]).snapshot(0)["totals"] == {
        "starting": 0, "ready": 0, "failed": 1, "deleted": 0, "submitted": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("values", "width", "counts"),
    [
        ([], None, []),
        ([5.0], 10.0, [1]),
        ([0.0, 9.9, 10.0, 399.0], 10.0, [2, 1, *[0] * 37, 1]),
        ([401.0], 20.0, [*[0] * 20, 1]),
        ([4000.0], 100.0, [*[0] * 40, 1]),
    ],
)
def test_a_histogram_has_round_bins(values: list[float], width: float | None, counts: list[int]) -> None:
    """Of 10, 20, 50, 100 ... ms, about forty of them, and every value is in one."""
    assert histogram(values) == {"width_ms": width, "counts": counts}


@given(st.lists(st.floats(0, 1e7), min_size=1))
def test_a_histogram_holds_every_value_once(values: list[float]) -> None:
    """And never more than about forty bins."""
    found = histogram(values)
    assert sum(found["counts"]) == len(values)
    assert len(found["counts"]) <= 41


def test_ten_thousand_sandboxes_are_small_and_quick() -> None:
    """Bins and not points: what is sent does not grow with the run."""
    ends = ("ready", "ready", "ready", "failed_status")
    events = [e for n in range(10_000) for e in _life(n, n * 3.0, 2000.0 + n % 977, ends[n % 4])]
    live = _live(events)
    began = time.monotonic()
    shown = live.snapshot(0)
    assert time.monotonic() - began < 1  # it takes about 10 ms; the benchmark is elsewhere
    assert len(json.dumps(shown)) < 20_000
    assert shown["totals"]["deleted"] == 10_000


def test_commands_queries_and_streams_are_counted_by_what_they_are() -> None:
    """With mean and maximum of those that went well; nothing of them is a sandbox's state."""
    live = Live(timeout_ms=1000)
    for event in (
        {"event": "exec_ok", "first_answer_ms": 1500.0, "sandbox_id": "a", "template": "t", "persist": False},
        {"event": "query_ok", "query": "list", "latency_ms": 4.0},
        {"event": "query_ok", "query": "list", "latency_ms": 8.0},
        {"event": "query_err", "query": "list", "http_status": 500},
        {"event": "stream_err", "path": "/x", "http_status": None, "error_kind": "stream_broken"},
    ):
        live.add({"t_ms": 100.0, **event})
    shown = live.snapshot(200)
    assert [tuple(row.values()) for row in shown["others"]] == [
        ("exec", "first answer", 1, 0, 1500.0, 1500.0),
        ("query", "list", 3, 1, 6.0, 8.0),
        ("stream", "/x", 1, 1, None, None),
    ]
    assert shown["errors"] == [
        {"step": "query", "error": "500", "count": 1},
        {"step": "stream", "error": "stream_broken", "count": 1},
    ]
    assert shown["templates"] == []
