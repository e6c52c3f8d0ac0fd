"""A summary is counted from events alone, held to figures that were worked out by hand."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadstone_user.eventlog import read_events
from treadstone_user.figures import carries, censored, distribution, percentile
from treadstone_user.model import EventKind
from treadstone_user.report import render_summary
from treadstone_user.summary import bucket, burst, summarize
from treadstone_user.traffic import by_account, queries, streams
from treadstone_user.verdict import CLIENT_SATURATED, SERVER_MEASURED

HARNESS = Path(__file__).parent / "contract" / "harness-run"

PERCENTILES = [
    # values, percent, the value at rank percent / 100 * (n - 1)
    ([7.0], 0, 7.0),
    ([7.0], 50, 7.0),
    ([7.0], 99, 7.0),
    ([1.0, 3.0], 50, 2.0),  # rank 0.5: half way
    ([1.0, 2.0, 10.0], 50, 2.0),  # rank 1: a value itself
    ([10.0, 20.0, 30.0, 40.0], 50, 25.0),  # rank 1.5
    ([10.0, 20.0, 30.0, 40.0], 95, 38.5),  # rank 2.85: 30 + 0.85 * 10
    ([10.0, 20.0, 30.0, 40.0], 100, 40.0),
    ([0.0, 0.0, 0.0, 0.0, 100.0], 95, 80.0),  # rank 3.8
    ([float(n) for n in range(1, 102)], 95, 96.0),  # rank 95: the 96th
    ([float(n) for n in range(1, 102)], 99, 100.0),
]


@pytest.mark.parametrize(("values", "percent", "expected"), PERCENTILES)
def test_percentile_by_hand(values: list[float], percent: float, expected: float) -> None:
    """A percentile lies between its two neighbours by linear interpolation."""
    assert percentile(values, percent) == pytest.approx(expected)


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=300), st.sampled_from([1, 25, 50, 75, 95, 99]))
def test_percentile_equals_the_standard_library(values: list[float], percent: int) -> None:
    """A percentile is what the standard library's inclusive method calls it."""
    ordered = sorted(values)
    expected = statistics.quantiles(ordered, n=100, method="inclusive")[percent - 1]
    assert percentile(ordered, percent) == pytest.approx(expected)


def test_distribution_without_a_sample() -> None:
    """Where there is no sample there is no figure: null, not nought."""
    nothing: dict[str, Any] = {"p50": None, "p95": None, "p99": None, "max": None, "n": 0, "unsupported": []}
    assert distribution([]) == nothing


def test_distribution_takes_values_in_any_order() -> None:
    """Figures come from the values in order, rounded to a tenth of a millisecond."""
    assert distribution([40.0, 10.04, 30.0, 20.0]) == {
        "p50": 25.0,
        "p95": 38.5,
        "p99": 39.7,
        "max": 40.0,
        "n": 4,
        "unsupported": ["p95", "p99"],
    }


NEEDED = [
    # samples, percentiles that are too much for them
    (1, ["p50", "p95", "p99"]),
    (2, ["p95", "p99"]),
    (19, ["p95", "p99"]),
    (20, ["p99"]),
    (99, ["p99"]),
    (100, []),
]


@pytest.mark.parametrize(("count", "unsupported"), NEEDED)
def test_percentiles_too_few_samples_carry(count: int, unsupported: list[str]) -> None:
    """p99 needs 100 samples, p95 needs 20 and p50 needs 2: one of them must lie beyond."""
    figures = distribution(range(count))
    assert figures["unsupported"] == unsupported
    assert all(figures[name] is not None for name in ("p50", "p95", "p99")), "marked, not hidden"


def test_any_percentile_has_its_number_of_samples() -> None:
    """A finer percentile needs more samples by the same rule."""
    assert carries(1000, 99.9)
    assert not carries(999, 99.9)


def _at_least(figures: dict[str, Any]) -> dict[str, str]:
    """Each figure as a report shows it: with its bound, where it is one."""
    names = ("p50", "p95", "p99", "max")
    return {name: f"{'>=' if name in figures['at_least'] else ''}{figures[name]:g}" for name in names}


SECOND = 1000.0
CENSORED = [
    # what it proves; exact; at least; p50, p95, p99, max as they are to be told
    # 100 values: ranks 49.5, 94.05, 98.01; the 90 exact ones, 0.1 to 9 s, are ranks 0 to 89
    (
        "10 % never ready",
        [100.0 * n for n in range(1, 91)],
        [20 * SECOND] * 10,
        "5050 >=20000 >=20000 >=20000",
    ),
    ("the same, all exact ones fast", [SECOND] * 90, [20 * SECOND] * 10, "1000 >=20000 >=20000 >=20000"),
    # 101 values: ranks 50, 95, 100; rank 95 is the last exact one, and a value itself
    ("unknowns just beyond a figure", [float(n) for n in range(96)], [500.0] * 5, "50 95 >=500 >=500"),
    ("one more, and it moves", [float(n) for n in range(95)], [500.0] * 6, "50 >=500 >=500 >=500"),
    # 21 values: rank 10 is the last exact one
    ("half of them unknown", [float(n) for n in range(11)], [99.0] * 10, "10 >=99 >=99 >=99"),
    # an unknown below the others may in truth be above them: 10, 20, 30 is at most 20, 30, endless
    ("a low bound moves all", [20.0, 30.0], [10.0], ">=20 >=29 >=29.8 >=30"),
    # 1, 5, 5, 5 is at most 5, 5, 5, endless: ranks 1.5, 2.85, 2.97
    ("a low bound below equals", [5.0, 5.0, 5.0], [1.0], "5 >=5 >=5 >=5"),
    ("all unknown", [], [10.0, 20.0], ">=15 >=19.5 >=19.9 >=20"),
    ("one unknown", [], [7.0], ">=7 >=7 >=7 >=7"),
    ("none unknown", [10.0, 20.0, 30.0], [], "20 29 29.8 30"),
]


@pytest.mark.parametrize(
    ("exact", "bounds", "told"), [row[1:] for row in CENSORED], ids=[row[0] for row in CENSORED]
)
def test_censored_by_hand(exact: list[float], bounds: list[float], told: str) -> None:
    """Each figure is the lowest that it can be, and says so unless it can be no other."""
    found = censored(exact, bounds)
    assert " ".join(_at_least(found).values()) == told
    assert found["n"] == len(exact) + len(bounds)


def test_censored_without_a_sample() -> None:
    """No sandbox, no figure, and no bound of one."""
    assert censored([], []) == {**distribution([]), "at_least": []}


@given(
    st.lists(st.integers(0, 50), max_size=120),
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 1000)), max_size=120),
)
def test_censored_figures_hold_whatever_the_unknowns_are(
    exact: list[int], unknown: list[tuple[int, int]]
) -> None:
    """The truth is no lower than any figure, is each figure that is not marked, and may exceed the others."""
    found = censored(exact, [bound for bound, _ in unknown])
    truth = sorted([*exact, *(bound + more for bound, more in unknown)])
    worst = sorted([*exact, *(10**9 for _ in unknown)])
    assert found["n"] == len(truth)
    for percent in (50, 95, 99) if truth else ():
        figure, name = found[f"p{percent}"], f"p{percent}"
        assert percentile(truth, percent) >= figure - 0.06
        if name in found["at_least"]:
            assert percentile(worst, percent) > figure
        else:
            assert percentile(truth, percent) == pytest.approx(figure, abs=0.06)
    assert ("max" in found["at_least"]) == bool(unknown)


def _event(kind: EventKind, name: str, **fields: Any) -> dict[str, Any]:
    variant = {"template": "aio-sandbox-tiny", "persist": False, "storage_size": None}
    return {"event": str(kind), "sandbox_id": name, **variant, **fields}


FLOW: dict[str, Any] = {"first_output_ms": 300, "mean_gap_ms": 20, "longest_gap_ms": 25, "flowing_ms": 1000}
FLOW |= {"outputs": 51, "characters": 102, "tokens": None}
LARGE = {"template": "aio-sandbox-large", "persist": True, "storage_size": "5Gi"}
EVENTS = [
    # One life a block. 8 submitted, 5 created: 2 get ready, the others each end another way.
    _event(EventKind.CREATE_SUBMITTED, "a"),
    _event(EventKind.CREATE_OK, "a", latency_ms=10, queue_ms=1),
    _event(EventKind.READY, "a", ready_latency_ms=1000, ready_after_ms=600),
    _event(EventKind.SERVER_TIMES, "a", server_ready_ms=900),
    _event(EventKind.DELETE_OK, "a", latency_ms=5, http_status=None),
    #
    _event(EventKind.CREATE_SUBMITTED, "b", **LARGE),
    _event(EventKind.CREATE_OK, "b", latency_ms=30, queue_ms=3, **LARGE),
    _event(EventKind.READY, "b", ready_latency_ms=3000, ready_after_ms=2500, **LARGE),
    _event(EventKind.SERVER_TIMES, "b", server_ready_ms=None, http_status=500, **LARGE),
    _event(EventKind.DELETE_ERR, "b", http_status=500, error_kind="server_error", **LARGE),
    _event(EventKind.DELETE_ERR, "b", http_status=None, error_kind="connect_error", **LARGE),
    _event(EventKind.DELETE_OK, "b", latency_ms=5, http_status=404, **LARGE),
    #
    _event(EventKind.CREATE_SUBMITTED, "c"),
    _event(EventKind.CREATE_OK, "c", latency_ms=20, queue_ms=2),
    _event(EventKind.FAILED_STATUS, "c", last_status="error", waited_ms=400),
    _event(EventKind.DELETE_ERR, "c", http_status=500, error_kind="server_error"),
    _event(EventKind.DELETE_ERR, "c", http_status=500, error_kind="server_error"),
    #
    _event(EventKind.CREATE_SUBMITTED, "d"),
    _event(EventKind.CREATE_OK, "d", latency_ms=20, queue_ms=2),
    _event(EventKind.POLL_TIMEOUT, "d", last_status="creating", waited_ms=20_000),
    _event(EventKind.DELETE_OK, "d", latency_ms=5, http_status=None),
    _event(EventKind.DELETE_OK, "d", latency_ms=5, http_status=409),
    #
    _event(EventKind.CREATE_SUBMITTED, "e"),
    _event(EventKind.CREATE_OK, "e", latency_ms=20, queue_ms=2),
    _event(EventKind.INTERRUPTED, "e", last_status="creating", waited_ms=100),
    #
    _event(EventKind.CREATE_SUBMITTED, "f"),
    _event(EventKind.CREATE_ERR, "f", http_status=429, error_kind="quota_exceeded", latency_ms=7),
    _event(EventKind.CREATE_SUBMITTED, "g"),
    _event(EventKind.CREATE_ERR, "g", http_status=429, error_kind="quota_exceeded", latency_ms=7),
    _event(EventKind.CREATE_SUBMITTED, "h"),
    _event(EventKind.CREATE_ERR, "h", http_status=None, error_kind="request_timeout", latency_ms=7),
    #
    _event(EventKind.GONE, "d"),
    _event(EventKind.LOST, "i", lost_worker="w1", submitted=False),
    #
    {"event": "poll_err", "http_status": None, "error_kind": "connect_error"},
    {"event": "poll_err", "http_status": 502, "error_kind": "server_error"},
    #
    _event(EventKind.EXEC_OK, "a", latency_ms=50, first_answer_ms=1500, first_answer_after_ms=1200),
    _event(EventKind.EXEC_ERR, "b", http_status=500, error_kind="server_error", **LARGE),
    _event(EventKind.EXEC_ERR, "c", http_status=None, error_kind="interrupted"),
    {"event": "query_ok", "query": "list", "latency_ms": 4},
    {"event": "query_ok", "query": "list", "latency_ms": 6},
    {"event": "query_err", "query": "get", "http_status": 404, "error_kind": "not_found"},
    {"event": "stream_ok", "path": "/a", "ended": "done", "total_ms": 1300, **FLOW},
    {"event": "stream_ok", "path": "/a", "ended": "stopped", "total_ms": 700, **FLOW},
    {"event": "stream_err", "path": "/a", "outputs": 3, "characters": 9, "error_kind": "stream_broken"},
]
SCENARIO = {"ready_timeout_sec": 20, "poll_interval_sec": 2}
RUN = {
    "run_id": "r",
    "scenario": SCENARIO,
    "duration_sec": 12.5,
    "ending": "completed",
    "planned": 8,
    "cleanup": {"ran": True},
}
TIMEOUT_MS = 20_000.0


def test_the_list_of_events_has_every_kind() -> None:
    """The list that these tests count holds every kind of event there is."""
    assert {event["event"] for event in EVENTS} == set(EventKind)


def test_counts() -> None:
    """Each end of a life is counted under its own name, and rates are what they say."""
    found = bucket(EVENTS, timeout_ms=TIMEOUT_MS)
    counts = {name: value for name, value in found.items() if not name.endswith("_ms")}
    assert counts == {
        "submitted": 8,
        "created_ok": 5,
        "created_err": 3,
        "ready": 2,
        "failed_status": 1,
        "poll_timeout": 1,
        "interrupted": 1,
        "lost": 1,
        "deleted_ok": 3,  # a, b and d, which took two calls
        "deleted_err": 1,  # c, which was never removed
        "create_success_rate": 0.625,
        "ready_rate_of_created": 0.4,
        "ready_rate_of_submitted": 0.25,
        "create_errors": {"429": 2, "request_timeout": 1},
        "failed_statuses": {"error": 1},
        "delete_errors": {"500": 3, "connect_error": 1},  # calls, whatever came of them
        "exec_ok": 1,
        "exec_err": 1,  # the one that the end of the run cut off is no failure
        "exec_errors": {"500": 1, "interrupted": 1},
    }


def test_the_first_answer_has_its_bounds() -> None:
    """How far it may be too high: a command is sent again and again until one answers."""
    found = bucket(EVENTS, timeout_ms=TIMEOUT_MS)
    assert (found["first_answer_ms"]["n"], found["first_answer_ms"]["p50"]) == (1, 1500)
    assert (found["exec_latency_ms"]["p50"], found["first_answer_uncertainty_ms"]["p50"]) == (50, 300)


def test_queries_are_counted_by_what_was_asked() -> None:
    """A failure counts as asked, and has no latency."""
    found = queries(EVENTS)
    assert list(found) == ["get", "list"]
    assert (found["list"]["asked"], found["list"]["failed"], found["list"]["latency_ms"]["p50"]) == (2, 0, 5)
    assert (found["get"]["asked"], found["get"]["failed"], found["get"]["errors"]) == (1, 1, {"404": 1})
    assert found["get"]["latency_ms"]["n"] == 0


def test_streams_are_told_by_how_they_flow() -> None:
    """All outputs count; the length of a stream is told of those alone that came to their own end."""
    (found,) = streams(EVENTS).values()
    assert (found["asked"], found["failed"], found["errors"]) == (3, 1, {"stream_broken": 1})
    assert (found["outputs"], found["characters"], found["tokens"]) == (105, 213, None), (
        "nobody counted tokens"
    )
    assert found["endings"] == {"done": 1, "stopped": 1}
    assert (found["first_output_ms"]["n"], found["mean_gap_ms"]["p50"]) == (2, 20)
    assert (found["total_ms"]["n"], found["total_ms"]["p50"]) == (1, 1300)
    # 50 outputs after the first one in a second; with each of them come two characters
    assert (found["outputs_per_sec"]["p50"], found["characters_per_sec"]["p50"]) == (50, 100)
    assert found["tokens_per_sec"]["n"] == 0


def test_accounts_are_told_apart() -> None:
    """Where a run has many, each is told; the one of the environment is not."""
    told = [event | {"account": "x@example.com"} for event in EVENTS if event.get("sandbox_id") == "f"]
    assert by_account(EVENTS) == {}
    assert by_account([*EVENTS, *told]) == {
        "x@example.com": {"submitted": 1, "created_ok": 0, "ready": 0, "create_errors": {"429": 1}}
    }


def test_latencies_are_of_what_succeeded() -> None:
    """Latencies come from the creates that were answered and the sandboxes that got ready."""
    found = bucket(EVENTS, timeout_ms=TIMEOUT_MS)
    assert [found["create_latency_ms"][key] for key in ("n", "p50", "max")] == [5, 20, 30]
    assert [found["queue_ms"][key] for key in ("n", "p50", "max")] == [5, 2, 3]
    assert [found["ready_latency_ms"][key] for key in ("n", "p50", "max")] == [2, 2000, 3000]
    assert [found["ready_uncertainty_ms"][key] for key in ("n", "p50", "max")] == [2, 450, 500]


def test_the_servers_own_time_is_of_those_that_told_it() -> None:
    """Where the server could not be asked there is no figure, and none is made up."""
    found = bucket(EVENTS, timeout_ms=TIMEOUT_MS)["server_ready_ms"]
    assert [found[key] for key in ("n", "p50", "max")] == [1, 900, 900]


def test_time_to_ready_is_of_all_that_were_created() -> None:
    """Failed and late ones took at least the timeout, an interrupted one as long as it was waited for."""
    found = bucket(EVENTS, timeout_ms=TIMEOUT_MS)["time_to_ready_ms"]
    # lowest: e 100, a 1000, b 3000, c and d 20000; ranks 2, 3.8, 3.96
    assert found["n"] == 5
    assert _at_least(found) == {"p50": ">=3000", "p95": ">=20000", "p99": ">=20000", "max": ">=20000"}


def test_a_created_sandbox_of_a_lost_worker_may_have_taken_any_time() -> None:
    """Nobody saw it get ready or fail: at least 0, so no percentile above it is exact."""
    lives = [_event(EventKind.CREATE_OK, name, latency_ms=1, queue_ms=0) for name in ("a", "b")]
    ends = [
        _event(EventKind.READY, "a", ready_latency_ms=1000, ready_after_ms=500),
        _event(EventKind.LOST, "b", lost_worker="w1", submitted=True),
    ]
    found = bucket([*lives, *ends], timeout_ms=TIMEOUT_MS)["time_to_ready_ms"]
    assert (found["n"], found["max"]) == (2, 1000)
    assert found["at_least"] == ["p50", "p95", "p99", "max"]


def test_time_to_ready_is_exact_where_all_got_ready() -> None:
    """Without a failure it is the latency to ready."""
    found = bucket(
        [event for event in EVENTS if event.get("sandbox_id") in ("a", "b")], timeout_ms=TIMEOUT_MS
    )
    assert found["time_to_ready_ms"] == {**found["ready_latency_ms"], "at_least": []}


def test_one_in_ten_never_ready() -> None:
    """With a timeout of 20 s the p95 says at least 20 s, while the p50 stays exact."""
    ready = [_event(EventKind.READY, f"r{n}", ready_latency_ms=1000.0 + n) for n in range(270)]
    late = [_event(EventKind.POLL_TIMEOUT, f"t{n}", waited_ms=20_007.0) for n in range(30)]
    found = bucket([*ready, *late], timeout_ms=TIMEOUT_MS)["time_to_ready_ms"]
    assert _at_least(found) == {"p50": "1149.5", "p95": ">=20000", "p99": ">=20000", "max": ">=20000"}


# fmt: off
BURSTS: list[tuple[str, list[float | None], float | None, float | None]] = [
    # what it proves,                  t_ms of the creates,          spread in s, creates a second
    ("three in two seconds",           [500.0, 1500.0, 2500.0],      2.0,         1.0),
    ("in whatever order they come",    [2500.0, 500.0, 1500.0],      2.0,         1.0),
    ("all in one instant",             [500.0, 500.0],               0.0,         None),
    ("a single one",                   [500.0],                      None,        None),
    ("none",                           [],                           None,        None),
    ("events of old, without a clock", [None, None],                 None,        None),
]
# fmt: on


@pytest.mark.parametrize(
    ("times", "spread", "rate"), [row[1:] for row in BURSTS], ids=[row[0] for row in BURSTS]
)
def test_the_spread_of_a_burst(times: list[float | None], spread: float | None, rate: float | None) -> None:
    """From the first create sent to the last, by the log's own clock; what came later counts for nothing."""
    events = [
        _event(EventKind.CREATE_SUBMITTED, str(n), **({} if time is None else {"t_ms": time}))
        for n, time in enumerate(times)
    ]
    events += [_event(EventKind.CREATE_OK, "0", t_ms=99_999.0), _event(EventKind.READY, "0", t_ms=0.0)]
    assert burst(events) == {"burst_spread_sec": spread, "creates_per_sec": rate}


def test_the_verdict_comes_from_what_the_client_saw_of_itself() -> None:
    """run.json holds what the client saw, the summary the burst beside it and the judgement on both."""
    sent = [_event(EventKind.CREATE_SUBMITTED, name, t_ms=t) for name, t in (("a", 0.0), ("b", 1000.0))]
    answered = [_event(EventKind.CREATE_OK, name, latency_ms=900.0, queue_ms=0.0) for name in "ab"]
    seen = {"loop_lag_ms": {"max": 1.0}, "cli_startup_ms": 9, "cores": 2}
    calm = summarize([*sent, *answered], {**RUN, "client": seen})
    assert calm["client"] == {
        **seen,
        "cli_startup_share": 0.01,
        "poll_interval_ms": 2000,
        "burst_spread_sec": 1.0,
        "creates_per_sec": 1.0,
    }
    assert calm["verdict"] == {"status": SERVER_MEASURED, "reasons": []}
    client = {
        "loop_lag_ms": {},
        "cli_startup_ms": 800,
        "start_blocked_sec": 0.9,
        "poll_period_ms": {"p50": 3000.0},
    }
    busy = summarize([*sent, *answered], {**RUN, "client": client})["verdict"]
    assert busy["status"] == CLIENT_SATURATED
    assert [reason["code"] for reason in busy["reasons"]] == ["cli_startup", "cli_places", "late_polls"]


def test_a_run_of_which_the_client_saw_nothing() -> None:
    """Without the client's own figures, as after a crash, neither side is blamed."""
    summary = summarize(EVENTS, RUN)
    assert summary["verdict"] == {"status": "not_judged", "reasons": []}
    assert summary["client"] == {
        "poll_interval_ms": 2000,
        "burst_spread_sec": None,
        "creates_per_sec": None,
        "cli_startup_share": None,
    }


def test_a_killed_run_knows_nothing_of_those_without_an_end() -> None:
    """A sandbox that was created and has no end counts, as taking anything from 0 on."""
    created = [_event(EventKind.CREATE_OK, name, latency_ms=1.0, queue_ms=0.0) for name in "abc"]
    ready = _event(EventKind.READY, "a", ready_latency_ms=500.0, ready_after_ms=0.0)
    time_to_ready = bucket([*created, ready], timeout_ms=TIMEOUT_MS)["time_to_ready_ms"]
    assert time_to_ready["n"] == 3
    assert time_to_ready["at_least"] == ["p50", "p95", "p99", "max"]


def test_a_sandbox_that_went_at_the_second_try_is_no_failure() -> None:
    """`deleted_err` tells of a sandbox that was never removed, `delete_errors` of calls that failed."""
    of_b = bucket([event for event in EVENTS if event.get("sandbox_id") == "b"], timeout_ms=TIMEOUT_MS)
    assert (of_b["deleted_ok"], of_b["deleted_err"]) == (1, 0)
    assert of_b["delete_errors"] == {"500": 1, "connect_error": 1}
    of_c = bucket([event for event in EVENTS if event.get("sandbox_id") == "c"], timeout_ms=TIMEOUT_MS)
    assert (of_c["deleted_ok"], of_c["deleted_err"]) == (0, 1)
    assert of_c["delete_errors"] == {"500": 2}


def test_a_bucket_of_nothing() -> None:
    """Without an event there is no rate: null, not nought and not a division by it."""
    found = bucket([], timeout_ms=TIMEOUT_MS)
    assert [found[rate] for rate in found if "rate" in rate and rate != "create_errors"] == [None] * 3


def test_a_failed_poll_belongs_to_no_template() -> None:
    """Failed polls are counted once for the run, by status or kind, and in no template's bucket."""
    summary = summarize(EVENTS, RUN)
    assert summary["polls_failed"] == {"502": 1, "connect_error": 1}
    assert set(summary["by_template"]) == {"aio-sandbox-tiny", "aio-sandbox-large"}
    assert set(summary["by_persist"]) == {"true", "false"}


def test_groups_add_up_to_the_whole() -> None:
    """Every sandbox is in one bucket of each grouping, its deletes too."""
    summary = summarize(EVENTS, RUN)
    for grouping in ("by_template", "by_persist"):
        for name in ("submitted", "created_ok", "created_err", "ready", "deleted_ok", "deleted_err"):
            of_groups = sum(group[name] for group in summary[grouping].values())
            assert of_groups == summary["overall"][name], (grouping, name)
    large = summary["by_template"]["aio-sandbox-large"]
    assert (large["submitted"], large["ready"], large["deleted_ok"]) == (1, 1, 1)
    assert large == summary["by_persist"]["true"]


def test_what_the_run_says_is_passed_on() -> None:
    """Duration, ending, plan and clean-up come from run.json, null where it does not say."""
    keys = {
        "run_id": "run_id",
        "total_duration_sec": "duration_sec",
        "ending": "ending",
        "planned": "planned",
        "cleanup": "cleanup",
    }
    full, bare = summarize(EVENTS, RUN), summarize([], {"run_id": "r", "scenario": SCENARIO})
    assert {key: full[key] for key in keys} == {key: RUN[name] for key, name in keys.items()}
    assert {key: bare[key] for key in keys} == {**dict.fromkeys(keys), "run_id": "r"}


@given(st.permutations(EVENTS))
def test_the_order_of_events_does_not_matter(events: list[dict[str, Any]]) -> None:
    """Events of several logs may come in any order."""
    assert summarize(events, RUN) == summarize(EVENTS, RUN)


def test_a_recorded_run_of_the_harness_that_ships_today() -> None:
    """Fed the events of that harness, all of its overall keys come out with the same figures."""
    recorded = json.loads((HARNESS / "summary.json").read_text(encoding="utf-8"))
    run = json.loads((HARNESS / "run.json").read_text(encoding="utf-8"))
    summary = summarize(read_events(HARNESS / "events.jsonl"), run)
    found = summary["overall"]
    latencies = ("create_latency_ms", "ready_latency_ms")
    assert found["time_to_ready_ms"]["at_least"] == [], "all of its sandboxes got ready"
    for key, value in recorded["overall"].items():
        if key in latencies:
            assert {name: found[key][name] for name in value} == value, key
            assert found[key]["n"] == 60
        else:
            assert found[key] == value, key
    assert summary["run_id"] == recorded["run_id"]
    tiny, theirs = summary["by_template"]["aio-sandbox-tiny"], recorded["by_template"]["aio-sandbox-tiny"]
    assert {key: tiny[key] for key in theirs if key not in latencies} == {
        key: value for key, value in theirs.items() if key not in latencies
    }
    assert list(summary["by_template"]) == ["aio-sandbox-tiny"], "no template of the name unknown"


def test_tokens_are_of_the_streams_that_told_them() -> None:
    """None told is no zero, neither in the figures nor in the table."""
    told = [*EVENTS, {"event": "stream_ok", "path": "/a", "ended": "done", "tokens": 7}]
    assert streams(told)["/a"]["tokens"] == 7
    (line,) = [line for line in render_summary(summarize(EVENTS, RUN)).splitlines() if "213" in line]
    assert line.split() == ["/a", "3", "1", "105", "213", "-"]
    assert "asked" in render_summary(summarize(EVENTS, RUN))
