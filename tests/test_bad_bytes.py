"""Bad bytes: whatever a file or a process holds, there is no traceback and no wrong count."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from treadstone_user.eventlog import read_events
from treadstone_user.ledger import Fate, Ledger
from treadstone_user.model import EventKind, Sandbox, SandboxPage
from treadstone_user.report import render_cleanup, render_summary
from treadstone_user.scenario import load_scenario, restore_scenario
from treadstone_user.summary import summarize
from treadstone_user.transports.base import CallError, ScenarioError
from treadstone_user.transports.cli import CliTransport
from treadstone_user.transports.launch import Finished
from treadstone_user.transports.places import Places

SCENARIOS = [path.read_bytes() for path in sorted(Path("scenarios").glob("*.yaml"))]
SPICE = [
    b"\x00",
    b"\xff\xfe",
    b"\n",
    b"'",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b"- ",
    b"&a *a",
    b"!!int",
    b"\xed\xa0\x80",
]
SPICE += [
    b"1e999",
    b"NaN",
    b"-1",
    b"null",
    b"true",
    b'"',
    b"\\",
    b"\t",
    b"9" * 400,
    b"[" * 300,
    b"\xf0\x9f\x98\x80",
]
MANY = settings(max_examples=1700, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def damaged(draw: st.DrawFn, originals: Sequence[bytes]) -> bytes:
    """One of the originals with a few cuts, repeats and foreign bytes."""
    content = bytearray(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(content))))
        length = draw(st.integers(0, 12))
        match draw(st.sampled_from(["cut", "put", "flip", "repeat", "end"])):
            case "cut":
                del content[at : at + length]
            case "put":
                content[at:at] = draw(st.sampled_from(SPICE))
            case "flip" if at < len(content):
                content[at] = draw(st.integers(0, 255))
            case "repeat":
                content[at:at] = content[at : at + 10 * length]
            case _:
                del content[at + 40 * length :]
    return bytes(content)


def _answer(ask: Callable[[], Any], refusal: type[Exception]) -> Any:
    """An answer, or the one kind of error that may come instead."""
    try:
        return ask()
    except refusal as error:
        return error


@MANY
@given(damaged(SCENARIOS))
def test_a_damaged_scenario_is_read_or_refused(tmp_path: Path, content: bytes) -> None:
    """Refused with all its problems, or read as what it says: never anything between."""
    path = tmp_path / "scenario.yaml"
    path.write_bytes(content)
    scenario = _answer(lambda: load_scenario(path), ScenarioError)
    if isinstance(scenario, ScenarioError):
        assert scenario.problems
        assert all(str(path) in problem for problem in scenario.problems)
        return
    assert scenario.total == sum(row.count for row in scenario.matrix) >= 1
    assert restore_scenario(scenario.snapshot(), source="x") == scenario


class _Printing:
    """A CLI that prints what it is told."""

    warm = False

    def __init__(self) -> None:
        self.finished = Finished(0, "", "")

    def run(self, arguments: Sequence[str], *, timeout_sec: float) -> Finished:
        """Print it."""
        return self.finished

    def cpu_sec(self) -> float:
        """Nothing."""
        return 0.0

    def with_key(self, key: str) -> Self:
        """Keys make no difference."""
        return self

    def close(self) -> None:
        """Nothing is held."""


def _page(count: int) -> bytes:
    one = {
        "id": "sb1",
        "template": "t",
        "status": "ready",
        "labels": {},
        "persist": False,
        "storage_size": None,
    }
    one |= {"created_at": "2026-01-01T00:00:00Z", "started_at": None, "auto_stop_interval": 60}
    items = [{**one, "id": f"sb{number}"} for number in range(count)]
    return json.dumps({"items": items, "total": count} if count != 1 else one).encode()


OUTPUTS = [
    _page(1),
    _page(3),
    b"Error (429): Too many sandboxes",
    b"Error: Request timed out.",
    b"Sandbox sb1 deleted.",
]
CALLS: list[tuple[str, Callable[[CliTransport], Any], type]] = [
    ("get", lambda cli: cli.get("sb1").value, Sandbox),
    ("list", lambda cli: cli.list_page().value, SandboxPage),
    ("delete", lambda cli: cli.delete("sb1").value, type(None)),
    ("whoami", lambda cli: cli.whoami().value, str),
    ("templates", lambda cli: cli.templates().value, tuple),
]


@MANY
@given(
    damaged(OUTPUTS),
    damaged(OUTPUTS),
    st.sampled_from([0, 0, 0, 1, 2, -9, 127]),
    st.sampled_from(CALLS),
)
def test_whatever_the_cli_prints_is_an_answer_or_a_named_failure(
    stdout: bytes, stderr: bytes, code: int, call: tuple[str, Callable[[CliTransport], Any], type]
) -> None:
    """An answer of the right type, or an error of the one tree that callers handle."""
    launcher = _Printing()
    launcher.finished = Finished(code, stdout.decode(errors="replace"), stderr.decode(errors="replace"))
    cli = CliTransport(launcher=launcher, base_url="http://x", places=Places(in_flight=1, starting=1))
    value = _answer(lambda: call[1](cli), CallError)
    if isinstance(value, CallError):
        assert value.kind
        assert value.cause
        return
    assert isinstance(value, call[2])
    if isinstance(value, SandboxPage):
        assert value.total >= 0
        assert all(isinstance(one.id, str) and isinstance(one.status, str) for one in value.items)


ABOUT = {"profile_idx": 0, "template": "t", "persist": False, "storage_size": None, "worker": "local"}


def _log() -> list[dict[str, Any]]:
    """The events of ten sandboxes, all of them different."""
    events: list[dict[str, Any]] = []
    for task in range(1, 11):
        one = {**ABOUT, "task": task, "t_ms": task * 100.5}
        name = {**one, "sandbox_id": f"sb{task}"}
        events += [
            {"event": "create_submitted", **one},
            {"event": "create_ok", **name, "latency_ms": 5.0, "queue_ms": 0.1},
        ]
        events.append(
            {"event": "ready", **name, "ready_latency_ms": 1000.0 + task, "ready_after_ms": 900.0, "polls": 2}
        )
        events.append({"event": "delete_ok", **name, "latency_ms": 4.0, "http_status": None})
        events.append({"event": "gone", **name})
    events.append({"event": "poll_err", "http_status": 500, "error_kind": "server_error", "worker": "local"})
    return [{**event, "seq": seq} for seq, event in enumerate(events, start=1)]


EVENTS = _log()
LOG = "".join(json.dumps(event) + "\n" for event in EVENTS).encode()
RUN = {"run_id": "r", "scenario": {"ready_timeout_sec": 900, "poll_interval_sec": 1}, "planned": 10}


@MANY
@given(damaged([LOG]))
def test_a_damaged_event_log_is_counted_by_its_whole_lines(tmp_path: Path, content: bytes) -> None:
    """What is whole is counted as it stands, what is damaged is passed over, and every reader holds."""
    path = tmp_path / "events.jsonl"
    path.write_bytes(content)
    events = list(read_events(path))
    whole = {json.dumps(event) for event in EVENTS}
    lines = [line for line in content.decode(errors="replace").split("\n") if line in whole]
    counts, certain = (
        Counter(e["event"] for e in events),
        Counter(json.loads(line)["event"] for line in lines),
    )
    assert certain <= counts
    damaged_lines = content.decode(errors="replace").split("\n")
    assert counts.total() <= sum(bool(line.strip()) for line in damaged_lines)

    ledger = Ledger(events)
    assert len(ledger.of(Fate.GONE)) <= counts[EventKind.GONE]
    summary = summarize(events, RUN | {"cleanup": {"ran": False, "reason": "x"}, "ending": "completed"})
    assert summary["overall"]["submitted"] == counts["create_submitted"]
    assert summary["overall"]["ready"] == counts["ready"]
    assert render_summary(summary)
    assert render_cleanup(summary["cleanup"], label="l", remedy="r")


@pytest.mark.parametrize(
    "line",
    [
        '{"event": "ready"}',
        '{"event": "nonsense"}',
        "[]",
        "3",
        '{"event": ["ready"]}',
        '{"event": "ready", "sandbox_id": "a", "ready_latency_ms": "soon"}',
        '{"event": "ready", "sandbox_id": "a", "ready_latency_ms": NaN}',
        '{"event": "ready", "sandbox_id": "a", "ready_latency_ms": true}',
        '{"event": "ready", "sandbox_id": 7, "ready_latency_ms": 1}',
        "{" * 100_000,
    ],
)
def test_a_line_that_says_nothing_is_no_event(tmp_path: Path, line: str) -> None:
    """A kind that is not known, or without what it announces."""
    path = tmp_path / "events.jsonl"
    path.write_text(line + "\n" + json.dumps(EVENTS[0]) + "\n")
    assert [event["event"] for event in read_events(path)] == ["create_submitted"]
