"""The verdict blames the client where its own figures explain a latency, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from treadstone_user.verdict import CLIENT_SATURATED, NOT_JUDGED, SERVER_MEASURED, judge_client, pool_clients

Seen = dict[str, Any]


def _cli(startup_ms: float) -> Seen:
    return {"cli_startup_ms": startup_ms}


def _blocked(sec: float, spread: float | None) -> Seen:
    return {"start_blocked_sec": sec, "burst_spread_sec": spread, "creates_per_sec": 2.0}


def _lag(p99: float | None, most: float | None, *, stalled: float = 0.0) -> Seen:
    return {"loop_lag_ms": {"p99": p99, "max": most}, "stalled_share": stalled}


def _cpu(own: float, all_cores: float) -> Seen:
    return {"cpu_of_one_core": own, "cpu_of_all_cores": all_cores}


def _polls(every: float | None, wanted: float | None = 1000.0) -> Seen:
    return {"poll_period_ms": {"p50": every}, "poll_interval_ms": wanted}


OVER_HTTP: Seen = {"cli_startup_ms": None, "start_blocked_sec": None, "burst_spread_sec": 2.0}
QUIET = {**OVER_HTTP, **_polls(1001.0), **_lag(2.0, 30.0), **_cpu(0.3, 0.15)}
EVERYTHING = {
    **_cli(800),
    **_blocked(9.0, 10.0),
    **_polls(2500.0),
    **_lag(50.0, 300.0, stalled=0.01),
    **_cpu(0.95, 1.0),
}
EVERYTHING["warm_cli_lost"] = True

ALL = ["warm_cli_lost", "cli_startup", "cli_places", "late_polls", "event_loop", "cpu"]

# fmt: off
JUDGED: list[tuple[str, float | None, Seen, list[str]]] = [
    # what it proves,                         create p50, what the client saw,      reasons
    ("calm, and no create",                         None, _lag(1.0, 2.0),           []),
    ("a warm CLI that was lost",                    10.0, {"warm_cli_lost": True},  ["warm_cli_lost"]),
    ("a warm CLI that stayed warm",                 10.0, {"warm_cli_lost": False}, []),
    ("all quiet, over http",                        10.0, QUIET,                    []),
    # The CLI's start-up: a third of the create's p50.
    ("a start-up below a third",                  1000.0, _cli(333),                []),
    ("a start-up above a third",                  1000.0, _cli(334),                ["cli_startup"]),
    ("a start-up of just a third",                 900.0, _cli(300),                ["cli_startup"]),
    ("a start-up and no create",                    None, _cli(800),                []),
    ("a warm start-up too short to be seen",        10.0, _cli(0),                  []),
    # Waiting for a place to start: a quarter of the burst.
    ("blocked for less than a quarter",             10.0, _blocked(0.99, 4.0),      []),
    ("blocked for more than a quarter",             10.0, _blocked(1.01, 4.0),      ["cli_places"]),
    ("blocked for just a quarter",                  10.0, _blocked(1.0, 4.0),       ["cli_places"]),
    ("blocked, and a single create",                10.0, _blocked(9.0, None),      []),
    ("blocked, and all creates in an instant",      10.0, _blocked(9.0, 0.0),       []),
    ("never blocked",                               10.0, _blocked(0.0, 4.0),       []),
    # Polls: one and a half times the interval.
    ("polls a little late",                         10.0, _polls(1499.0),           []),
    ("polls too late",                              10.0, _polls(1500.0),           ["late_polls"]),
    ("late polls of a longer interval",             10.0, _polls(14_000, 10_000),   []),
    ("a single poll has no period",                 10.0, _polls(None),             []),
    ("polls of which nothing was wanted",           10.0, _polls(1500.0, None),     []),
    # The event loop: one long stall, stalls of a thousandth of the time, or a p99 of 20 ms.
    ("a hiccup in a long run",                      10.0, _lag(1.0, 149.0, stalled=0.0009), []),
    ("hiccups in a short one",                      10.0, _lag(1.0, 149.0, stalled=0.001), ["event_loop"]),
    ("a stall on purpose in a run of an hour",      10.0, _lag(1.0, 180.0, stalled=0.00005), ["event_loop"]),
    ("a lag below the limit",                       10.0, _lag(19.9, 30.0),         []),
    ("a lag at the limit",                          10.0, _lag(20.0, 30.0),         ["event_loop"]),
    ("a loop that was not sampled",                 10.0, _lag(None, None),         []),
    # CPU: nine tenths of a core by itself, or of all cores with its calls.
    ("a core almost full",                          10.0, _cpu(0.899, 0.45),        []),
    ("a core full",                                 10.0, _cpu(0.9, 0.45),          ["cpu"]),
    ("all cores almost full",                       10.0, _cpu(0.1, 0.899),         []),
    ("all cores full",                              10.0, _cpu(0.1, 0.9),           ["cpu"]),
    ("a core full, nothing known of the others",    10.0, {"cpu_of_one_core": 1.0}, ["cpu"]),
    ("all cores full, nothing known of its own",    10.0, {"cpu_of_all_cores": 1},  ["cpu"]),
    ("everything at once", 1000.0, EVERYTHING, ALL),
]
# fmt: on


def _judge(create_p50: float | None, client: Seen) -> dict[str, Any]:
    return judge_client({"create_latency_ms": {"p50": create_p50}}, {"loop_lag_ms": {}, **client}, {})


def test_a_client_that_saw_nothing_of_itself_is_not_judged() -> None:
    """A run that was killed before it could tell has no verdict, neither way."""
    client = {"burst_spread_sec": 2.0, "creates_per_sec": 5.0}
    verdict = judge_client({"create_latency_ms": {"p50": 1000.0}}, client, {})
    assert verdict == {"status": NOT_JUDGED, "reasons": []}


@pytest.mark.parametrize(
    ("create_p50", "client", "codes"), [row[1:] for row in JUDGED], ids=[row[0] for row in JUDGED]
)
def test_who_was_measured(create_p50: float | None, client: Seen, codes: list[str]) -> None:
    """Each reason stands alone at its limit; without one, the server was measured."""
    verdict = _judge(create_p50, client)
    assert [reason["code"] for reason in verdict["reasons"]] == codes
    assert verdict["status"] == (CLIENT_SATURATED if codes else SERVER_MEASURED)


# fmt: off
TOLD: list[tuple[str, list[str], str, str]] = [
    # reason, the figures that it explains, the sentence, the remedy
    ("warm_cli_lost", ["create_latency_ms", "queue_ms"],
     "the warm CLI was lost on the way: some calls skip the CLI's start-up and others do not", "again"),
    ("cli_startup", ["create_latency_ms"],
     "80% of the p50 (1000 ms) is the CLI's start (800 ms)", "--transport http"),
    ("cli_places", ["create_latency_ms", "queue_ms", "burst_spread_sec"],
     "creates went out at 2.0 a second, as fast as this machine starts the CLI", "--transport http"),
    ("late_polls", ["ready_latency_ms"],
     "polls began 2.5 s apart (p50) where 1 s was wanted", "a longer poll_interval_sec"),
    ("event_loop", ["create_latency_ms", "ready_latency_ms"],
     "the client's event loop stood still for up to 300 ms (p99 50 ms)", "more workers"),
    ("cpu", ["create_latency_ms", "ready_latency_ms", "burst_spread_sec"],
     "Locust used 95% of one core, and with its CLI calls 100% of all cores", "fewer at once"),
]
# fmt: on


@pytest.mark.parametrize(("code", "figures", "text", "remedy"), TOLD, ids=[row[0] for row in TOLD])
def test_a_reason_says_what_it_explains_and_what_helps(
    code: str, figures: list[str], text: str, remedy: str
) -> None:
    """Each reason names its figures, tells the numbers in a sentence, and comes with a remedy."""
    reasons = {reason["code"]: reason for reason in _judge(1000.0, EVERYTHING)["reasons"]}
    assert (reasons[code]["figures"], reasons[code]["text"]) == (figures, text)
    assert remedy in reasons[code]["remedy"]


def test_a_start_up_explains_no_more_than_all() -> None:
    """Measured in preflight, it may be longer than the creates were: it is then all of them."""
    (reason,) = _judge(500.0, _cli(600))["reasons"]
    assert reason["text"] == "100% of the p50 (500 ms) is the CLI's start (600 ms)"


def test_queries_by_the_cli_are_judged_by_the_same_share() -> None:
    """Those alone of which it is a third of the p50, and never the one that goes past the CLI."""
    medians = {"get": 333.0, "list": 400.0, "templates": 1000.0, "usage": 5.0, "whoami": None}
    asked = {query: {"latency_ms": {"p50": median}} for query, median in medians.items()}
    seen = {"loop_lag_ms": {}, **_cli(300)}
    verdict = judge_client({"create_latency_ms": {"p50": None}}, seen, asked)
    assert verdict["status"] == CLIENT_SATURATED
    (reason,) = verdict["reasons"]
    assert reason["code"] == "cli_startup"
    assert reason["figures"] == ["queries.get.latency_ms", "queries.list.latency_ms"]
    assert reason["text"] == "75% or more of each p50 is the CLI's start (300 ms)"
    over_http = {"loop_lag_ms": {}, **OVER_HTTP}
    assert judge_client({"create_latency_ms": {"p50": None}}, over_http, asked)["reasons"] == []


def _worker(lag_max: float, cpu: float, *, period: float | None, lost: bool = False) -> Seen:
    return {
        "loop_lag_ms": {"p50": 1.0, "p95": 1.0, "p99": 2.0, "max": lag_max, "n": 100, "unsupported": []},
        "poll_period_ms": {
            "p50": period,
            "p95": None,
            "p99": None,
            "max": period,
            "n": 9,
            "unsupported": ["p99"],
        },
        "stalled_share": 0.0,
        "cores": 4,
        "cpu_sec": cpu * 10,
        "cpu_cli_sec": 1.0,
        "cpu_of_one_core": cpu,
        "cpu_of_all_cores": cpu / 4,
        "cli_startup_ms": None,
        "warm_cli_lost": lost,
        "start_blocked_sec": None,
    }


def test_of_several_workers_the_worst_figure_counts() -> None:
    """Each figure is the worst of all; CPU of one machine adds up; each worker's own figures stand beside."""
    first, second = _worker(10.0, 0.5, period=1000.0), _worker(300.0, 0.4, period=None, lost=True)
    third = _worker(20.0, 0.7, period=1200.0)
    pooled = pool_clients([("w1", "a", first), ("w2", "a", second), ("w3", "b", third)])
    assert pooled["loop_lag_ms"]["max"] == 300.0
    assert pooled["poll_period_ms"]["p50"] == 1200.0
    assert pooled["poll_period_ms"]["unsupported"] == ["p99"]
    assert pooled["cpu_of_one_core"] == 0.7
    assert pooled["cpu_of_all_cores"] == pytest.approx(0.225)
    assert pooled["cpu_sec"] == pytest.approx(16.0)
    assert pooled["cores"] == 8
    assert pooled["warm_cli_lost"] is True
    assert pooled["cli_startup_ms"] is None
    assert pooled["workers"] == {"w1": first, "w2": second, "w3": third}
    assert {
        reason["code"] for reason in judge_client({"create_latency_ms": {"p50": 10.0}}, pooled, {})["reasons"]
    } == {
        "event_loop",
        "warm_cli_lost",
    }


def test_without_a_worker_that_told_anything_nothing_is_judged() -> None:
    """All of them were killed."""
    assert pool_clients([]) == {}
