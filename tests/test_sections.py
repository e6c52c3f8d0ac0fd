"""A scenario's sections beside the matrix: what they mean, and every mistake in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from treadstone_user.scenario import UNBOUNDED, Scenario, load_scenario, parse_scenario, restore_scenario
from treadstone_user.sections import DataSource, ExecRules, Job, Query, QueryRules, StreamRules
from treadstone_user.transports.base import ScenarioError

MATRIX = [{"template": "t", "count": 3}]


def _scenario(**content: Any) -> Scenario:
    return parse_scenario(json.dumps({"name": "x", **content}), source="s")


def _problems(**content: Any) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        _scenario(**content)
    return [problem.removeprefix("s: ") for problem in caught.value.problems]


@pytest.fixture(name="file")
def _file(tmp_path: Path) -> str:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"command": "true"}\n')
    return str(path)


def test_nothing_is_said_nothing_is_done() -> None:
    """A scenario of before has lifecycles alone."""
    scenario = _scenario(matrix=MATRIX)
    assert (scenario.exec, scenario.query, scenario.stream, scenario.accounts) == (None, None, None, None)
    assert (scenario.jobs, scenario.concurrency) == ({Job.LIFECYCLE: 1}, 10)
    assert not {"exec", "query", "stream", "accounts", "weights"} & scenario.snapshot().keys()


def test_a_command_may_stand_alone_or_with_its_rules(file: str) -> None:
    """And without one, it is the row's."""
    assert _scenario(matrix=MATRIX, exec="echo hi").exec == ExecRules("echo hi")
    rules = {"command": "echo $a", "data": file, "timeout_sec": 5, "retry_sec": 0.5}
    assert _scenario(matrix=MATRIX, exec=rules).exec == ExecRules("echo $a", DataSource(file), 5, 0.5)
    assert _scenario(matrix=MATRIX, exec={"data": file}).exec == ExecRules("$command", DataSource(file))


def test_queries_and_streams_need_no_matrix(file: str) -> None:
    """Then their users bound what is in flight."""
    scenario = _scenario(query={"mix": {"get": 2, "list": 0}}, stream={}, weights={"query": 3})
    assert scenario.query == QueryRules({Query.GET: 2})
    assert scenario.stream == StreamRules(body={"command": "echo hello"})
    assert scenario.jobs == {Job.QUERY: 3, Job.STREAM: 1}
    assert (scenario.total, scenario.concurrency) == (0, UNBOUNDED)
    data = {"file": file, "order": "random", "on_end": "stop", "seed": 7}
    stream = _scenario(stream={"path": "/v1/x", "method": "GET", "data": data, "pause_sec": 1}).stream
    assert stream == StreamRules("/v1/x", "GET", None, DataSource(file, "random", "stop", 7), 120, 1)
    assert _scenario(query=None).query is not None, "an empty section takes the defaults"


def test_a_weight_of_none_leaves_a_job_out() -> None:
    """As if its section were not there."""
    assert _scenario(matrix=MATRIX, query={}, weights={"lifecycle": 0, "query": 1}).jobs == {Job.QUERY: 1}


def test_a_snapshot_gives_the_scenario_again(file: str) -> None:
    """As a worker reads it, who has the files where the master has them."""
    scenario = _scenario(
        matrix=MATRIX,
        exec={"command": "x", "data": file},
        query={"mix": {"usage": 1}},
        stream={"data": {"file": file, "on_end": "stop"}},
        weights={"lifecycle": 2},
        accounts=file,
    )
    assert restore_scenario(json.loads(json.dumps(scenario.snapshot())), source="s") == scenario
    alone = _scenario(query={})
    assert restore_scenario(json.loads(json.dumps(alone.snapshot())), source="s") == alone


def test_files_are_found_here_or_beside_the_scenario(tmp_path: Path) -> None:
    """The path is then the one where it was found."""
    (tmp_path / "rows.csv").write_text("a\n1\n")
    path = tmp_path / "s.yaml"
    path.write_text("name: x\nstream: {data: rows.csv}\n")
    stream = load_scenario(path).stream
    assert stream is not None
    assert stream.data == DataSource(str(tmp_path / "rows.csv"))


NO_MIX = "query.mix: one of list, get, whoami, templates, usage must be above 0"
WRONG: list[tuple[dict[str, Any], list[str]]] = [
    ({"exec": 3}, ["exec: must hold command, data, timeout_sec, retry_sec, not 3"]),
    (
        {"exec": {"comand": "x"}},
        ["exec.comand: unknown key; did you mean command?", "exec.command: is required"],
    ),
    ({"exec": {"command": "x", "timeout_sec": 0}}, ["exec.timeout_sec: must be a number of seconds above"]),
    ({"exec": {"data": "none.csv"}}, ["exec.data.file: there is no file 'none.csv'"]),
    ({"exec": {"data": {"order": "x"}}}, ["exec.data.file: is required", "exec.data.order: must be seq"]),
    ({"query": 3}, ["query: must hold mix, pause_sec, not 3"]),
    ({"query": {"mix": {"gett": 1}}}, ["query.mix.gett: unknown key; did you mean get?", NO_MIX]),
    ({"query": {"mix": {"get": -1}}}, ["query.mix.get: must be a whole number, 0 or more", NO_MIX]),
    ({"query": {"mix": {"get": 0}}}, [NO_MIX]),
    ({"query": {"pause_sec": -1}}, ["query.pause_sec: must be a number of seconds, 0 or more, not -1"]),
    ({"stream": {"method": "GET", "body": {}}}, ["stream.body: a GET has none"]),
    ({"exec": {"data": {"file": __file__, "on_end": "stop"}}}, ["exec.data: on_end must be cycle"]),
    ({"stream": {"path": "v1/x"}}, ["stream.path: must begin with a slash, not 'v1/x'"]),
    ({"stream": {"method": "PUT"}}, ["stream.method: must be GET or POST, not 'PUT'"]),
    ({"stream": {"body": "x"}}, ["stream.body: must hold the keys of a JSON object, not 'x'"]),
    ({"stream": {"data": {"file": 3}}}, ["stream.data.file: must be text, not 3"]),
    ({"weights": {"queries": 1}}, ["weights.queries: unknown key; did you mean query?", "weights: one of"]),
    ({"weights": 3}, ["weights: must hold lifecycle, query, stream, not 3"]),
    ({"accounts": ""}, ["accounts: must not be empty"]),
    ({"accounts": "none.json"}, ["accounts: there is no file 'none.json', here or beside the scenario"]),
]


@pytest.mark.parametrize(("content", "told"), WRONG)
def test_mistakes_are_told_with_their_paths(content: dict[str, Any], told: list[str]) -> None:
    """All of a file at once, and nothing else."""
    problems = _problems(matrix=MATRIX, **content)
    assert len(problems) == len(told), problems
    for problem, begins in zip(problems, told, strict=True):
        assert problem.startswith(begins)


def test_files_are_written_down_so_that_they_are_found_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep or a worker may run in another folder."""
    (tmp_path / "assets.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.yaml").write_text("name: x\nquery: {}\naccounts: assets.json\n")
    assert load_scenario(Path("one.yaml")).accounts == str(tmp_path / "assets.json")


def test_a_command_wants_sandboxes() -> None:
    """Queries alone make none."""
    problems = _problems(query={}, exec="true")
    assert problems == ["exec: without a matrix there is no sandbox to run it in"]


def test_a_matrix_is_required_where_nothing_else_is_to_be_done() -> None:
    """As ever."""
    assert _problems(weights={"query": 1}) == ["matrix: is required"]
