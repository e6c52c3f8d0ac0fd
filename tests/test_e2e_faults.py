"""A server that fails: each failure is counted once, under its own name, and nothing is left."""

from __future__ import annotations

import re
import signal
from collections import Counter
from pathlib import Path

import requests as http

from tests.runs import Run, finished, json_lines, scenario_file
from tests.servers import API_KEY, LocalServer


def test_counts_equal_the_servers_log(tmp_path: Path) -> None:
    """With 20 % of 429 and 5 % of errors, the summary counts what the server counted."""
    truth, requests = tmp_path / "truth.jsonl", tmp_path / "requests.jsonl"
    scenario = scenario_file(tmp_path, 40, concurrency=10)
    profile = "ready=uniform(0.5,1.5) error=5% create=429:20% seed=4"
    with LocalServer(profile=profile, truth=truth, requests=requests) as server:
        code, run = finished(
            tmp_path,
            *("--scenario", scenario, "--base-url", server.base_url),
            environment={"TREADSTONE_API_KEY": API_KEY},
        )
    assert code == 1, run.output
    creates = [
        line for line in json_lines(requests) if line["method"] == "POST" and line["path"] == "/v1/sandboxes"
    ]
    answers = Counter(line["status"] for line in creates)
    sandboxes = json_lines(truth)
    errors = sum(line["error"] is not None for line in sandboxes)
    overall = run.only.overall
    assert answers[429] > 0, "the profile was meant to refuse some"
    assert errors > 0, "the profile was meant to fail some"
    assert overall["submitted"] == 40
    assert overall["created_ok"] == answers[202] == len(sandboxes)
    assert overall["create_errors"] == {"429": answers[429]}
    assert overall["failed_status"] == errors
    assert overall["failed_statuses"] == {"error": errors}
    assert overall["ready"] == len(sandboxes) - errors
    assert all(line["gone"] for line in sandboxes)
    table = run.output[run.output.index("Error report") :]
    rows = re.findall(r"^\s*(\d+)\s+sandbox (.+?)\s*$", table, re.MULTILINE)
    assert sorted((int(count), text) for count, text in rows) == sorted(
        [
            (answers[429], "1_create aio-sandbox-tiny: 429 quota_exceeded"),
            (errors, "2_ready aio-sandbox-tiny: status error"),
        ]
    ), table


def test_failed_sandbox_is_resolved_at_once(tmp_path: Path) -> None:
    """A sandbox that turns error is told with that status at the next poll, not after the timeout."""
    scenario = scenario_file(tmp_path, 2, ready_timeout_sec=60)
    code, run = finished(
        tmp_path, "--scenario", scenario, "--local", "--local-profile", "ready=fixed(1) error=100%"
    )
    assert code == 1, run.output
    failed = run.only.events("failed_status")
    assert [event["last_status"] for event in failed] == ["error", "error"]
    assert all(1000 <= event["waited_ms"] < 10_000 for event in failed)


def test_sandbox_that_never_gets_ready_times_out_under_its_template(tmp_path: Path) -> None:
    """A timeout is counted as one, with its template and its last status; it is removed like others."""
    scenario = scenario_file(tmp_path, 2, ready_timeout_sec=3)
    code, run = finished(tmp_path, "--scenario", scenario, "--local", "--local-profile", "never=100%")
    assert code == 1, run.output
    timeouts = run.only.events("poll_timeout")
    assert [event["last_status"] for event in timeouts] == ["creating", "creating"]
    assert all(3000 <= event["waited_ms"] < 4000 for event in timeouts)
    assert set(run.only.summary["by_template"]) == {"aio-sandbox-tiny"}
    assert "2_ready aio-sandbox-tiny: not ready after 3 s" in run.output
    assert all(line["gone"] for line in run.only.truth)


def test_sandbox_deleted_by_somebody_else_is_resolved_at_once(tmp_path: Path) -> None:
    """A sandbox that vanishes while it is awaited is failed as deleting or deleted, not timed out."""
    scenario = scenario_file(tmp_path, 1, ready_timeout_sec=60)
    with LocalServer(profile="ready=fixed(60) gone=fixed(0.1)") as server:
        arguments = ["--headless", "--only-summary", "--scenario", scenario, "--base-url", server.base_url]
        with Run(tmp_path, *arguments, environment={"TREADSTONE_API_KEY": API_KEY}) as run:
            run.until_event("create_ok")
            sandbox_id = run.only.events("create_ok")[0]["sandbox_id"]
            headers = {"Authorization": f"Bearer {API_KEY}"}
            url = f"{server.base_url}/v1/sandboxes/{sandbox_id}"
            assert http.delete(url, headers=headers, timeout=10).status_code == 204
            assert run.wait(timeout=30) == 1, run.output
    (failed,) = run.only.events("failed_status")
    assert failed["last_status"] in ("deleting", "deleted")
    assert run.only.summary["cleanup"]["verified"]


def test_server_that_goes_away_is_told_and_waited_for(tmp_path: Path) -> None:
    """Failed polls are counted and told once; when the server comes back, the run goes on."""
    scenario = scenario_file(tmp_path, 2, ready_timeout_sec=60)
    with LocalServer(profile="ready=fixed(4) gone=fixed(0.1)") as server:
        arguments = ["--headless", "--only-summary", "--scenario", scenario, "--base-url", server.base_url]
        with Run(tmp_path, *arguments, environment={"TREADSTONE_API_KEY": API_KEY}) as run:
            run.until_event("create_ok", 2)
            server.stop()
            run.until_event("poll_err", 2)
            assert "a poll failed, and is tried again each interval: connect_error" in run.output
            run.send(signal.SIGINT)
            run.until_said("clean-up: the list of sandboxes cannot be read")
            run.send(signal.SIGINT)
            run.send(signal.SIGINT)
            run.until_said("still finishing")
            run.send(signal.SIGINT)
            assert run.wait(timeout=30) == 5, run.output
    assert "python -m treadstone_user sweep" in run.output
