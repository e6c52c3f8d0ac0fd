"""The progress line says what a run has come to."""

from __future__ import annotations

import gevent
import pytest

from treadstone_user import progress
from treadstone_user.model import EventKind
from treadstone_user.progress import Progress, Tally

SUBMITTED, CREATED, REFUSED = EventKind.CREATE_SUBMITTED, EventKind.CREATE_OK, EventKind.CREATE_ERR
READY, FAILED, LATE = EventKind.READY, EventKind.FAILED_STATUS, EventKind.POLL_TIMEOUT
INTERRUPTED, DELETED, KEPT = EventKind.INTERRUPTED, EventKind.DELETE_OK, EventKind.DELETE_ERR

LINES: list[tuple[str, list[EventKind], int | None, str]] = [
    # what it proves, events so far, planned, the line
    ("before the first", [], 60, "created 0/60, ready 0, failed 0, in flight 0"),
    (
        "a create without an answer is in flight",
        [SUBMITTED],
        60,
        "created 0/60, ready 0, failed 0, in flight 1",
    ),
    ("so is a wait", [SUBMITTED, CREATED], 60, "created 1/60, ready 0, failed 0, in flight 1"),
    ("ready ends it", [SUBMITTED, CREATED, READY], 60, "created 1/60, ready 1, failed 0, in flight 0"),
    ("a refused create failed", [SUBMITTED, REFUSED], 60, "created 0/60, ready 0, failed 1, in flight 0"),
    ("so did a bad status", [SUBMITTED, CREATED, FAILED], 60, "created 1/60, ready 0, failed 1, in flight 0"),
    ("and a timeout", [SUBMITTED, CREATED, LATE], 60, "created 1/60, ready 0, failed 1, in flight 0"),
    (
        "an interrupted wait did not fail",
        [SUBMITTED, CREATED, INTERRUPTED],
        60,
        "created 1/60, ready 0, failed 0, in flight 0",
    ),
    ("without a total none is said", [SUBMITTED], None, "created 0, ready 0, failed 0, in flight 1"),
    (
        "deletes are told once there are any",
        [SUBMITTED, CREATED, READY, KEPT, DELETED],
        None,
        "created 1, ready 1, failed 0, in flight 0, deleted 1",
    ),
    (
        "and so are failed polls",
        [SUBMITTED, CREATED, EventKind.POLL_ERR, EventKind.POLL_ERR],
        None,
        "created 1, ready 0, failed 0, in flight 1, failed polls 2",
    ),
]


@pytest.mark.parametrize(
    ("events", "planned", "line"), [row[1:] for row in LINES], ids=[row[0] for row in LINES]
)
def test_the_line(events: list[EventKind], planned: int | None, line: str) -> None:
    """The line counts creates, results and what is still in flight."""
    tally = Tally()
    for kind in events:
        tally.add({"event": str(kind)})
    assert tally.line(planned) == line


def test_the_line_is_said_while_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line is said when it is new, again after a silence, and at last when the run ends."""
    monkeypatch.setattr(progress, "_EVERY_SEC", 0.01)
    monkeypatch.setattr(progress, "_AT_LEAST_EVERY_SEC", 0.5)
    said: list[str] = []
    tally = Tally()
    speaker = Progress(tally, planned=2, say=said.append)
    speaker.start()
    gevent.sleep(0.2)
    assert said == [tally.line(2)], "not again while nothing changes"
    tally.add({"event": "create_submitted"})
    gevent.sleep(0.2)
    assert said[1:] == [tally.line(2)]
    gevent.sleep(0.6)
    assert said[2:] == [tally.line(2)], "after a silence, to show that it goes on"
    tally.add({"event": "create_ok"})
    speaker.stop()
    assert said[3:] == [tally.line(2)]
    speaker.stop()
    gevent.sleep(0.1)
    assert len(said) == 4, "silent after the end"


@pytest.mark.parametrize(("submitted", "in_flight"), [(True, 1), (False, 2)])
def test_a_task_that_is_lost_is_in_flight_no_longer(submitted: bool, in_flight: int) -> None:
    """And one that was lost before its create was known never was."""
    tally = Tally()
    for _ in range(2):
        tally.add({"event": "create_submitted"})
    tally.add({"event": "lost", "submitted": submitted})
    assert tally.in_flight == in_flight
    assert "lost 1" in tally.line(3)
