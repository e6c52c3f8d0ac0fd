"""The ledger knows from events alone which sandboxes there may be."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scripted import sandbox
from treadstone_user.ledger import Fate, Ledger
from treadstone_user.model import EventKind

ABOUT = {"task": 1, "profile_idx": 0, "template": "t", "persist": False, "storage_size": None}


def _ledger(*events: tuple[str, dict[str, Any]]) -> Ledger:
    ledger = Ledger()
    for kind, fields in events:
        ledger.add({"event": kind, **ABOUT, **fields})
    return ledger


SUBMITTED: tuple[str, dict[str, Any]] = ("create_submitted", {})


def _of(kind: str, name: str) -> tuple[str, dict[str, Any]]:
    return kind, {"sandbox_id": name, "latency_ms": 1.0}


def _refused(kind: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "create_err", {"error_kind": kind, **more}


def _lost(name: str | None, *, submitted: bool = True) -> tuple[str, dict[str, Any]]:
    return "lost", {"sandbox_id": name, "submitted": submitted}


LIVES: list[tuple[str, list[tuple[str, dict[str, Any]]], list[str], int, list[str]]] = [
    # what it proves; events; expected to be there, creates without an answer, those that got ready
    ("nothing yet", [], [], 0, []),
    ("a create on its way", [SUBMITTED], [], 1, []),
    ("an answered one", [SUBMITTED, _of("create_ok", "a")], ["a"], 0, []),
    ("one that got ready", [SUBMITTED, _of("create_ok", "a"), _of("ready", "a")], ["a"], 0, ["a"]),
    ("one that is gone", [SUBMITTED, _of("create_ok", "a"), _of("delete_ok", "a")], [], 0, []),
    (
        "one that could not be deleted",
        [SUBMITTED, _of("create_ok", "a"), _of("delete_err", "a")],
        ["a"],
        0,
        [],
    ),
    ("one that failed", [SUBMITTED, _of("create_ok", "a"), _of("failed_status", "a")], ["a"], 0, []),
    ("a refused create", [SUBMITTED, _refused("quota_exceeded")], [], 0, []),
    ("a lost answer", [SUBMITTED, _refused("request_timeout")], [], 1, []),
    ("an answer that nobody can read", [SUBMITTED, _refused("bad_output")], [], 1, []),
    ("a broken connection", [SUBMITTED, _refused("connect_error")], [], 1, []),
    ("lost in its create", [SUBMITTED, _lost(None)], [], 1, []),
    ("lost while it was waited for", [SUBMITTED, _of("create_ok", "a"), _lost("a")], ["a"], 0, []),
    ("lost before anybody knew", [_lost(None, submitted=False)], [], 0, []),
    ("a foreign one that the clean-up removed", [_of("delete_ok", "x")], [], 0, []),
]


@pytest.mark.parametrize(
    ("events", "left", "unanswered", "ready"), [row[1:] for row in LIVES], ids=[row[0] for row in LIVES]
)
def test_what_there_may_be(
    events: list[tuple[str, dict[str, Any]]], left: list[str], unanswered: int, ready: list[str]
) -> None:
    """Made and not deleted is left; a create of which nobody heard may have made one."""
    ledger = _ledger(*events)
    assert (ledger.of(Fate.LEFT), ledger.unanswered, ledger.ready) == (left, unanswered, ready)


def test_a_delete_is_a_promise_and_gone_is_what_a_list_has_shown() -> None:
    """Removed, and not yet gone; what comes after that changes nothing."""
    ledger = _ledger(SUBMITTED, _of("create_ok", "a"), _of("create_ok", "b"), _of("delete_ok", "a"))
    assert (ledger.of(Fate.REMOVED), ledger.of(Fate.LEFT), ledger.of(Fate.GONE)) == (["a"], ["b"], [])
    assert ledger.may_be_there == 2
    for event in (
        {"event": "gone", **ABOUT, "sandbox_id": "a"},
        {"event": "delete_ok", **ABOUT, "sandbox_id": "a"},
    ):
        ledger.add(event)
        assert ledger.of(Fate.GONE) == ["a"]
    assert ledger.may_be_there == 1


def test_a_lost_create_needs_a_while_to_settle() -> None:
    """Where an answer was lost the server may still be at it; a refusal is settled at once."""
    assert _ledger(SUBMITTED, _refused("quota_exceeded", t_ms=500.0)).settles_at_ms == 0.0
    assert _ledger(SUBMITTED, _refused("request_timeout", t_ms=500.0)).settles_at_ms == 3500.0


def test_a_call_of_a_lost_worker_needs_a_while_to_settle() -> None:
    """The worker is gone, but the server may still be at its create."""
    assert _ledger(SUBMITTED, _lost(None)).settles_at_ms > 0
    assert _ledger(SUBMITTED, _of("create_ok", "a"), _lost("a")).settles_at_ms == 0.0


def test_of_a_log_with_gaps_it_tells_what_the_log_tells() -> None:
    """As of a killed run, or of another version: nothing is invented, nothing fails."""
    kinds = [str(kind) for kind in EventKind]
    assert Ledger([{"event": kind} for kind in kinds]).may_be_there == 0
    assert Ledger([{"event": "delete_ok", "sandbox_id": "a"}]).of(Fate.REMOVED) == ["a"]


def test_events_name_a_sandbox_by_its_task() -> None:
    """One that the run made is named by its task, another by what it shows of itself."""
    ledger = _ledger(SUBMITTED, _of("create_ok", "a"))
    assert ledger.describe("a") == ledger.about(sandbox("a")) == {**ABOUT, "sandbox_id": "a"}
    assert ledger.about(sandbox("x"))["task"] is None
    assert ledger.about(sandbox("x"))["sandbox_id"] == "x"


def test_a_sandbox_keeps_its_task_though_somebody_else_deletes_it() -> None:
    """Who only finds it in the list does not know its task."""
    ledger = _ledger(SUBMITTED, _of("create_ok", "a"))
    ledger.add({"event": "delete_ok", **ABOUT, "task": None, "sandbox_id": "a"})
    assert ledger.describe("a")["task"] == 1
