"""One worker in one run, as the master knows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from treadstone_user.model import Task
from treadstone_user.shares import Share


class State(StrEnum):
    """What a worker is to a run."""

    PREPARING = "preparing"
    WORKING = "working"
    REFUSED = "refused"
    """It lacks something, and takes no tasks."""
    DRAINED = "drained"
    """It has ended what it began, and has told everything."""
    LOST = "lost"
    """It went without a word."""


@dataclass(slots=True)
class Member:
    """One worker in one run."""

    name: str
    node: str
    host: str
    machine: str
    pid: int
    state: State = State.PREPARING
    clock_error_ms: float | None = None
    problem: str | None = None
    share: Share = field(default_factory=Share)
    heard: int = 0
    seq: int = 0
    got: int = 0
    want: int = 0
    dealt: list[Task] = field(default_factory=list)
    in_hand: dict[int, Task] = field(default_factory=dict)
    submitted: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    sandboxes: dict[int, str] = field(default_factory=dict)
    client: Mapping[str, Any] | None = None
    missing_since: float | None = None

    @property
    def title(self) -> str:
        """The worker as messages name it."""
        return f"worker {self.name} ({self.host}, pid {self.pid})"

    def describe(self) -> dict[str, Any]:
        """The worker as run.json tells it."""
        return {
            "host": self.host,
            "pid": self.pid,
            "state": str(self.state),
            "problem": self.problem,
            "tasks": len(self.submitted),
            "clock_error_ms": self.clock_error_ms,
        }
