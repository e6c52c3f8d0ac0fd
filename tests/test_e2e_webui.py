"""Runs started and stopped in Locust's web UI."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import requests as http

from tests.runs import Run, free_port, scenario_file
from tests.servers import API_KEY, LocalServer


class WebUi:
    """What a person does in the web UI, by the same requests."""

    def __init__(self, port: int, path: str = "") -> None:
        self.url = f"http://127.0.0.1:{port}{path}"

    def is_up(self) -> bool:
        """Whether the page is there."""
        try:
            return http.get(self.url, timeout=5).ok
        except http.ConnectionError:
            return False

    def start(self, users: int, **more: Any) -> None:
        """Press start."""
        form = {"user_count": users, "spawn_rate": users, **more}
        assert http.post(f"{self.url}/swarm", data=form, timeout=10).json()["success"]

    def stop(self) -> None:
        """Press stop; answers when the run has ended."""
        assert http.post(f"{self.url}/stop", timeout=60).json()["success"]

    def stats(self) -> dict[str, Any]:
        """What the page shows."""
        content: dict[str, Any] = http.get(f"{self.url}/stats/requests", timeout=10).json()
        return content

    def requests(self) -> dict[str, int]:
        """Requests by name."""
        return {
            row["name"]: row["num_requests"] for row in self.stats()["stats"] if row["method"] == "sandbox"
        }

    def until_state(self, state: str, timeout: float = 60) -> None:
        """Wait for Locust's own state."""
        end = time.monotonic() + timeout
        while self.stats()["state"] != state:
            assert time.monotonic() < end, self.stats()["state"]
            time.sleep(0.1)


def web_run(folder: Path, port: int, *arguments: str, **environment: str) -> Run:
    """Locust with its web UI."""
    options = ["--web-host", "127.0.0.1", "--web-port", str(port), *arguments]
    return Run(folder, *options, environment=environment)


def test_two_runs_in_one_process_are_two_runs(tmp_path: Path) -> None:
    """Each has a folder, a label and a local server of its own; the second starts clean."""
    port = free_port()
    page = WebUi(port)
    scenario = scenario_file(tmp_path, 3)
    profile = ["--local", "--local-profile", "ready=fixed(0.5) gone=fixed(0.1)"]
    with web_run(tmp_path, port, "--scenario", scenario, *profile) as run:
        run.until(lambda _: page.is_up())
        assert run.all == []
        for number in (1, 2):
            page.start(3)
            run.until(lambda run, n=number: run.output.count("results in") == n)  # type: ignore[misc]
            page.until_state("stopped")
            assert page.requests() == {
                f"{step} aio-sandbox-tiny": 3 for step in ("1_create", "2_ready", "4_delete")
            }
        run.send(__import__("signal").SIGINT)
        assert run.wait() == 0, run.output
    first, second = run.all
    for result in (first, second):
        assert result.summary["ending"] == "completed"
        assert [result.overall[key] for key in ("submitted", "ready", "deleted_ok")] == [3, 3, 3]
        assert {line["labels"]["loadtest"] for line in result.truth} == {f"run-{result.path.name}"}
        assert all(line["gone"] for line in result.truth)
    assert first.path.name != second.path.name


def test_stop_cleans_up_and_answers_when_all_is_gone(tmp_path: Path) -> None:
    """Stop in the middle: the waits are interrupted, the sandboxes removed, then the page answers."""
    port = free_port()
    page = WebUi(port)
    scenario = scenario_file(tmp_path, 3)
    with (
        LocalServer(profile="ready=fixed(60) gone=fixed(0.5)") as server,
        web_run(
            tmp_path, port, "--scenario", scenario, "--base-url", server.base_url, TREADSTONE_API_KEY=API_KEY
        ) as run,
    ):
        run.until(lambda _: page.is_up())
        page.start(3)
        run.until_event("create_ok", 3)
        page.stop()
        result = run.only
        assert result.summary["ending"] == "stopped"
        assert result.overall["interrupted"] == result.overall["deleted_ok"] == 3
        headers = {"Authorization": f"Bearer {API_KEY}"}
        left = http.get(f"{server.base_url}/v1/sandboxes", headers=headers, timeout=10).json()
        assert left["total"] == 0


def test_run_started_during_a_clean_up_waits_for_it(tmp_path: Path) -> None:
    """Locust lets a second run start while the first is cleaned up: their figures do not mix."""
    port = free_port()
    page = WebUi(port)
    scenario = scenario_file(tmp_path, 2)
    profile = ["--local", "--local-profile", "ready=fixed(0.3) gone=fixed(3)"]
    with web_run(tmp_path, port, "--scenario", scenario, *profile) as run:
        run.until(lambda _: page.is_up())
        page.start(2)
        run.until_event("delete_ok")
        page.start(2)
        run.until_said("waiting for the clean-up of run")
        run.until(lambda run: run.output.count("results in") == 2)
        page.until_state("stopped")
        assert set(page.requests().values()) == {2}
    first, second = run.all
    assert first.overall["deleted_ok"] == second.overall["deleted_ok"] == 2
    assert all(line["gone"] for result in (first, second) for line in result.truth)


def test_run_that_cannot_start_is_refused_and_the_page_stays(tmp_path: Path) -> None:
    """The server went away since the start of the page: the reason is logged, no folder is left."""
    port = free_port()
    page = WebUi(port)
    with (
        LocalServer() as server,
        web_run(tmp_path, port, "--base-url", server.base_url, TREADSTONE_API_KEY=API_KEY) as run,
    ):
        run.until(lambda _: page.is_up())
        server.stop()
        page.start(1)
        run.until_said("the run does not start: no Treadstone server answers")
        assert page.is_up()
        assert run.all == []
        assert "Traceback" not in run.output


def test_stop_during_the_preflight_of_a_second_run_stops_it(tmp_path: Path) -> None:
    """Locust's state would still say "stopped" from the first run: Stop must be heard all the same."""
    port = free_port()
    page = WebUi(port)
    scenario = scenario_file(tmp_path, 2)
    profile = ["--local", "--local-profile", "ready=fixed(0.2) gone=fixed(0.1)", "--no-warm-cli"]
    with web_run(tmp_path, port, "--scenario", scenario, *profile) as run:
        run.until(lambda _: page.is_up())
        page.start(2)
        run.until_said("results in")
        page.until_state("stopped")
        page.start(2)
        run.until(lambda run: run.output.count("local server at") == 2)
        page.stop()
        time.sleep(3)
        assert page.stats()["state"] == "stopped"
        assert len(run.all) == 1
        assert run.count("create_submitted") == 2


def test_runs_leave_no_file_descriptor_open(tmp_path: Path) -> None:
    """A page that stays open for days may see many runs, each with a server of its own."""
    port = free_port()
    page = WebUi(port)
    scenario = scenario_file(tmp_path, 1)
    with web_run(
        tmp_path,
        port,
        "--scenario",
        scenario,
        "--local",
        "--local-profile",
        "ready=fixed(0.1) gone=fixed(0.1)",
    ) as run:
        run.until(lambda _: page.is_up())
        descriptors = []
        for number in range(1, 4):
            page.start(1)
            run.until(lambda run, n=number: run.output.count("results in") == n)  # type: ignore[misc]
            page.until_state("stopped")
            time.sleep(0.5)
            descriptors.append(len(list(Path(f"/proc/{run.process.pid}/fd").iterdir())))
    assert descriptors[2] <= descriptors[0] + 1
