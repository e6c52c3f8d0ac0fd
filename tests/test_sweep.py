"""The sweep removes what runs left: of one, of all, of the old ones; it asks, and touches nothing else."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import gevent
import pytest

from tests.scripted import TINY, Scripted, accesses, page, rows
from treadstone_user.eventlog import read_events, utc_now
from treadstone_user.exitcode import ExitCode
from treadstone_user.ledger import Fate, Ledger
from treadstone_user.model import Sandbox, SandboxPage
from treadstone_user.sweep import ask_on_terminal, open_run, read_age, still_runs, sweep_run, sweep_server
from treadstone_user.transports.base import ConfigError

URL = "https://treadstone.example.com"
OLD, YOUNG, OURS = "20260101-000000", "20261201-010000", "20261130-120000"
NOW = datetime(2026, 12, 1, 2, 0, 0, tzinfo=UTC)


class _Server:
    """A server with sandboxes of several runs, and of others."""

    def __init__(self, **by_run: int) -> None:
        self.there = {one.id: one for one in rows(3)}
        for run_id, count in by_run.items():
            for number in range(count):
                name = f"{run_id}/{number}"
                labels = {"loadtest": f"run-{run_id}"}
                self.there[name] = Sandbox(id=name, template=TINY, status="ready", labels=labels)
        self.transport = Scripted(on_list=self._list, on_delete=self._delete)

    def _list(self, _: int) -> SandboxPage:
        return page(*self.there.values())

    def _delete(self, name: str) -> None:
        del self.there[name]

    def of(self, run_id: str) -> int:
        """How many sandboxes of a run are there."""
        return sum(name.startswith(f"{run_id}/") for name in self.there)


def _folder(results: Path, run_id: str, **more: Any) -> Path:
    """A run's folder, as a killed run leaves it."""
    path = results / run_id
    path.mkdir(parents=True)
    matrix = [{"template": TINY, "count": 2, "persist": False}]
    run = {"run_id": run_id, "base_url": URL, "scenario": {"matrix": matrix}, "planned": 2, **more}
    (path / "run.json").write_text(json.dumps(run))
    name = {"task": 1, "profile_idx": 0, "template": TINY, "persist": False, "storage_size": None}
    events: list[dict[str, Any]] = [
        {"event": "create_submitted", "worker": "local", "seq": 1, **name},
        {"event": "create_ok", "worker": "local", "seq": 2, **name, "sandbox_id": f"{run_id}/0"},
    ]
    lines = "".join(json.dumps(event) + "\n" for event in events)
    (path / "events.jsonl").write_text(lines + '{"event": "rea')
    return path


def _yes(_: str) -> bool:
    return True


def _sweep(server: _Server, results: Path, **more: Any) -> tuple[ExitCode, list[str]]:
    said: list[str] = []
    orders: dict[str, Any] = {"older_than": None, "ask": _yes, "now": NOW, **more}
    code = sweep_server(
        accesses(server.transport),
        base_url=URL,
        results=results,
        whose="the account of the environment",
        say=said.append,
        **orders,
    )
    return code, said


def test_all_runs_are_removed_and_nobody_elses_sandboxes(tmp_path: Path) -> None:
    """Known here or not; the table tells each run, and the artifacts of those that are here say it."""
    server = _Server(**{OLD: 2, YOUNG: 1})
    folder = _folder(tmp_path, OLD)
    code, said = _sweep(server, tmp_path)
    assert code is ExitCode.OK
    assert sorted(server.there) == ["foreign-0", "foreign-1", "foreign-2"]
    assert OLD in said[0]
    assert "no results of it here" in said[0]
    ledger = Ledger(read_events(folder / "events.jsonl"))
    assert ledger.of(Fate.GONE) == [f"{OLD}/0", f"{OLD}/1"], "also one that its log did not know"
    assert json.loads((folder / "summary.json").read_text())["cleanup"]["verified"] is True
    assert [path.name for path in tmp_path.iterdir()] == [OLD], "a run that is not ours gets no folder"


def test_only_the_old_ones(tmp_path: Path) -> None:
    """By the time in the run's id."""
    server = _Server(**{OLD: 2, YOUNG: 1})
    code, said = _sweep(server, tmp_path, older_than=timedelta(hours=2))
    assert (code, server.of(OLD), server.of(YOUNG)) == (ExitCode.OK, 0, 1)
    assert "too young: left alone" in said[0]


@pytest.mark.parametrize(
    ("answer", "left", "code"), [(False, 3, ExitCode.LEFT_BEHIND), (True, 0, ExitCode.OK)]
)
def test_more_than_one_run_is_asked_for(tmp_path: Path, answer: bool, left: int, code: ExitCode) -> None:
    """With numbers and the server; a no removes nothing."""
    server, asked = _Server(**{OLD: 2, YOUNG: 1}), []

    def ask(question: str) -> bool:
        asked.append(question)
        return answer

    assert _sweep(server, tmp_path, ask=ask)[0] is code
    assert asked == [f"remove 3 sandboxes of 2 runs on {URL}?"]
    assert server.of(OLD) + server.of(YOUNG) == left


def _must_not_ask(_: str) -> bool:
    raise AssertionError


def test_one_run_with_its_results_here_is_not_asked_for(tmp_path: Path) -> None:
    """It is this person's, and it is over."""
    _folder(tmp_path, OLD)
    assert _sweep(_Server(**{OLD: 2}), tmp_path, ask=_must_not_ask)[0] is ExitCode.OK


def test_one_run_without_results_here_is_asked_for(tmp_path: Path) -> None:
    """It may go on on another machine, or in another folder."""
    server = _Server(**{OLD: 2})
    assert _sweep(server, tmp_path, ask=lambda question: False)[0] is ExitCode.LEFT_BEHIND
    assert server.of(OLD) == 2


def test_a_run_that_goes_on_here_is_left_alone_however_its_server_is_written(tmp_path: Path) -> None:
    """Localhost and 127.0.0.1 are one server, and nobody can tell by the text."""
    server = _Server(**{OURS: 2})
    going = {"pid": os.getpid(), "host": platform.node(), "finished_at": None, "started_at": utc_now()}
    _folder(tmp_path, OURS, base_url="https://another.name.example.com", **going)
    code, said = _sweep(server, tmp_path)
    assert (code, server.of(OURS)) == (ExitCode.OK, 2)
    assert "still goes on: left alone" in said[0]


def test_a_run_whose_folder_is_damaged_is_swept_by_its_label_and_the_others_too(tmp_path: Path) -> None:
    """One bad folder stops nothing."""
    server = _Server(**{OLD: 2, YOUNG: 1})
    _folder(tmp_path, OLD, scenario=None)
    _folder(tmp_path, YOUNG)
    assert _sweep(server, tmp_path)[0] is ExitCode.OK
    assert server.of(OLD) + server.of(YOUNG) == 0


def test_a_create_that_was_on_its_way_when_the_run_was_killed_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty list right after the kill proves nothing: a proxy may still hold the request."""
    monkeypatch.setattr("treadstone_user.sweep._SETTLE_SEC", 1.0)
    path = _folder(tmp_path, OLD)
    about = {"task": 2, "profile_idx": 0, "template": TINY, "persist": False, "storage_size": None}
    event = {"event": "create_submitted", "ts": utc_now(), "worker": "local", "seq": 3, **about}
    (path / "events.jsonl").write_text(json.dumps(event) + "\n")
    server = _Server()

    def land() -> None:
        server.there["late"] = Sandbox(
            id="late", template=TINY, status="creating", labels={"loadtest": f"run-{OLD}"}
        )

    gevent.spawn_later(0.5, land)
    said: list[str] = []
    assert sweep_run(path, open_run(path), accesses(server.transport), say=said.append) is ExitCode.OK
    assert "late" not in server.there
    assert "1 creates without an answer may still make sandboxes" in said[0]


def test_a_run_that_still_goes_on_here_is_left_alone(tmp_path: Path) -> None:
    """Its process lives on this machine."""
    server = _Server(**{OLD: 1, OURS: 2})
    _folder(tmp_path, OURS, pid=os.getpid(), host=platform.node(), finished_at=None, started_at=utc_now())
    code, said = _sweep(server, tmp_path)
    assert (code, server.of(OLD), server.of(OURS)) == (ExitCode.OK, 0, 2)
    assert "still goes on: left alone" in said[0]


def test_a_folder_of_the_same_name_of_another_server_is_not_that_run(tmp_path: Path) -> None:
    """Its artifacts tell of other sandboxes."""
    server = _Server(**{OLD: 2})
    folder = _folder(tmp_path, OLD, base_url="https://other.example.com")
    before = sorted((path.name, path.read_bytes()) for path in folder.iterdir())
    code, said = _sweep(server, tmp_path)
    assert (code, server.of(OLD)) == (ExitCode.OK, 0)
    assert "no results of it here" in said[0]
    assert sorted((path.name, path.read_bytes()) for path in folder.iterdir()) == before


def test_nothing_there_is_said(tmp_path: Path) -> None:
    """And is all well."""
    assert _sweep(_Server(), tmp_path) == (
        ExitCode.OK,
        [f"nothing to remove on {URL}, for the account of the environment"],
    )


def test_a_process_that_only_has_the_number_of_a_killed_run_is_not_that_run(tmp_path: Path) -> None:
    """Numbers are given again; and a process that was killed may wait for its parent to take note."""
    ended = {"host": platform.node(), "finished_at": None, "started_at": utc_now()}
    assert still_runs({**ended, "pid": os.getpid()})
    for nonsense in (0, -1, 10**20):
        assert not still_runs({**ended, "pid": nonsense})
    assert not still_runs({**ended, "pid": os.getpid(), "started_at": "2020-01-01T00:00:00.000Z"})
    killed = subprocess.Popen(["sleep", "60"])
    killed.kill()
    os.waitid(os.P_PID, killed.pid, os.WEXITED | os.WNOWAIT)
    assert not still_runs({**ended, "pid": killed.pid})
    killed.wait()
    assert not still_runs({**ended, "pid": killed.pid})


def test_it_can_be_repeated(tmp_path: Path) -> None:
    """A second sweep finds nothing, counts nothing twice, and says the same."""
    server = _Server(**{OLD: 2})
    folder = _folder(tmp_path, OLD)
    for _ in range(2):
        said: list[str] = []
        assert sweep_run(folder, open_run(folder), accesses(server.transport), say=said.append) is ExitCode.OK
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["overall"]["deleted_ok"] == 2
    assert Ledger(read_events(folder / "events.jsonl")).may_be_there == 0


def test_events_that_only_a_dead_worker_knew_come_into_the_log(tmp_path: Path) -> None:
    """From its spool, once, however often the sweep runs."""
    folder = _folder(tmp_path, OLD)
    (folder / "spool").mkdir()
    event = {"event": "create_submitted", "worker": "w1", "seq": 7, "task": 9, "template": TINY}
    event |= {"profile_idx": 0, "persist": False, "storage_size": None}
    (folder / "spool" / "w1.jsonl").write_text(json.dumps(event) + "\n")
    for _ in range(2):
        sweep_run(folder, open_run(folder), accesses(_Server().transport), say=lambda line: None)
    found = [e for e in read_events(folder / "events.jsonl") if e["worker"] == "w1"]
    assert [e["task"] for e in found] == [9]


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("it had a server of its own", {"local_server": True}, "ended with it"),
    ("it goes on", {"pid": os.getpid(), "host": platform.node(), "started_at": utc_now()}, "still goes on"),
    ("it is of another folder", {"run_id": "20250101-000000"}, "belongs to another run"),
    ("it has no scenario", {"scenario": None}, "holds no scenario"),
    ("it has no server", {"base_url": None}, "belongs to another run"),
]


@pytest.mark.parametrize(("more", "reason"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_a_run_that_may_not_be_swept_is_told_why(tmp_path: Path, more: dict[str, Any], reason: str) -> None:
    """And nothing is written."""
    path = _folder(tmp_path, OLD)
    run = json.loads((path / "run.json").read_text()) | more
    (path / "run.json").write_text(json.dumps(run))
    with pytest.raises(ConfigError, match=reason):
        open_run(path)


@pytest.mark.parametrize(
    ("text", "age"),
    [("90m", timedelta(minutes=90)), ("2h", timedelta(hours=2)), (" 7d ", timedelta(days=7))],
)
def test_ages(text: str, age: timedelta) -> None:
    """Minutes, hours and days."""
    assert read_age(text) == age


@pytest.mark.parametrize("text", ["", "2", "h", "-2h", "2.5h", "2 h", "9999999h", "2w"])
def test_what_is_no_age(text: str) -> None:
    """It is told with an example."""
    with pytest.raises(ValueError, match="90m, 2h or 7d"):
        read_age(text)


def test_nobody_there_to_ask_is_a_mistake_to_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a cron job: --yes says it."""
    monkeypatch.setattr("sys.stdin", open(os.devnull))  # noqa: SIM115, PTH123
    with pytest.raises(ConfigError, match="--yes"):
        ask_on_terminal("remove?")
