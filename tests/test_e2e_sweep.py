"""What a killed run began, the sweep finishes: with the real CLI, and however often it is asked."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from prep import endings
from tests.runs import ROOT, Run, clean_environment, json_lines, scenario_file
from tests.servers import API_KEY, LocalServer

KEY = {"TREADSTONE_API_KEY": API_KEY}


def sweep(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a person would."""
    return subprocess.run(
        [sys.executable, "-m", "treadstone_user", "sweep", *arguments],
        cwd=ROOT,
        env=clean_environment(folder / "home", **KEY),
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def killed_run(folder: Path, server: LocalServer, *more: str) -> Run:
    """A run that is killed in the middle of its creates."""
    scenario = scenario_file(folder, 30)
    arguments = ["--headless", "--scenario", scenario, "--base-url", server.base_url, *more]
    with Run(folder, *arguments, environment=KEY) as run:
        run.until_event("create_ok", 5)
        run.send(signal.SIGKILL)
        run.wait()
    return run


def test_one_command_removes_what_a_killed_run_left(tmp_path: Path) -> None:
    """By its label; the artifacts of the run say it; a second time there is nothing to do."""
    truth = tmp_path / "truth.jsonl"
    with LocalServer(
        profile="ready=fixed(60) latency=fixed(0.2) gone=fixed(0.2) foreign=50", truth=truth
    ) as server:
        run = killed_run(tmp_path, server, "--transport", "http")
        for _ in range(2):
            done = sweep(tmp_path, run.only.path.name, "--results-dir", str(run.results))
            assert done.returncode == 0, done.stdout + done.stderr
            assert "none left" in done.stdout
    assert len(json_lines(truth)) >= 5
    assert all(line["gone"] for line in json_lines(truth))
    assert run.only.summary["cleanup"]["verified"]
    assert API_KEY not in done.stdout + done.stderr


def test_all_old_runs_at_once_and_only_after_a_yes(tmp_path: Path) -> None:
    """Two killed runs, one of them of the CLI; without --yes and without a terminal nothing is removed."""
    truth = tmp_path / "truth.jsonl"
    with LocalServer(profile="ready=fixed(60) gone=fixed(0.2) foreign=50", truth=truth) as server:
        first = killed_run(tmp_path / "a", server, "--transport", "http")
        time.sleep(1.1)  # runs are named by the second, and two of one second share a label
        second = killed_run(tmp_path / "b", server)
        assert first.only.path.name != second.only.path.name
        assert re.search(rf"sandboxes of other runs are there .*{first.only.path.name}", second.output)
        everything = ["--all", "--base-url", server.base_url, "--results-dir", str(first.results)]
        refused = sweep(tmp_path, *everything)
        assert refused.returncode == 2
        assert "--yes" in refused.stderr
        young = sweep(tmp_path, "--older-than", "1d", *everything[1:])
        assert young.returncode == 2, "an old one of somebody else's is there, too"
        assert "too young: left alone" in young.stdout
        done = sweep(tmp_path, *everything, "--yes")
        assert done.returncode == 0, done.stdout + done.stderr
        assert first.only.path.name in done.stdout
        assert second.only.path.name in done.stdout
    assert all(line["gone"] for line in json_lines(truth))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "say which"),
        (["20260101-000000", "--all"], "say which"),
        (["--older-than", "yesterday"], "90m, 2h or 7d"),
        (["20260101-000000"], "--base-url URL"),
        (["../x"], "is no run's id"),
    ],
)
def test_a_mistake_gets_one_clear_message(tmp_path: Path, arguments: list[str], said: str) -> None:
    """And exit code 2."""
    done = sweep(tmp_path, *arguments, *(["--results-dir", str(tmp_path)] if arguments else []))
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


def test_a_server_that_does_not_answer_leaves_it_open(tmp_path: Path) -> None:
    """Nobody can tell whether something is left: exit code 5, and not that nothing was to be done."""
    done = sweep(tmp_path, "--all", "--base-url", "http://127.0.0.1:9", "--transport", "http")
    assert done.returncode == 5
    assert "no Treadstone server answers" in done.stderr


def test_a_run_whose_folder_is_lost_is_swept_by_its_label(tmp_path: Path) -> None:
    """With the server's address; other runs stay."""
    truth = tmp_path / "truth.jsonl"
    with LocalServer(profile="ready=fixed(60) gone=fixed(0.1) foreign=3", truth=truth) as server:
        run = killed_run(tmp_path, server, "--transport", "http")
        run_id = run.only.path.name
        elsewhere = ["--results-dir", str(tmp_path / "elsewhere"), "--base-url", server.base_url]
        done = sweep(tmp_path, run_id, *elsewhere, "--transport", "http")
        assert done.returncode == 0, done.stdout + done.stderr
    assert all(line["gone"] for line in json_lines(truth))


def test_runs_that_are_ended_at_any_moment_leave_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """One each by SIGTERM, SIGKILL with a sweep, and SIGINT; `python -m prep.endings --runs 60` has many."""
    assert endings.main(["--runs", "3", "--seed", "11"]) == 0, capsys.readouterr().out
