"""Runs of many processes: each sandbox once, each event once, and nothing lost with a worker."""

from __future__ import annotations

import re
import signal
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.prepared import Prep
from tests.runs import Result, Run, finished, free_port, json_lines, scenario_file
from tests.servers import API_KEY, LocalServer
from tests.test_e2e_webui import WebUi
from treadstone_user.summary import summarize

ENDS = ("create_err", "ready", "failed_status", "poll_timeout", "interrupted", "lost")
LOCAL_KEY = {"LOCALSERVER_API_KEY": "sk-local-0123456789"}
MATRIX_OF_120 = {"tiny": 41, "small": 41, "medium": 38}


class Crew:
    """A master and its workers, each a process of its own on this machine."""

    def __init__(
        self, folder: Path, *arguments: str, expected: int, environment: dict[str, str] | None = None
    ) -> None:
        """Start the master; it waits for so many workers."""
        self._environment = LOCAL_KEY if environment is None else environment
        self._folder = folder
        self._port = str(free_port())
        self._stack = ExitStack()
        more = ["--master", "--master-bind-port", self._port, "--expect-workers", str(expected)]
        self.master = self._process("master", *arguments, *more)
        self.workers: list[Run] = []

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _process(self, name: str, *arguments: str, environment: dict[str, str] | None = None) -> Run:
        more = self._environment if environment is None else environment
        return self._stack.enter_context(Run(self._folder / name, *arguments, environment=more))

    def add_worker(self, *arguments: str, environment: dict[str, str] | None = None) -> Run:
        """Start a worker, which is told nothing of the run but where its master is."""
        name, master = f"worker{len(self.workers) + 1}", ["--worker", "--master-port", self._port]
        worker = self._process(name, *master, *arguments, environment=environment)
        self.workers.append(worker)
        return worker


def assert_balanced(result: Result) -> None:
    """Each event stands once, each task has one end, and the server's log says that all is gone."""
    events = result.events()
    numbered: dict[str, list[int]] = {}
    for event in events:
        numbered.setdefault(event["worker"], []).append(event["seq"])
    assert all(seqs == list(range(1, len(seqs) + 1)) for seqs in numbered.values()), "once, in order"
    submitted = [event["task"] for event in result.events("create_submitted")]
    ends = [event["task"] for event in result.events(*ENDS)]
    assert len(set(submitted)) == len(submitted), "no task is begun twice"
    assert len(set(ends)) == len(ends), "no task ends twice"
    assert set(submitted) <= set(ends), "each submitted task has its end"
    truth = result.truth
    assert all(line["gone"] for line in truth)
    assert len(truth) == result.overall["created_ok"] + sum(
        event["submitted"] and event["sandbox_id"] is None for event in result.events("lost")
    )
    assert result.summary["cleanup"]["verified"]
    assert result.summary["cleanup"]["remaining"] == {}
    assert not (result.path / "spool").exists() or result.events("lost")


@pytest.mark.parametrize(("users", "rate"), [(25, 5), (120, 100), (500, 50)])
def test_two_processes_make_exactly_what_the_matrix_says(tmp_path: Path, users: int, rate: int) -> None:
    """120 sandboxes with the matrix's counts, each event once, none left, whatever -u and -r."""
    arguments = ["--processes", "2", "--scenario", "scenarios/mixed_tiny_small_medium_120.yaml"]
    arguments += ["--transport", "http", "--local", "--local-profile", "ready=uniform(0.2,1) gone=fixed(0.2)"]
    code, run = finished(tmp_path, *arguments, "-u", str(users), "-r", str(rate))
    assert code == 0, run.output
    result = run.only
    assert_balanced(result)
    made = {name: bucket["submitted"] for name, bucket in result.summary["by_template"].items()}
    assert made == {f"aio-sandbox-{size}": count for size, count in MATRIX_OF_120.items()}
    assert result.overall["ready"] == 120
    assert result.run["workers"] == 2
    assert sum(node["tasks"] for node in result.run["worker_nodes"].values()) == 120
    assert "Traceback" not in run.output


def test_summary_is_that_of_all_workers_events_together(tmp_path: Path) -> None:
    """To the digit; and the percentiles are those of the pooled values, made anew here."""
    scenario = scenario_file(tmp_path, 40, concurrency=10)
    arguments = ["--processes", "2", "--scenario", scenario, "--transport", "http", "--local"]
    code, run = finished(
        tmp_path, *arguments, "--local-profile", "ready=uniform(0.2,2) error=5% gone=fixed(0.1)"
    )
    result = run.only
    assert code in (0, 1), run.output
    assert_balanced(result)
    assert summarize(result.events(), result.run) == result.summary
    workers = {event["worker"] for event in result.events("create_ok")}
    assert workers == {"w1", "w2"}, "both took part"
    latencies = sorted(event["ready_latency_ms"] for event in result.events("ready"))
    rank = 0.5 * (len(latencies) - 1)
    low, part = int(rank), rank % 1
    p50 = latencies[low] + part * (latencies[min(low + 1, len(latencies) - 1)] - latencies[low])
    assert result.overall["ready_latency_ms"]["p50"] == pytest.approx(p50, abs=0.051)
    assert set(result.summary["client"]["workers"]) == {"w1", "w2"}


def test_concurrency_is_a_budget_of_all_workers_together(tmp_path: Path) -> None:
    """The server never has more creates at once than the scenario allows, however many workers there are."""
    scenario = scenario_file(tmp_path, 40, concurrency=4)
    arguments = ["--processes", "3", "--scenario", scenario, "--transport", "http", "--local"]
    code, run = finished(tmp_path, *arguments, "--local-profile", "ready=fixed(0.2) latency=fixed(0.3)")
    assert code == 0, run.output
    assert_balanced(run.only)
    assert most_at_once(run.only) == 4
    assert {node["tasks"] > 0 for node in run.only.run["worker_nodes"].values()} == {True}


def most_at_once(result: Result) -> int:
    """The most creates that were in flight at once, by the events' own times, to 5 ms."""
    edges: list[tuple[float, int]] = []
    for event in result.events("create_ok"):
        edges += [(event["t_ms"] - event["latency_ms"] + 5, 1), (event["t_ms"] - 5, -1)]
    at_once = most = 0
    for _, change in sorted(edges):
        at_once += change
        most = max(most, at_once)
    return most


def test_a_worker_is_killed_one_leaves_and_one_joins_late(tmp_path: Path) -> None:
    """The run ends by itself; every task has one end; what the dead worker made is removed, too."""
    scenario = scenario_file(tmp_path, 90, concurrency=6, ready_timeout_sec=60)
    arguments = ["--headless", "--only-summary", "--scenario", scenario, "--transport", "http", "--local"]
    profile = ["--local-profile", "ready=uniform(2,4) latency=fixed(0.3) gone=fixed(0.2)"]
    with Crew(tmp_path, *arguments, *profile, "-u", "30", "-r", "30", expected=3) as crew:
        for _ in range(3):
            crew.add_worker()
        crew.master.until_event("create_ok", 12)
        crew.workers[0].send(signal.SIGKILL)
        crew.workers[1].send(signal.SIGTERM)
        late = crew.add_worker()
        assert crew.workers[1].wait(timeout=30) == 0, crew.workers[1].output
        assert crew.master.wait(timeout=150) == 4, crew.master.output
        assert late.wait(timeout=30) == 0, late.output
    result = crew.master.only
    assert_balanced(result)
    nodes = result.run["worker_nodes"]
    states = Counter(node["state"] for node in nodes.values())
    assert states == {"lost": 1, "drained": 3}, nodes
    assert all(node["tasks"] > 0 for node in nodes.values()), "the late one takes part, too"
    lost, interrupted = result.overall["lost"], result.overall["interrupted"]
    assert lost > 0
    assert interrupted > 0, "those of the worker that left"
    assert result.overall["ready"] + lost + interrupted == 90
    assert result.summary["ending"] == "incomplete"
    assert "is lost" in crew.master.output
    assert "Traceback" not in crew.master.output + late.output + crew.workers[1].output


def _end_by_signal(number: signal.Signals) -> Any:
    def end(run: Run, _: WebUi | None) -> None:
        run.send(number)

    return end


def _end_by_web_stop(run: Run, page: WebUi | None) -> None:
    assert page is not None
    page.stop()
    run.send(signal.SIGINT)


ENDINGS = {
    "ctrl-c": (_end_by_signal(signal.SIGINT), [], "interrupted"),
    "sigterm": (_end_by_signal(signal.SIGTERM), [], "interrupted"),
    "run-time": (lambda run, page: None, ["-t", "6s"], "stopped"),
    "web-stop": (_end_by_web_stop, None, "stopped"),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_figures_of_all_workers_are_there_however_it_ends(tmp_path: Path, ending: str) -> None:
    """All that workers did is in the summary and in Locust's table, and no create comes after the drain."""
    end, more, told = ENDINGS[ending]
    scenario = scenario_file(tmp_path, 400, concurrency=8)
    arguments = ["--processes", "2", "--scenario", scenario, "--transport", "http", "--local"]
    arguments += ["--local-profile", "ready=uniform(1,3) latency=fixed(0.2) gone=fixed(0.2)"]
    page = None
    if more is None:
        port = free_port()
        page, web = WebUi(port), ["--web-host", "127.0.0.1", "--web-port", str(port)]
        arguments += [*web, "--autostart", "-u", "40", "-r", "40"]
    else:
        arguments += ["--headless", "--only-summary", "-u", "40", "-r", "40", *more]
    with Run(tmp_path, *arguments) as run:
        run.until_event("ready", 20)
        end(run, page)
        assert run.wait(timeout=60) == 4, run.output
    result = run.only
    assert_balanced(result)
    assert result.summary["ending"] == told
    assert {node["state"] for node in result.run["worker_nodes"].values()} == {"drained"}
    overall = result.overall
    assert len(result.truth) == overall["submitted"] == overall["created_ok"] < 400
    assert overall["ready"] + overall["interrupted"] == overall["created_ok"]
    drained = min(event["ts"] for event in result.events("delete_ok"))
    assert max(line["created"] for line in result.truth) < drained, "no create after the drain"
    table = re.findall(r"sandbox +1_create aio-sandbox-tiny +(\d+)", run.output)
    assert int(table[0]) == overall["created_ok"], "Locust's own table has all of them, too"
    assert "Traceback" not in run.output


def test_a_worker_that_lacks_the_key_or_the_cli_says_so_and_takes_no_tasks(tmp_path: Path) -> None:
    """It is told on the master's console; the other one makes all the sandboxes."""
    key = {"TREADSTONE_API_KEY": API_KEY}
    scenario = scenario_file(tmp_path, 6)
    with LocalServer(profile="ready=fixed(0.3) gone=fixed(0.1)") as server:
        arguments = ["--headless", "--only-summary", "--scenario", scenario, "--base-url", server.base_url]
        with Crew(tmp_path, *arguments, expected=3, environment=key) as crew:
            crew.add_worker(environment={})
            crew.add_worker("--binary", "/nowhere/treadstone")
            crew.add_worker()
            assert crew.master.wait() == 0, crew.master.output
    said = crew.master.output
    assert re.search(r"worker w\d \(.*\) takes no tasks: not logged in at http://127", said), said
    assert re.search(r"worker w\d \(.*\) takes no tasks: .*/nowhere/treadstone", said), said
    assert crew.master.only.overall["ready"] == 6
    states = [node["state"] for node in crew.master.only.run["worker_nodes"].values()]
    assert sorted(states) == ["drained", "refused", "refused"]
    assert crew.master.only.run["workers"] == 1


def test_a_run_without_a_worker_that_can_take_part_ends(tmp_path: Path) -> None:
    """It would wait for ever; it says what is missing, and nothing was created."""
    arguments = ["--headless", "--only-summary", "--scenario", scenario_file(tmp_path, 3), "--local"]
    with Crew(tmp_path, *arguments, "--transport", "http", expected=1) as crew:
        crew.add_worker(environment={})
        assert crew.master.wait() == 2, crew.master.output
    assert "LOCALSERVER_API_KEY" in crew.master.output
    assert "no worker can take part" in crew.master.output
    assert crew.master.only.truth == []


def test_ctrl_c_while_the_master_waits_for_workers(tmp_path: Path) -> None:
    """Nothing was created, no folder is left, and the workers that were there already end."""
    arguments = ["--headless", "--scenario", scenario_file(tmp_path, 3), "--local", "--transport", "http"]
    with Crew(tmp_path, *arguments, expected=2) as crew:
        worker = crew.add_worker()
        crew.master.until_said("1 workers connected")
        crew.master.send(signal.SIGINT)
        assert crew.master.wait(timeout=20) == 4, crew.master.output
        assert worker.wait(timeout=20) == 0, worker.output
    assert crew.master.all == []
    assert "Traceback" not in crew.master.output + worker.output


def test_workers_end_with_a_master_that_is_killed(tmp_path: Path) -> None:
    """They create nothing more, tell where the events are that nobody has, and end by themselves."""
    scenario = scenario_file(tmp_path, 200, concurrency=4)
    with LocalServer(profile="ready=fixed(1) latency=fixed(0.3)", truth=tmp_path / "truth.jsonl") as server:
        arguments = ["--headless", "--processes", "2", "--scenario", scenario, "--transport", "http"]
        arguments += ["--base-url", server.base_url]
        with Run(tmp_path, *arguments, environment={"TREADSTONE_API_KEY": API_KEY}) as run:
            run.until_event("create_ok", 4)
            workers = psutil.Process(run.process.pid).children()
            assert len(workers) == 2
            run.send(signal.SIGKILL)
            run.wait()
            _, alive = psutil.wait_procs(workers, timeout=30)
            assert not alive
    known = run.count("create_ok")
    spools = [json_lines(path) for path in run.results.glob("*/spool/*.jsonl")]
    undelivered = sum(event["event"] == "create_ok" for spool in spools for event in spool)
    made = len(json_lines(tmp_path / "truth.jsonl"))
    assert known <= made < 200
    assert made <= known + undelivered, "every sandbox is in the master's log or in a worker's spool"
    assert "the master has not got all events" in run.output


def test_ten_runs_in_one_web_ui_do_not_mix(tmp_path: Path) -> None:
    """Each has its own folder, label and sandboxes, though one starts while the last clean-up goes on."""
    port = free_port()
    page = WebUi(port)
    scenario = scenario_file(tmp_path, 4, poll_interval_sec=0.2)
    arguments = [
        "--web-host",
        "127.0.0.1",
        "--web-port",
        str(port),
        "--processes",
        "2",
        "--transport",
        "http",
    ]
    profile = ["--local", "--local-profile", "ready=fixed(0.1) gone=fixed(0.4)"]
    with Run(tmp_path, *arguments, "--scenario", scenario, *profile) as run:
        run.until(lambda _: page.is_up())
        run.until_said("2 workers connected")
        for number in range(1, 11):
            page.start(4)
            if number == 5:  # the next one is started while this one is cleaned up
                run.until_event("delete_ok", 4 * 4 + 1)
                continue
            run.until(lambda run, n=number: run.output.count("results in") == n)  # type: ignore[misc]
            page.until_state("stopped")
        run.send(signal.SIGINT)
        assert run.wait() == 0, run.output
    assert len(run.all) == 10
    for result in run.all:
        assert_balanced(result)
        assert [result.overall[key] for key in ("submitted", "ready", "deleted_ok")] == [4, 4, 4]
        assert result.summary["ending"] == "completed"
        assert {line["labels"]["loadtest"] for line in result.truth} == {f"run-{result.path.name}"}
    assert "Traceback" not in run.output


def test_workers_without_an_account_to_themselves_are_told(tmp_path: Path) -> None:
    """A credential is one worker's at a moment, so the other one's share lies idle; all is made."""
    with LocalServer(profile="ready=fixed(0.2)") as server:
        prep = Prep(server, tmp_path / "prep")
        prep.ready(1)
        scenario = scenario_file(tmp_path, 3, accounts=str(prep.store))
        code, run = finished(
            tmp_path,
            *("--scenario", scenario, "--transport", "http", "--base-url", server.base_url),
            *("--processes", "2"),
        )
        assert (code, run.only.overall["ready"]) == (0, 3), run.output
        assert "fewer accounts than workers: 1 of them will have nothing to do" in run.output
