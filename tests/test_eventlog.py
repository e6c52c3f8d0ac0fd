"""The event log keeps every line that was written, in order, whatever ends the process."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from treadstone_user.eventlog import EventLog, describe_task, read_events, utc_now
from treadstone_user.model import Event, EventKind, Task, Variant
from treadstone_user.transports.base import ConfigError

ANY_TEXT = st.text(st.characters(exclude_categories=()))
"""Half characters too: JSON can escape them, so a server can send them."""


def test_an_event_is_one_line_of_json(tmp_path: Path) -> None:
    """An event has its time, kind, worker and number, and what the writer says of it."""
    log = EventLog(tmp_path / "events.jsonl", worker="local")
    log.write(EventKind.CREATE_OK, task=3, sandbox_id="a", latency_ms=12.345, persist=False, error=None)
    (line,) = (tmp_path / "events.jsonl").read_text().splitlines()
    event = json.loads(line)
    assert abs(datetime.now(UTC) - datetime.fromisoformat(event.pop("ts"))) < timedelta(minutes=1)
    assert 0 <= event.pop("t_ms") < 60_000
    assert event == {
        "event": "create_ok",
        "worker": "local",
        "seq": 1,
        "task": 3,
        "sandbox_id": "a",
        "latency_ms": 12.3,  # a tenth of a millisecond is as fine as it gets
        "persist": False,
        "error": None,
    }


def test_the_clock_is_utc_in_milliseconds() -> None:
    """Times are written as 2026-01-31T12:00:00.000Z, always of the same length."""
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", utc_now())


def test_durations_between_events_are_of_one_monotonic_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`t_ms` counts from the opening of the log, whatever is done to the machine's clock meanwhile."""
    seconds = iter([1000.0, 1000.25, 1003.00004])
    monkeypatch.setattr(time, "monotonic", lambda: next(seconds))
    log = EventLog(tmp_path / "events.jsonl", worker="local")
    log.write(EventKind.POLL_ERR)
    log.write(EventKind.POLL_ERR)
    assert [event["t_ms"] for event in read_events(tmp_path / "events.jsonl")] == [250.0, 3000.0]


def test_events_are_numbered(tmp_path: Path) -> None:
    """Events are numbered from 1 without a gap, so that a lost one shows."""
    log = EventLog(tmp_path / "events.jsonl", worker="local")
    for _ in range(5):
        log.write(EventKind.POLL_ERR)
    assert [event["seq"] for event in read_events(tmp_path / "events.jsonl")] == [1, 2, 3, 4, 5]


def test_a_written_event_outlives_the_process(tmp_path: Path) -> None:
    """A process killed right after a write leaves the line in the file."""
    path = tmp_path / "events.jsonl"
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from treadstone_user.eventlog import EventLog; from treadstone_user.model import EventKind\n"
        "EventLog(Path(sys.argv[1]), worker='w').write(EventKind.POLL_ERR, task=1)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(path)], cwd=Path(__file__).parent.parent)
    assert ended.returncode == -signal.SIGKILL
    assert [event["task"] for event in read_events(path)] == [1]


def test_listeners_hear_what_stands_in_the_file(tmp_path: Path) -> None:
    """Every listener gets each event as it was written, once it is written."""
    path = tmp_path / "events.jsonl"
    first: list[Event] = []
    second: list[list[Event]] = []
    log = EventLog(path, worker="local")
    log.write(EventKind.POLL_ERR)
    log.subscribe(first.append)
    log.subscribe(lambda _: second.append(list(read_events(path))))
    log.write(EventKind.POLL_ERR, latency_ms=0.123)
    log.write(EventKind.POLL_ERR)
    stand = list(read_events(path))
    assert first == stand[1:]
    assert second == [stand[:2], stand]


def test_a_full_disk_is_told_once_and_listeners_hear_on() -> None:
    """Once an event did not get into the file the log is broken, and listeners still hear all."""
    if not os.access("/dev/full", os.W_OK):
        pytest.skip("no /dev/full here")
    told: list[OSError] = []
    log = EventLog(Path("/dev/full"), worker="local", on_broken=told.append)
    heard: list[Event] = []
    log.subscribe(heard.append)
    assert not log.broken
    for kind in (EventKind.POLL_ERR, EventKind.POLL_ERR):
        log.write(kind)
        assert log.broken
    log.close()
    assert [error.strerror for error in told] == ["No space left on device"]
    assert [event["seq"] for event in heard] == [1, 2]


def test_a_log_that_cannot_be_opened_is_a_mistake_to_be_told(tmp_path: Path) -> None:
    """It is named with the reason, before anything is created."""
    with pytest.raises(ConfigError, match=r"cannot write .*/nowhere/events.jsonl: No such file"):
        EventLog(tmp_path / "nowhere" / "events.jsonl", worker="local")


TORN = [
    # what it proves, the file's content, the events in it
    ("an empty file", b"", []),
    ("whole lines", b'{"event": "poll_err", "seq": 1}\n{"event": "poll_err", "seq": 2}\n', [1, 2]),
    ("a last line that was cut off", b'{"event": "poll_err", "seq": 1}\n{"event": "b', [1]),
    (
        "a last line that lacks only its end",
        b'{"event": "poll_err", "seq": 1}\n{"event": "poll_err", "seq": 2}',
        [1, 2],
    ),
    (
        "a torn line in the middle",
        b'{"event": "poll_err", "seq": 1}\n{"ev\n{"event": "poll_err", "seq": 2}\n',
        [1, 2],
    ),
    ("half a character at the end", '{"event": "poll_err", "seq": 1}\n{"event": "\u00e9'.encode()[:-1], [1]),
    (
        "JSON that is no event",
        b'7\n[]\n"event"\n{"kind": "poll_err"}\n{"event": "poll_err", "seq": 2}\n',
        [2],
    ),
    ("empty lines", b'\n\n{"event": "poll_err", "seq": 1}\n\n', [1]),
    ("zeros, as a crashed machine leaves them", b'{"event": "poll_err", "seq": 1}\n\0\0\0\0\n', [1]),
]


@pytest.mark.parametrize(("content", "numbers"), [row[1:] for row in TORN], ids=[row[0] for row in TORN])
def test_a_torn_line_is_passed_over(content: bytes, numbers: list[int], tmp_path: Path) -> None:
    """What a killed run left is read as far as its lines are whole."""
    path = tmp_path / "events.jsonl"
    path.write_bytes(content)
    assert [event["seq"] for event in read_events(path)] == numbers


@given(cut=st.integers(0))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
def test_a_log_cut_anywhere_can_be_continued(cut: int, tmp_path: Path) -> None:
    """Events written behind a torn line are whole, and so are those before it."""
    path = tmp_path / "events.jsonl"
    path.unlink(missing_ok=True)
    first = EventLog(path, worker="local")
    for number in range(3):
        first.write(EventKind.POLL_ERR, task=number)
    first.close()
    content = path.read_bytes()
    cut %= len(content) + 1
    path.write_bytes(content[:cut])
    whole = len(list(read_events(path)))
    second = EventLog(path, worker="sweep")
    second.write(EventKind.POLL_ERR, task=9)
    second.close()
    assert [event["task"] for event in read_events(path)] == [*range(whole), 9]
    assert whole >= content[:cut].count(b"\n"), "every line that was ended is read"


@example(fields={"error": "half a character \ud800, a line\u2028 end \r\n"})
@given(fields=st.dictionaries(st.sampled_from(["error", "sandbox_id", "last_status"]), ANY_TEXT))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_comes_back(fields: dict[str, str], tmp_path: Path) -> None:
    """Whatever text a server answers, the event holds it and stays one line."""
    path = tmp_path / "events.jsonl"
    path.unlink(missing_ok=True)
    log = EventLog(path, worker="local")
    log.write(EventKind.POLL_ERR, **fields)
    log.write(EventKind.POLL_ERR)
    log.close()
    event, following = read_events(path)
    assert {name: event[name] for name in fields} == fields
    assert following["event"] == "poll_err"
    assert path.read_bytes().count(b"\n") == 2


def test_a_task_is_named_by_number_and_variant() -> None:
    """Events name a task by its number and by all that sets its variant apart."""
    task = Task(7, Variant(2, "aio-sandbox-large", 3, persist=True, storage_size="5Gi"))
    assert describe_task(task) == {
        "task": 7,
        "profile_idx": 2,
        "template": "aio-sandbox-large",
        "persist": True,
        "storage_size": "5Gi",
    }
