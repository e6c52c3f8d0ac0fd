"""What master and workers tell each other: a worker joins, and then both exchange their states.

Each `Report` and each `Answer` tells the whole state of its sender and acknowledges the
other's, so that one that is lost or comes twice does no harm: the next one says it again.
Plain values only, as they travel by msgpack. No message holds a credential.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class Join:
    """A worker asks what there is to do.

    machine: the same for all processes of one machine.
    """

    version: str
    host: str
    machine: str
    pid: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """The master's answer: the run, and all that a worker needs for it but its credential.

    t_ms: milliseconds since the run began, when this was sent.
    jobs: what there is to do.
    machine, warm_cli, cli_startup_sec: the master's machine, and how the CLI starts there.
    """

    run_id: str
    worker: str
    t_ms: float
    scenario: Mapping[str, Any]
    steady: bool
    jobs: list[str]
    local: bool
    base_url: str
    transport: str
    machine: str
    warm_cli: bool | None
    cli_startup_sec: float | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A worker takes no part in a run, and says what it lacks."""

    run_id: str
    problem: str


@dataclass(frozen=True, slots=True)
class Report:
    """A worker's state.

    number: counts the reports of this run. heard: the number of the last answer that has arrived.
    events: what has happened since the last acknowledged event, as JSON: msgpack cannot hold half
        a character, which a server may send.
    done: numbers of tasks that are over.
    got: how many tasks have arrived so far. want, want_turns: how many users wait for one, and for a turn.
    holds: the most calls that it may have in flight at this moment.
    clock_error_ms: how far its `t_ms` may be off the master's: half a round trip.
    client: what it saw of itself, once it is drained and everything is said; None before. Tasks in
        its hands that are not done then were never begun.
    problem: why it can make no more sandboxes; None where all is well.
    """

    run_id: str
    number: int
    heard: int
    events: list[str]
    done: list[int]
    got: int
    want: int
    want_turns: int
    holds: int
    clock_error_ms: float
    client: Mapping[str, Any] | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class Answer:
    """The master's state, for one worker.

    number: counts the answers to this worker. heard: the number of the last report that has arrived.
    acknowledged: the `seq` of the last event that stands in the run's log.
    first, tasks: tasks by number, matrix row and account, the first of them the `first`-th of all dealt;
        turns are tasks with a number below 0.
    share: how many calls it may have in flight. neighbours: workers on its machine, with it.
    drain: whether it is to end its calls in flight and begin nothing more.
    """

    run_id: str
    number: int
    heard: int
    acknowledged: int
    first: int
    tasks: list[tuple[int, int, str | None]]
    share: int
    neighbours: int
    drain: bool


Message = Join | Assignment | Refusal | Report | Answer

_KINDS = {kind.__name__: kind for kind in (Join, Assignment, Refusal, Report, Answer)}


def to_values(message: Message) -> dict[str, Any]:
    """A message as plain values."""
    values = {field.name: getattr(message, field.name) for field in fields(message)}
    return {"kind": type(message).__name__, **values}


def from_values(values: Mapping[str, Any]) -> Message:
    """The message of plain values. Raises ValueError where it is none of this version's."""
    try:
        kind = _KINDS[values["kind"]]
        return kind(**{name: value for name, value in values.items() if name != "kind"})
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a message that this version knows: {error}") from error
