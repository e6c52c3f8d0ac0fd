"""Every ending: whatever stops a run, its sandboxes are gone, and it says what happened."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import requests as http

from tests.runs import ROOT, Run, json_lines, scenario_file
from tests.servers import API_KEY, LocalServer

SIGNALS = [pytest.param(signal.SIGINT, id="ctrl-c"), pytest.param(signal.SIGTERM, id="sigterm")]


def start(folder: Path, count: int, profile: str, *more: str, **scenario: object) -> Run:
    """Start a run with a local server."""
    file = scenario_file(folder, count, **scenario)
    arguments = ["--headless", "--only-summary", "--scenario", file, "--local", "--local-profile", profile]
    return Run(folder, *arguments, *more)


def assert_nothing_left(run: Run) -> None:
    """The server's log and the summary agree: every sandbox that was made is gone."""
    result = run.only
    assert all(line["gone"] for line in result.truth), run.output
    assert result.summary["cleanup"]["verified"]
    assert result.overall["deleted_ok"] == len(result.truth) == result.overall["created_ok"]
    submitted = {event["task"] for event in result.events("create_submitted")}
    ends = [
        event["task"]
        for event in result.events("create_err", "ready", "failed_status", "poll_timeout", "interrupted")
    ]
    assert sorted(ends) == sorted(submitted), "each submitted task has one end"
    assert "Traceback" not in run.output


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_in_preflight_leaves_nothing_at_all(tmp_path: Path, number: signal.Signals) -> None:
    """Nothing was created, no folder is left, and the exit code is not 0."""
    with start(tmp_path, 5, "ready=fixed(1)") as run:
        run.until_said("local server at")
        run.send(number)
        assert run.wait() == 4
    assert run.all == []
    assert "interrupted before anything was created" in run.output
    assert "Traceback" not in run.output


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_during_the_creates(tmp_path: Path, number: signal.Signals) -> None:
    """Creates in flight end by themselves, no further one is sent, and all are removed."""
    with start(tmp_path, 40, "ready=fixed(30) gone=fixed(0.2)") as run:
        run.until_event("create_ok", 3)
        run.send(number)
        assert run.wait() == 4, run.output
    assert_nothing_left(run)
    assert 3 <= run.only.overall["submitted"] < 40
    assert run.only.summary["ending"] == "interrupted"


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_during_the_wait(tmp_path: Path, number: signal.Signals) -> None:
    """Outstanding waits are told as interrupted, and are no failures of the server."""
    with start(tmp_path, 4, "ready=fixed(60) gone=fixed(0.2)") as run:
        run.until_event("create_ok", 4)
        run.send(number)
        assert run.wait() == 4, run.output
    assert_nothing_left(run)
    assert run.only.overall["interrupted"] == 4
    assert run.only.overall["failed_status"] == run.only.overall["poll_timeout"] == 0


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_during_the_clean_up(tmp_path: Path, number: signal.Signals) -> None:
    """The first is told what would be left, and the clean-up goes on to its end."""
    with start(tmp_path, 4, "ready=fixed(0.3) gone=fixed(2)") as run:
        run.until_event("delete_ok")
        run.send(number)
        run.until_said("once more ends it now and leaves")
        assert run.wait() == 4, run.output
    assert_nothing_left(run)
    assert run.only.overall["ready"] == 4


@pytest.mark.parametrize("number", SIGNALS)
def test_third_signal_ends_the_run_with_its_ledger_on_disk(tmp_path: Path, number: signal.Signals) -> None:
    """Once starts the finish, twice tells what would be left, three times ends it and names the remedy."""
    with start(tmp_path, 4, "ready=fixed(60) gone=fixed(60)") as run:
        run.until_event("create_ok", 4)
        run.send(number)
        run.until_event("delete_ok", 4)
        run.send(number)
        run.until_said("once more ends it now and leaves")
        run.send(number)
        assert run.wait(timeout=20) == 5, run.output
    result = run.only
    assert "ended by force, with 4 sandboxes not seen gone" in run.output
    assert "they end with the run's own local server" in run.output
    assert len(result.events("create_ok")) == 4
    assert "Traceback" not in run.output


def test_run_time_that_is_too_short_makes_the_run_incomplete(tmp_path: Path) -> None:
    """`-t` before every sandbox has its result: all are removed, and the exit code says it."""
    with start(tmp_path, 4, "ready=fixed(60) gone=fixed(0.2)", "-t", "4s") as run:
        assert run.wait() == 4, run.output
    assert_nothing_left(run)
    assert run.only.summary["ending"] == "stopped"


def test_interrupt_leaves_the_sandboxes_where_the_scenario_wants_that(tmp_path: Path) -> None:
    """`cleanup.on_failure: false` keeps them after an interrupt, and says how to remove them."""
    with start(tmp_path, 2, "ready=fixed(60)", cleanup={"on_failure": False}) as run:
        run.until_event("create_ok", 2)
        run.send(signal.SIGINT)
        assert run.wait() == 4, run.output
    assert run.only.summary["cleanup"]["ran"] is False
    assert [line["delete_requested"] for line in run.only.truth] == [None, None]
    assert "the run's sandboxes stay" in run.output


def test_local_server_ends_when_the_run_is_killed(tmp_path: Path) -> None:
    """SIGKILL: the events tell what was made, and the local server ends by itself, its truth log written."""
    with start(tmp_path, 3, "ready=fixed(60)") as run:
        run.until_event("create_ok", 3)
        run.send(signal.SIGKILL)
        run.wait()
        truth = run.only.path / "truth.jsonl"
        for _ in range(100):
            if truth.read_text().count("\n") == 3:
                break
            signal.sigtimedwait([], 0.1)
    assert {line["id"] for line in run.only.truth} == {e["sandbox_id"] for e in run.only.events("create_ok")}


@pytest.mark.parametrize("number", SIGNALS)
def test_second_signal_changes_nothing_if_the_finish_comes_to_its_end(
    tmp_path: Path, number: signal.Signals
) -> None:
    """Twice in a row: told what would be left, and all is removed; one clean end."""
    with start(tmp_path, 3, "ready=fixed(60) gone=fixed(1)") as run:
        run.until_event("create_ok", 3)
        run.send(number)
        run.until_event("interrupted")
        run.send(number)
        assert run.wait() == 4, run.output
    assert_nothing_left(run)
    assert "3 sandboxes not seen gone" in run.output


def test_full_disk_ends_the_run_and_not_its_clean_up(tmp_path: Path) -> None:
    """No event can be written: told once, no further create is sent, and all sandboxes are removed."""
    truth = tmp_path / "truth.jsonl"
    scenario = scenario_file(tmp_path, 60, concurrency=2)
    with LocalServer(profile="ready=fixed(0.5) gone=fixed(0.1)", truth=truth) as server:
        arguments = ["--headless", "--only-summary", "--scenario", scenario, "--base-url", server.base_url]
        key = {"TREADSTONE_API_KEY": API_KEY}
        with Run(tmp_path, *arguments, environment=key, most_kib=16) as run:
            assert run.wait() in (4, 5), run.output
        output = run.output
        assert "events.jsonl cannot be written" in output
        assert output.count("the run takes no new work") == 1
        assert "Traceback" not in output
        headers = {"Authorization": f"Bearer {API_KEY}"}
        left = http.get(f"{server.base_url}/v1/sandboxes", headers=headers, timeout=10).json()["total"]
        assert left == 0
    assert 5 < len(json_lines(truth)) < 60


def test_disk_that_is_full_from_the_start_is_told_before_anything_is_created(tmp_path: Path) -> None:
    """Nothing can be written at all: one message, no sandbox, no hanging process."""
    scenario = scenario_file(tmp_path, 3)
    with LocalServer() as server:
        arguments = ["--headless", "--only-summary", "--scenario", scenario, "--base-url", server.base_url]
        key = {"TREADSTONE_API_KEY": API_KEY, "TREADSTONE_WARM_CLI": "false"}
        (tmp_path / "results").write_text("a file where the folder should be")
        with Run(tmp_path, *arguments, environment=key) as run:
            assert run.wait(timeout=30) == 2, run.output
    assert "error: " in run.output
    assert "Traceback" not in run.output


def test_dead_server_is_told_with_what_may_be_left(tmp_path: Path) -> None:
    """A clean-up that can read no list names every sandbox that the run knows it made."""
    scenario = scenario_file(tmp_path, 3)
    with LocalServer(profile="ready=fixed(60)") as server:
        arguments = ["--headless", "--only-summary", "--scenario", scenario, "--base-url", server.base_url]
        with Run(tmp_path, *arguments, environment={"TREADSTONE_API_KEY": API_KEY}) as run:
            run.until_event("create_ok", 3)
            server.stop()
            run.send(signal.SIGINT)
            run.until_said("the list of sandboxes cannot be read")
            run.send(signal.SIGINT)
            run.until_said("3 sandboxes not seen gone")
            run.send(signal.SIGINT)
            assert run.wait(timeout=20) == 5, run.output
    assert run.output.count("the list of sandboxes cannot be read") == 1
    command = f"python -m treadstone_user sweep {run.only.path.name} --results-dir {run.results}"
    assert command in run.output


RAISING = """
import runpy
from locust import task

globals().update(runpy.run_path({locustfile!r}))


class Raising(TreadstoneUser):
    @task
    def fail(self):
        raise RuntimeError("a user's own mistake")
"""


def test_exceptions_in_a_user_leave_nothing_behind(tmp_path: Path) -> None:
    """A user class of somebody's own may raise as often as it likes: sandboxes are made and removed."""
    locustfile = tmp_path / "locustfile.py"
    locustfile.write_text(RAISING.format(locustfile=str(ROOT / "locustfile.py")))
    with start(tmp_path, 6, "ready=fixed(0.3) gone=fixed(0.2)", "-f", str(locustfile), "-u", "6") as run:
        assert run.wait() == 1, run.output
    assert_nothing_left_but_traces(run)
    assert "a user's own mistake" in run.output


def assert_nothing_left_but_traces(run: Run) -> None:
    """As `assert_nothing_left`, though the output holds what Locust says of the user's exceptions."""
    result = run.only
    assert result.overall["ready"] == len(result.truth) == 6
    assert all(line["gone"] for line in result.truth)
    assert result.summary["cleanup"]["verified"]
