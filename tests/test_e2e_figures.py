"""Figures that hold: each is compared with what the server's own log says was true."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runs import ROOT, Result, finished, scenario_file, seconds
from treadstone_user.figures import percentile

HTTP = ("--transport", "http", "--local", "--local-profile")


def truths_ms(result: Result) -> dict[str, float]:
    """From created to ready by the server's log, by sandbox."""
    return {
        line["id"]: (seconds(line["ready"]) - seconds(line["created"])) * 1000
        for line in result.truth
        if line["ready"]
    }


def test_server_times_are_the_truth(tmp_path: Path) -> None:
    """The server's own percentiles are the truth log's; each truth lies within its two bounds."""
    scenario = scenario_file(tmp_path, 150, concurrency=20, poll_interval_sec=1)
    code, run = finished(tmp_path, "--scenario", scenario, *HTTP, "ready=lognormal(3,0.5) seed=3")
    assert code == 0, run.output
    result = run.only
    truth = sorted(truths_ms(result).values())
    figures = result.overall["server_ready_ms"]
    assert figures["n"] == len(truth) == 150
    for name, percent in (("p50", 50), ("p95", 95), ("p99", 99)):
        assert figures[name] == pytest.approx(percentile(truth, percent), abs=20)
    sent = {event["task"]: seconds(event["ts"]) for event in result.events("create_submitted")}
    ready_at = {line["id"]: seconds(line["ready"]) for line in result.truth}
    within = 0
    for event in result.events("ready"):
        since_sent = (ready_at[event["sandbox_id"]] - sent[event["task"]]) * 1000
        within += event["ready_after_ms"] - 5 <= since_sent <= event["ready_latency_ms"] + 5
    assert within == 150
    assert result.overall["ready_uncertainty_ms"]["p50"] < 1500


def test_no_sandbox_waits_behind_others(tmp_path: Path) -> None:
    """A few that take long do not delay the figures of the many that do not."""
    scenario = scenario_file(tmp_path, 100, concurrency=20, poll_interval_sec=0.5)
    code, run = finished(tmp_path, "--scenario", scenario, *HTTP, "ready=mix(0.05,12,1) seed=2")
    assert code == 0, run.output
    slow = sum(truth > 10_000 for truth in truths_ms(run.only).values())
    assert 1 <= slow <= 15, "the profile was meant to have a few slow ones"
    assert run.only.overall["ready_latency_ms"]["p50"] <= 1000 + 500 + 200
    assert run.only.overall["ready_latency_ms"]["max"] >= 12_000


def test_timeouts_stay_in_the_distribution(tmp_path: Path) -> None:
    """With 10 % never ready, the p95 of the time to ready says "at least the timeout"."""
    scenario = scenario_file(tmp_path, 60, concurrency=20, ready_timeout_sec=5)
    code, run = finished(tmp_path, "--scenario", scenario, *HTTP, "ready=fixed(1) never=12%")
    assert code == 1, run.output
    overall = run.only.overall
    assert overall["poll_timeout"] >= 4
    time_to_ready = overall["time_to_ready_ms"]
    assert time_to_ready["n"] == 60
    assert time_to_ready["p95"] >= 5000
    assert "p95" in time_to_ready["at_least"]
    assert "p50" not in time_to_ready["at_least"]
    assert overall["ready_latency_ms"]["p95"] < 5000
    assert set(run.only.summary["by_template"]) == {"aio-sandbox-tiny"}
    assert "≥ 5.00 s" in run.output


def test_server_clock_ahead_changes_no_duration(tmp_path: Path) -> None:
    """A server whose clock is 37 s ahead: no figure moves by anything like that."""
    scenario = scenario_file(tmp_path, 5)
    code, run = finished(tmp_path, "--scenario", scenario, *HTTP, "ready=fixed(1) clock=+37")
    assert code == 0, run.output
    overall = run.only.overall
    assert overall["server_ready_ms"]["max"] == pytest.approx(1000, abs=5)
    assert overall["ready_latency_ms"]["max"] < 5000
    times = run.only.events("server_times")[0]
    assert seconds(times["created_at"]) - seconds(times["ts"]) > 30, "the clock was meant to be ahead"


def test_cold_cli_is_named_as_what_was_measured(tmp_path: Path) -> None:
    """By cold CLI at ten at once, the verdict leads the report and names the CLI and the remedy."""
    scenario = scenario_file(tmp_path, 12, concurrency=10)
    code, run = finished(
        tmp_path, "--scenario", scenario, "--local", "--local-profile", "ready=fixed(0.5)", "--no-warm-cli"
    )
    assert code == 0, run.output
    verdict = run.only.summary["verdict"]
    assert verdict["status"] == "client_saturated"
    reasons = {reason["code"]: reason for reason in verdict["reasons"]}
    assert reasons["cli_startup"]["figures"] == ["create_latency_ms"]
    assert "--transport http" in reasons["cli_startup"]["remedy"]
    assert run.output.index("verdict: client_saturated") < run.output.index("Sandboxes\n")
    client = run.only.summary["client"]
    assert client["cli_startup_ms"] > 50
    assert client["cpu_cli_sec"] > 12 * 0.1
    times = run.only.events("server_times")
    assert len(times) == 12, "asked once the burst is over, before the first delete"
    assert max(event["seq"] for event in times) < run.only.events("delete_ok")[0]["seq"]


STALLED = """
import time
import gevent
from locust import events
from treadstone_user import plugin
from treadstone_user.user import SandboxUser

plugin.register(events)

def busy():
    end = time.monotonic() + 0.2
    while time.monotonic() < end:
        pass

@events.test_start.add_listener
def stall(environment, **_):
    gevent.spawn_later(1.5, busy)

class TreadstoneUser(SandboxUser):
    pass
"""


def test_stalled_client_is_blamed_on_the_client(tmp_path: Path) -> None:
    """An event loop that stands still for 200 ms is told as the client's."""
    locustfile = tmp_path / "locustfile.py"
    locustfile.write_text(STALLED)
    scenario = scenario_file(tmp_path, 5)
    code, run = finished(
        tmp_path,
        "-f",
        str(locustfile),
        "--scenario",
        scenario,
        *HTTP,
        "ready=fixed(3)",
        environment={"PYTHONPATH": str(ROOT)},
    )
    assert code == 0, run.output
    assert run.only.summary["client"]["loop_lag_ms"]["max"] >= 150
    codes = [reason["code"] for reason in run.only.summary["verdict"]["reasons"]]
    assert "event_loop" in codes
    assert "event loop stood still" in run.output


def test_thousand_over_http(tmp_path: Path) -> None:
    """A thousand sandboxes over two pages of the list: every event is there, and none is left."""
    scenario = scenario_file(tmp_path, 1200, concurrency=30, poll_interval_sec=0.5)
    code, run = finished(
        tmp_path,
        "--scenario",
        scenario,
        "-u",
        "1200",
        "-r",
        "1200",
        *HTTP,
        "ready=uniform(0.5,1.5) gone=fixed(0.2)",
    )
    assert code == 0, run.output
    result = run.only
    counts = {key: result.overall[key] for key in ("submitted", "created_ok", "ready", "deleted_ok")}
    assert counts == dict.fromkeys(counts, 1200)
    assert len(result.events()) == 1200 * 6
    assert all(line["gone"] for line in result.truth)
    assert len(result.truth) == 1200
