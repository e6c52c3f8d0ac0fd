"""First commands that are cut off: each leaves a record, whoever ends it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gevent

from tests.runs import json_lines
from treadstone_user.commands import FirstCommand
from treadstone_user.eventlog import EventLog
from treadstone_user.sections import ExecRules

ABOUT = {"task": 1, "sandbox_id": "a", "template": "tiny", "persist": False, "storage_size": None}


def test_a_command_that_is_killed_is_told_as_interrupted(tmp_path: Path) -> None:
    """By who waits no longer for calls that do not end."""
    steps: list[Any] = []
    log = EventLog(tmp_path / "events.jsonl", worker="local")
    command = FirstCommand(
        rules=ExecRules("true"), rows=None, log=log, report=steps.append, closing=lambda: False
    )
    access: Any = SimpleNamespace(plane=SimpleNamespace(exec=lambda *_, **__: gevent.sleep(60)))
    at_work = gevent.spawn(command.run, access, ABOUT, proxy="", created=0.0, ready_after=0.0)
    gevent.sleep(0.01)
    at_work.kill()
    log.close()
    (event,) = json_lines(tmp_path / "events.jsonl")
    assert (event["event"], event["error_kind"], event["sandbox_id"]) == ("exec_err", "interrupted", "a")
    assert steps == []
