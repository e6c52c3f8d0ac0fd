"""More kinds of load: a first command in each sandbox, queries, streams, alone and mixed."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.prepared import Prep
from tests.runs import Run, finished, free_port, json_lines, scenario_file, seconds
from tests.servers import LocalServer
from tests.test_e2e_webui import WebUi

HTTP = ("--transport", "http")
RHYTHM = "stream=0.3+50x0.02 chunks=mixed"


@pytest.fixture(scope="module", name="prep")
def _prep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prep]:
    """Five accounts with two ready sandboxes each, whose streams have a known rhythm."""
    folder = tmp_path_factory.mktemp("prep")
    profile = f"ready=fixed(0.2) {RHYTHM}"
    with LocalServer(profile=profile, requests=folder / "requests.jsonl") as server:
        prep = Prep(server, folder)
        prep.ready(5)
        code, said = prep.run("sandboxes", "--count", "2")
        assert code == 0, said
        yield prep


def _scenario(folder: Path, **content: Any) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "jobs.yaml"
    path.write_text(json.dumps({"name": "jobs", **content}))
    return str(path)


def _at(prep: Prep) -> tuple[str, ...]:
    return ("--base-url", prep.server.base_url, *HTTP)


def test_the_first_answer_holds_what_ready_does_not(tmp_path: Path) -> None:
    """The proxy lags ready by 1.5 s: the command is sent until it answers, with the truth in its bounds."""
    scenario = scenario_file(tmp_path, 10, exec={"command": "echo hello", "retry_sec": 0.1})
    profile = "ready=uniform(0.5,1) proxy=fixed(1.5)"
    code, run = finished(tmp_path, "--scenario", scenario, "--local", "--local-profile", profile, *HTTP)
    assert code == 0, run.output
    result = run.only
    answers = {event["sandbox_id"]: event for event in result.events("exec_ok")}
    readies = {event["sandbox_id"]: event for event in result.events("ready")}
    assert len(answers) == len(readies) == 10
    for truth in result.truth:
        since = seconds(truth["created"])
        answer, ready = answers[truth["id"]], readies[truth["id"]]
        true_ms = (seconds(truth["first_exec"]) - since) * 1000
        assert answer["first_answer_after_ms"] - 100 <= true_ms <= answer["first_answer_ms"] + 10
        assert answer["first_answer_ms"] - true_ms < 500
        assert answer["first_answer_ms"] - answer["first_answer_after_ms"] < 500
        assert answer["first_answer_ms"] - ready["ready_after_ms"] > 1400
        assert ready["ready_latency_ms"] - (seconds(truth["ready"]) - since) * 1000 < 1000
        assert answer["tries"] > 3
    overall = result.overall
    lag = overall["first_answer_ms"]["p50"] - overall["server_ready_ms"]["p50"]
    assert 1400 < lag < 2100
    assert "first answer all" in run.output


def test_a_command_that_fails_is_told_by_its_cause(tmp_path: Path) -> None:
    """Its exit code, or the proxy's status; a failure of the proxy is tried again, another one is not."""
    scenario = scenario_file(tmp_path / "code", 2, exec="exit 3")
    code, run = finished(tmp_path / "code", "--scenario", scenario, "--local", *HTTP)
    assert (code, run.only.overall["exec_errors"]) == (1, {"exit_code_3": 2})
    scenario = scenario_file(tmp_path / "never", 1, exec={"command": "true", "timeout_sec": 1})
    code, run = finished(
        tmp_path / "never", "--scenario", scenario, "--local", "--local-profile", "proxy=fixed(99)", *HTTP
    )
    assert (code, run.only.overall["exec_errors"]) == (1, {"502": 1})
    assert "commands failed: 1 x 502" in run.output


def test_the_runs_end_waits_for_no_command(tmp_path: Path) -> None:
    """Commands that take minutes are cut off and told as interrupted, and the clean-up begins at once."""
    scenario = scenario_file(tmp_path, 3, exec={"command": "sleep 200", "timeout_sec": 300})
    profile = "ready=fixed(0.2) exec=fixed(200)"
    with Run(
        tmp_path,
        *("--headless", "--scenario", scenario, "--local", "--local-profile", profile, *HTTP),
    ) as run:
        run.until_event("ready", 3)
        asked = time.monotonic()
        run.send(signal.SIGINT)
        run.wait(timeout=20)
        assert time.monotonic() - asked < 15
    result = run.only
    ends = [(event["error_kind"], event["http_status"]) for event in result.events("exec_err")]
    assert ends == [("interrupted", None)] * 3
    assert result.overall["exec_err"] == 0, "the server did nothing wrong"
    assert result.summary["cleanup"]["verified"]


def test_commands_come_from_a_file_one_for_each_sandbox(tmp_path: Path) -> None:
    """Over two workers each task has its own row; the server tells by its answer what was run."""
    rows = tmp_path / "commands.csv"
    rows.write_text("command,code\n" + "".join(f"exit {n},{n}\n" for n in range(1, 9)))
    scenario = scenario_file(tmp_path, 8, exec={"data": str(rows)})
    code, run = finished(tmp_path, "--scenario", scenario, "--local", *HTTP, "--processes", "2")
    assert code == 1
    assert run.only.overall["exec_errors"] == {f"exit_code_{n}": 1 for n in range(1, 9)}


def test_queries_are_what_the_server_has_heard(prep: Prep, tmp_path: Path) -> None:
    """Each that was counted was asked, over all accounts and sandboxes, in the proportions of the mix."""
    before = len(json_lines(prep.folder / "requests.jsonl"))
    mix = {"list": 1, "get": 2, "usage": 1}
    scenario = _scenario(tmp_path, accounts=str(prep.store), query={"mix": mix, "pause_sec": 0.01})
    code, run = finished(tmp_path, "--scenario", scenario, *_at(prep), "-u", "4", "-r", "4", "-t", "2s")
    assert code == 0, run.output
    result = run.only
    found = result.summary["queries"]
    assert set(found) == set(mix)
    asked = {query: figures["asked"] for query, figures in found.items()}
    assert min(asked.values()) > 20
    assert 1.2 < asked["get"] / asked["list"] < 3.3
    heard = Counter(
        "get" if line["sandbox_id"] else line["path"]
        for line in json_lines(prep.folder / "requests.jsonl")[before:]
        if "path" in line
    )
    assert heard["get"] == asked["get"]
    assert heard["/v1/sandboxes"] == asked["list"] + 5, "the list of what earlier runs left, for each account"
    assert heard["/v1/usage"] == asked["usage"] + 5
    gets = [event for event in result.events("query_ok") if event["query"] == "get"]
    assert {event["sandbox_id"] for event in gets} == {one["id"] for one in prep.content["sandboxes"]}
    everyone = {user["email"] for user in prep.content["users"]}
    for query in mix:
        assert {
            event["account"] for event in result.events("query_ok") if event["query"] == query
        } == everyone
    assert result.summary["cleanup"] == {"ran": False, "reason": "the run makes no sandboxes"}
    assert result.run["jobs"] == ["query"]


def test_a_query_user_needs_no_scenario(prep: Prep, tmp_path: Path) -> None:
    """Named on the command line, through the real CLI but for what that has no command for."""
    key = prep.content["api_keys"][0]["key"]
    code, run = finished(
        tmp_path,
        *("QueryUser", "--base-url", prep.server.base_url, "-t", "3s", "-u", "2"),
        environment={"TREADSTONE_API_KEY": key},
    )
    assert code == 0, run.output
    assert {"list", "get"} <= set(run.only.summary["queries"])
    assert run.only.overall["submitted"] == 0


@pytest.mark.parametrize("path", ["/v1/shell/exec", "/v1/chat/completions", "/v1/events"])
def test_streams_flow_as_they_were_written(prep: Prep, tmp_path: Path, path: str) -> None:
    """Fifty outputs every 20 ms after 300 ms, in chunks cut at random: each counted, and timed as written."""
    before = len(json_lines(prep.folder / "requests.jsonl"))
    bodies = {"/v1/chat/completions": {"model": "m", "stream": True, "messages": []}}
    method = "GET" if path == "/v1/events" else "POST"
    scenario = _scenario(
        tmp_path, accounts=str(prep.store), stream={"path": path, "method": method, "body": bodies.get(path)}
    )
    code, run = finished(tmp_path, "--scenario", scenario, *_at(prep), "-u", "5", "-r", "5", "-t", "3s")
    assert code == 0, run.output
    events = [event for event in run.only.events("stream_ok") if event["ended"] == "done"]
    lines = json_lines(prep.folder / "requests.jsonl")[before:]
    written = [line for line in lines if line.get("outputs") == 50]
    assert len(written) >= len(events) >= 5
    for event in events:
        assert event["outputs"] == 50
        assert abs(event["mean_gap_ms"] - 20) < 5
        assert 295 < event["first_output_ms"] < 600
        assert event["tokens"] == (50 if "chat" in path else None)
    (found,) = run.only.summary["streams"].values()
    assert found["asked"] == len(run.only.events("stream_ok", "stream_err"))
    assert 40 < found["outputs_per_sec"]["p50"] < 55


def test_every_row_of_a_file_is_used_once(prep: Prep, tmp_path: Path) -> None:
    """By two workers together, as it stands in the file; then the run ends by itself."""
    rows = tmp_path / "prompts.jsonl"
    rows.write_text("".join(json.dumps({"prompt": "x" * n}) + "\n" for n in range(1, 13)))
    scenario = _scenario(
        tmp_path,
        accounts=str(prep.store),
        stream={"body": {"command": "echo $prompt"}, "data": {"file": str(rows), "on_end": "stop"}},
    )
    code, run = finished(
        tmp_path, "--scenario", scenario, *_at(prep), "-u", "4", "-r", "4", "--processes", "2"
    )
    assert code == 0, run.output
    result = run.only
    events = result.events("stream_ok")
    assert sorted(event["turn"] for event in events) == list(range(1, 13))
    assert {event["worker"] for event in events} == {"w1", "w2"}
    numbers = sum(len(f" {n}\n") for n in range(50))  # each of the outputs is the prompt and its number
    assert all(event["characters"] == 50 * event["turn"] + numbers for event in events)
    assert result.run["ending"] == "completed"


def test_broken_streams_fail_and_what_came_counts(tmp_path: Path) -> None:
    """The connection goes after half of the outputs."""
    scenario = _scenario(
        tmp_path,
        matrix=[{"template": "aio-sandbox-tiny", "count": 1}],
        poll_interval_sec=0.2,
        stream={"data": None},
        weights={"lifecycle": 1, "stream": 2},
    )
    profile = "ready=fixed(0.2) stream=0.05+10x0.01 breaks=100%"
    code, run = finished(
        tmp_path, "--scenario", scenario, "--local", "--local-profile", profile, *HTTP, "-t", "3s", "-u", "3"
    )
    assert code == 1
    (found,) = run.only.summary["streams"].values()
    cut_off_by_the_end = found["endings"].get("stopped", 0)
    assert found["failed"] == found["errors"]["stream_broken"] == found["asked"] - cut_off_by_the_end > 3
    assert {event["outputs"] for event in run.only.events("stream_err")} == {5}


@pytest.mark.parametrize("more", [{}, {"exec": "true"}], ids=["by streams alone", "after a first command"])
def test_streams_wait_until_the_proxy_reaches_a_sandbox(tmp_path: Path, more: dict[str, Any]) -> None:
    """It lags ready by 1.5 s, and no stream fails for it, nor is its first output told late."""
    scenario = _scenario(
        tmp_path,
        matrix=[{"template": "aio-sandbox-tiny", "count": 2}],
        poll_interval_sec=0.2,
        stream={"pause_sec": 0.1},
        weights={"lifecycle": 1, "stream": 1},
        **more,
    )
    profile = "ready=fixed(0.2) proxy=fixed(1.5) stream=0.05+10x0.01"
    code, run = finished(
        tmp_path, "--scenario", scenario, "--local", "--local-profile", profile, *HTTP, "-u", "2", "-t", "6s"
    )
    assert code == 0, run.output
    (found,) = run.only.summary["streams"].values()
    assert (found["failed"], found["endings"]["done"] > 3) == (0, True)
    assert found["first_output_ms"]["max"] < 1000


@pytest.mark.parametrize("job", [{"query": {}}, {"stream": {}}], ids=["queries", "streams"])
def test_users_go_slower_where_nothing_answers(tmp_path: Path, job: dict[str, Any]) -> None:
    """Of ten users without a pause, whose server goes."""
    with LocalServer(profile="ready=fixed(0.1)") as server:
        prep = Prep(server, tmp_path)
        prep.ready(1)
        code, said = prep.run("sandboxes", "--count", "1")
        assert code == 0, said
        scenario = _scenario(tmp_path, accounts=str(prep.store), **job)
        arguments = ("--headless", "--scenario", scenario, *_at(prep), "-u", "10", "-r", "10")
        with Run(tmp_path / "run", *arguments) as run:
            kind = next(iter(job))
            run.until_event(f"{kind}_ok", 20)
            server.stop()
            run.until_event(f"{kind}_err")
            time.sleep(5)
            assert 20 <= run.count(f"{kind}_err") < 150
            run.send(signal.SIGINT)
            asked = time.monotonic()
            run.wait(timeout=30)
            assert time.monotonic() - asked < 15


def test_queries_end_once_their_key_has_expired(tmp_path: Path) -> None:
    """A run of queries alone has no poller that would tell it."""
    scenario = _scenario(tmp_path, query={"mix": {"list": 1}, "pause_sec": 0.1})
    profile = "expire=3"
    code, run = finished(
        tmp_path, "--scenario", scenario, "--local", "--local-profile", profile, *HTTP, "-u", "5", "-r", "5"
    )
    assert code == 4, run.output
    assert "the server refuses the credential of a query or stream" in run.output
    assert run.only.run["ending"] == "failed"
    assert 3 <= run.count("query_err") < 50


def test_a_mixed_run_does_all_and_ends_with_its_lifecycles(tmp_path: Path) -> None:
    """Queries and streams go on as long as there are sandboxes to make, in what the run itself makes."""
    scenario = _scenario(
        tmp_path,
        matrix=[{"template": "aio-sandbox-tiny", "count": 6}],
        poll_interval_sec=0.2,
        query={"pause_sec": 0.05},
        stream={"pause_sec": 0.05},
        weights={"lifecycle": 3, "query": 1, "stream": 1},
    )
    code, run = finished(
        tmp_path, "--scenario", scenario, "--local", "--local-profile", "ready=uniform(0.2,2)", *HTTP
    )
    assert code == 0, run.output
    result = run.only
    assert (result.overall["ready"], result.run["ending"]) == (6, "completed")
    assert result.run["jobs"] == ["lifecycle", "query", "stream"]
    assert '{"QueryUser": 2, "StreamUser": 2, "TreadstoneUser": 6}' in run.output
    assert result.summary["queries"]["list"]["asked"] > 0
    (found,) = result.summary["streams"].values()
    assert (found["failed"], found["asked"] > 0) == (0, True)
    made = {event["sandbox_id"] for event in result.events("create_ok")}
    assert {event["sandbox_id"] for event in result.events("stream_ok")} <= made


def test_streams_without_sandboxes_are_told_what_to_do(tmp_path: Path) -> None:
    """Before anything runs."""
    scenario = _scenario(tmp_path, stream={})
    code, run = finished(tmp_path, "--scenario", scenario, "--local", *HTTP, "-t", "5s")
    assert (code, run.all) == (2, [])
    assert "make some with python -m prep.sandboxes" in run.output


def test_a_class_without_work_is_told(tmp_path: Path) -> None:
    """A scenario without a matrix makes no sandboxes."""
    scenario = _scenario(tmp_path, query={})
    code, run = finished(tmp_path, "TreadstoneUser", "--scenario", scenario, "--local", *HTTP, "-t", "5s")
    assert (code, "jobs has no matrix" in run.output) == (2, True)


def test_the_class_picker_picks(prep: Prep, tmp_path: Path) -> None:
    """Whatever the scenario has work for, the web UI's picker says who does some."""
    port = free_port()
    web = WebUi(port)
    key = prep.content["api_keys"][0]["key"]
    arguments = ["--class-picker", "--web-port", str(port), "--web-host", "127.0.0.1", *_at(prep)]
    with Run(tmp_path, *arguments, environment={"TREADSTONE_API_KEY": key}) as run:
        run.until(lambda _: web.is_up())
        page = requests.get(f"http://127.0.0.1:{port}/", timeout=10).text
        assert all(name in page for name in ("TreadstoneUser", "QueryUser", "StreamUser"))
        web.start(2, user_classes="QueryUser")
        run.until_event("query_ok", 20)
        web.stop()
        run.until(lambda run: (run.only.path / "summary.json").exists())
        assert (run.only.run["jobs"], run.only.overall["submitted"]) == (["query"], 0)


def test_the_form_changes_what_users_do(tmp_path: Path) -> None:
    """A scenario that the web UI chooses brings its user classes along, also where workers have them."""
    port = free_port()
    web = WebUi(port)
    arguments = ["--web-port", str(port), "--web-host", "127.0.0.1", "--local", *HTTP, "--processes", "2"]
    with Run(tmp_path, *arguments) as run:
        run.until_said("2 workers connected")
        run.until(lambda _: web.is_up())
        web.start(5, scenario="pilot_mixed")
        run.until(lambda run: any((result.path / "summary.json").exists() for result in run.all))
        result = run.only
        assert (result.run["jobs"], result.overall["ready"]) == (["lifecycle", "query", "stream"], 6)
        assert '{"QueryUser": 1, "StreamUser": 1, "TreadstoneUser": 3}' in run.output
        assert result.summary["queries"]
        assert result.summary["streams"]
        assert (result.overall["exec_ok"], result.summary["cleanup"]["verified"]) == (6, True)
