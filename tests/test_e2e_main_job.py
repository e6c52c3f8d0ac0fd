"""The main job, end to end: real Locust, the real CLI, a real server."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import requests as http

from tests.runs import (
    PYTHON,
    ROOT,
    Result,
    Run,
    clean_environment,
    finished,
    json_lines,
    scenario_file,
    seconds,
)
from tests.servers import API_KEY, LocalServer
from treadstone_user.figures import percentile


def truth_ms(result: Result) -> list[float]:
    """From created to ready by the server's own log, ascending."""
    return sorted((seconds(line["ready"]) - seconds(line["created"])) * 1000 for line in result.truth)


@pytest.fixture(scope="module")
def pilot(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, str, Result]:
    """What `make demo` runs."""
    code, run = finished(tmp_path_factory.mktemp("pilot"), "--scenario", "pilot_stateless", "--local")
    return code, run.output, run.only


def test_pilot_creates_awaits_and_deletes_fifteen(pilot: tuple[int, str, Result]) -> None:
    """Exit code 0; 15 submitted, ready and deleted by the run's account and by the server's; none left."""
    code, output, result = pilot
    overall = result.overall
    assert code == 0, output
    assert [overall[key] for key in ("submitted", "created_ok", "ready", "deleted_ok")] == [15] * 4
    assert result.summary["cleanup"]["verified"]
    assert result.summary["cleanup"]["remaining"] == {}
    assert len(result.truth) == 15
    assert all(
        line["gone"] and line["labels"] == {"loadtest": f"run-{result.path.name}"} for line in result.truth
    )


def test_each_task_has_one_start_and_one_end(pilot: tuple[int, str, Result]) -> None:
    """The log announces each create before its answer, and ends each task exactly once."""
    events = pilot[2].events()
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    for task in range(1, 16):
        kinds = [event["event"] for event in events if event["task"] == task]
        assert kinds == ["create_submitted", "create_ok", "ready", "server_times", "delete_ok", "gone"]


def test_run_json_tells_what_ran_and_holds_no_secret(pilot: tuple[int, str, Result]) -> None:
    """run.json has the fields of the design, and nothing that a run wrote or printed holds a key."""
    _, output, result = pilot
    run = result.run
    assert run["run_id"] == result.path.name
    assert run["run_label"] == f"loadtest:run-{run['run_id']}"
    assert run["scenario_file"] == "scenarios/pilot_stateless.yaml"
    assert run["scenario"]["matrix"] == [{"template": "aio-sandbox-tiny", "count": 15, "persist": False}]
    assert run["treadstone_version"] == "0.9.3"
    assert run["transport"] == "cli"
    assert seconds(run["finished_at"]) - seconds(run["started_at"]) == pytest.approx(
        run["duration_sec"], abs=0.5
    )
    written = output + "".join(path.read_text() for path in result.path.iterdir())
    assert "sk-" not in written
    assert "Bearer" not in written
    assert result.path.stat().st_mode & 0o077 == 0


def test_console_says_what_will_run_how_it_goes_and_where_the_results_lie(
    pilot: tuple[int, str, Result],
) -> None:
    """The expansion comes before the first progress line, the tables and the folder come at the end."""
    output, result = pilot[1], pilot[2]
    expected = [
        "15 tiny sandboxes",
        "created 15/15, ready 15, failed 0, in flight 0",
        "none left",
        f"results in {result.path}",
    ]
    places = [output.find(text) for text in expected]
    assert -1 not in places, output
    assert places == sorted(places)
    for name in ("1_create aio-sandbox-tiny", "2_ready aio-sandbox-tiny", "4_delete aio-sandbox-tiny"):
        assert name in output


def test_ready_times_agree_with_the_truth_for_sixty(tmp_path: Path) -> None:
    """p50 and p95 lie above the truth, by no more than a poll interval and one CLI call."""
    scenario = scenario_file(tmp_path, 60, concurrency=10, poll_interval_sec=1)
    profile = "ready=lognormal(6,0.3) seed=5"
    code, run = finished(tmp_path, "--scenario", scenario, "--local", "--local-profile", profile)
    assert code == 0, run.output
    result = run.only
    call_ms = result.overall["create_latency_ms"]["p95"]
    for name, percent in (("p50", 50), ("p95", 95)):
        above = result.overall["ready_latency_ms"][name] - percentile(truth_ms(result), percent)
        assert 0 < above < 1000 + call_ms, name


def test_truth_lies_between_the_bounds_of_each_sandbox(pilot: tuple[int, str, Result]) -> None:
    """The server saw a sandbox ready after the last poll that did not, and before the one that did."""
    result = pilot[2]
    sent = {event["task"]: seconds(event["ts"]) for event in result.events("create_submitted")}
    ready_at = {line["id"]: seconds(line["ready"]) for line in result.truth}
    for event in result.events("ready"):
        start = sent[event["task"]]
        truth = (ready_at[event["sandbox_id"]] - start) * 1000
        assert event["ready_after_ms"] - 20 <= truth <= event["ready_latency_ms"] + 20  # two clocks, rounded


def test_create_latency_excludes_the_wait_for_a_process(tmp_path: Path) -> None:
    """With one call at a time, twelve creates wait for each other; their latency does not show it."""
    scenario = scenario_file(tmp_path, 12, concurrency=1)
    code, run = finished(tmp_path, "--scenario", scenario, "--local", "--local-profile", "ready=fixed(0.2)")
    assert code == 0, run.output
    overall = run.only.overall
    assert overall["queue_ms"]["max"] > 5 * overall["create_latency_ms"]["p50"]
    last = run.only.events("create_ok")[-1]
    assert last["latency_ms"] < last["queue_ms"] / 3


def test_steady_load_goes_on_until_its_time_is_up(tmp_path: Path) -> None:
    """Users create, wait and delete over and over; at the end nothing is left and all is well."""
    code, run = finished(
        tmp_path, "-u", "4", "-r", "2", "-t", "12s", "--local", "--local-profile", "ready=fixed(0.3)"
    )
    assert code == 0, run.output
    result = run.only
    assert result.overall["ready"] > 4, "more lifecycles than users"
    assert result.overall["submitted"] == len(result.truth)
    assert all(line["gone"] for line in result.truth)
    in_flight = most = 0
    for event in result.events("create_submitted", "delete_ok"):
        in_flight += 1 if event["event"] == "create_submitted" else -1
        most = max(most, in_flight)
    assert most <= 4


def test_no_cleanup_leaves_the_runs_sandboxes_and_sweep_removes_them(tmp_path: Path) -> None:
    """What is left is exactly the run's, labelled, and said; the command that is named removes it."""
    truth = tmp_path / "truth.jsonl"
    scenario = scenario_file(tmp_path, 3)
    key = {"TREADSTONE_API_KEY": API_KEY}
    with LocalServer(profile="ready=fixed(0.2) gone=fixed(0.1)", truth=truth) as server:
        code, run = finished(
            tmp_path, "--scenario", scenario, "--base-url", server.base_url, "--no-cleanup", environment=key
        )
        assert code == 0, run.output
        assert not truth.read_text(), "nothing is gone"
        run_id = run.only.run["run_id"]
        command = f"python -m treadstone_user sweep {run_id} --results-dir {run.results}"
        assert command in run.output
        assert run.only.summary["cleanup"]["ran"] is False
        sweep = subprocess.run(
            [PYTHON, *command.split()[1:]],
            cwd=ROOT,
            env=clean_environment(tmp_path / "home", **key),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert sweep.returncode == 0, sweep.stderr
        assert len(json_lines(truth)) == 3, "all three are gone"
    assert run.only.summary["cleanup"]["verified"]
    assert run.only.overall["deleted_ok"] == 3


def test_others_sandboxes_are_never_touched(tmp_path: Path) -> None:
    """With 1,500 foreign sandboxes in the account, only the run's own are seen, counted and deleted."""
    requests = tmp_path / "requests.jsonl"
    truth = tmp_path / "truth.jsonl"
    scenario = scenario_file(tmp_path, 4)
    with LocalServer(profile="ready=fixed(1.5) foreign=1500", truth=truth, requests=requests) as server:
        code, run = finished(
            tmp_path,
            *("--scenario", scenario, "--base-url", server.base_url),
            environment={"TREADSTONE_API_KEY": API_KEY},
        )
    assert code == 0, run.output
    deleted = {line["path"].rsplit("/", 1)[-1] for line in json_lines(requests) if line["method"] == "DELETE"}
    ours = {line["id"] for line in json_lines(truth)}
    assert deleted == ours
    assert len(ours) == run.only.overall["deleted_ok"] == 4


def test_ready_times_hold_behind_a_long_list(tmp_path: Path) -> None:
    """With 1,500 others in the list, which is two pages, a poll is as punctual as without them."""
    truth = tmp_path / "truth.jsonl"
    scenario = scenario_file(tmp_path, 30, concurrency=10, poll_interval_sec=1)
    with LocalServer(profile="ready=fixed(2) foreign=1500", truth=truth) as server:
        code, run = finished(
            tmp_path,
            *("--scenario", scenario, "--base-url", server.base_url),
            environment={"TREADSTONE_API_KEY": API_KEY},
        )
    assert code == 0, run.output
    overall = run.only.overall
    for name in ("p50", "p95"):
        assert (
            2000
            < overall["ready_latency_ms"][name]
            < 2000 + 1000 + 2 * overall["create_latency_ms"]["p95"] + 300
        )


def test_sweep_leaves_a_finished_run_as_it_is(pilot: tuple[int, str, Result]) -> None:
    """A run with a local server of its own has nothing to sweep; its artifacts stay."""
    result = pilot[2]
    before = {path.name: path.read_bytes() for path in result.path.iterdir()}
    command = [
        str(PYTHON),
        "-m",
        "treadstone_user",
        "sweep",
        result.path.name,
        "--results-dir",
        str(result.path.parent),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert "its sandboxes ended with it" in done.stderr
    assert {path.name: path.read_bytes() for path in result.path.iterdir()} == before


def test_sandboxes_of_another_kind_are_named_and_left(tmp_path: Path) -> None:
    """A persistent sandbox under the run's label, which a stateless scenario never made, keeps its data."""
    scenario = scenario_file(tmp_path, 2)
    with LocalServer(profile="ready=fixed(2) gone=fixed(0.1)") as server:
        arguments = ["--headless", "--only-summary", "--scenario", scenario, "--base-url", server.base_url]
        with Run(tmp_path, *arguments, environment={"TREADSTONE_API_KEY": API_KEY}) as run:
            run.until_event("create_ok")
            label = run.only.run["run_label"].split(":")
            body = {
                "template": "aio-sandbox-small",
                "labels": dict([label]),
                "persist": True,
                "storage_size": "5Gi",
            }
            headers = {"Authorization": f"Bearer {API_KEY}"}
            url = f"{server.base_url}/v1/sandboxes"
            theirs = http.post(url, json=body, headers=headers, timeout=10).json()["id"]
            assert run.wait() == 0, run.output
        left = http.get(url, headers=headers, timeout=10).json()["items"]
    assert [sandbox["id"] for sandbox in left] == [theirs]
    assert theirs in run.output
    assert list(run.only.summary["cleanup"]["kept"]) == [theirs]


def test_scenario_with_storage_creates_persistent_sandboxes(tmp_path: Path) -> None:
    """Variants with and without storage each get their own rows, names and flags."""
    matrix = [
        {"template": "aio-sandbox-tiny", "count": 2},
        {"template": "aio-sandbox-small", "count": 2, "persist": True, "storage_size": "10Gi"},
    ]
    scenario = scenario_file(tmp_path, matrix)
    code, run = finished(tmp_path, "--scenario", scenario, "--local", "--local-profile", "ready=fixed(0.5)")
    assert code == 0, run.output
    summary = run.only.summary
    assert {name: bucket["ready"] for name, bucket in summary["by_persist"].items()} == {
        "false": 2,
        "true": 2,
    }
    assert set(summary["by_template"]) == {"aio-sandbox-tiny", "aio-sandbox-small"}
    assert "1_create aio-sandbox-small +10Gi" in run.output
    assert all(line["gone"] for line in run.only.truth)
