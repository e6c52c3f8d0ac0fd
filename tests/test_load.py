"""A load ends where waiting on makes no sense, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gevent
import pytest

from tests.scripted import TINY, Scripted, accesses, page, sandbox, taking_turns
from treadstone_user import load as module
from treadstone_user.eventlog import EventLog, read_events
from treadstone_user.load import Load, LoadRules
from treadstone_user.model import SandboxPage, Task, Variant
from treadstone_user.plan import FixedPlan, TurnPlan
from treadstone_user.scenario import Scenario
from treadstone_user.sections import Job
from treadstone_user.stock import Stock
from treadstone_user.transports.base import ConnectError, api_error

EXPIRED = api_error(401, "Invalid or expired API key.")
AWAY = ConnectError("Connection refused")


def _told(folder: Path, on_list: Callable[[int], SandboxPage], *, wait_sec: float) -> list[str]:
    """What a load with one sandbox that never gets ready says of the end."""
    variant = Variant(0, TINY, 1)
    hopeless: list[str] = []
    log = EventLog(folder / "events.jsonl", worker="local")
    load = Load(
        accesses=accesses(Scripted(on_create=lambda _: sandbox("a"), on_list=on_list)),
        plan=FixedPlan([Task(1, variant)]),
        turns=TurnPlan(None),
        stock=Stock(),
        rules=LoadRules(
            Scenario(name="x", description="", matrix=(variant,), poll_interval_sec=0.02),
            "loadtest:x",
            steady=False,
            ask_later=True,
        ),
        log=log,
        report=lambda step: None,
        on_hopeless=hopeless.append,
        say=lambda line: None,
    )
    worker = gevent.spawn(load.do, Job.LIFECYCLE)
    gevent.sleep(wait_sec)
    load.drain()
    worker.kill()
    log.close()
    assert [event["event"] for event in read_events(folder / "events.jsonl")][-1] == "interrupted"
    return hopeless


def test_three_refusals_in_a_row_end_it(tmp_path: Path) -> None:
    """The credential has expired: it is told at once, and not after the timeout."""
    told = _told(tmp_path, taking_turns(EXPIRED), wait_sec=0.3)
    assert told[0] == "the server refuses the credential (Invalid or expired API key.): the run ends"


def test_a_single_refusal_does_not(tmp_path: Path) -> None:
    """A gateway may have had a moment."""
    answers = taking_turns(EXPIRED, EXPIRED, AWAY, EXPIRED, EXPIRED, page(sandbox("a")))
    assert _told(tmp_path, answers, wait_sec=0.5) == []


def test_a_server_that_is_away_for_long_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once no poll was answered for so long."""
    monkeypatch.setattr(module, "HOPELESS_SEC", 0.15)
    told = _told(tmp_path, taking_turns(page(sandbox("a")), AWAY), wait_sec=0.5)
    assert told[0] == "the server has answered no poll for 0.15 s: the run ends"


def test_one_that_comes_back_in_time_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every answered poll begins the count anew."""
    monkeypatch.setattr(module, "HOPELESS_SEC", 0.15)
    there = page(sandbox("a"))
    answers = [AWAY, AWAY, there] * 10
    assert _told(tmp_path, taking_turns(*answers, there), wait_sec=0.5) == []
