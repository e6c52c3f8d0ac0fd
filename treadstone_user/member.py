"""One worker in one run, as the master knows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from treadstone_user.model import Task
from treadstone_user.plan import is_turn
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
    answers: int = 0
    told: dict[int, int] = field(default_factory=dict)
    """Shares by the numbers of the answers that told them, which it may not have heard so far."""
    seq: int = 0
    got: int = 0
    want: int = 0
    want_turns: int = 0
    has_users: bool = False
    """Whether anybody has ever wanted a task there."""
    dealt: list[Task] = field(default_factory=list)
    in_hand: dict[int, Task] = field(default_factory=dict)
    submitted: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    sandboxes: dict[int, str] = field(default_factory=dict)
    client: Mapping[str, Any] | None = None
    missing_since: float | None = None

    def hand(self, task: Task) -> None:
        """Give it a task; the next answer tells it."""
        self.dealt.append(task)
        self.in_hand[task.number] = task

    def tell_share(self) -> int:
        """Take note that it is told its share now; returns the number of the answer that tells it."""
        self.answers += 1
        self.told[self.answers] = self.share.granted
        self.share.holds = max(self.share.holds, self.share.granted)
        return self.answers

    def hold(self, holds: int, heard: int) -> None:
        """Take note of what it holds, and of the last answer that it had heard when it said so.

        It may hold what it is told in a moment, too: those answers are on their way.
        """
        self.told = {number: share for number, share in self.told.items() if number > heard}
        self.share.holds = max(holds, *self.told.values(), 0)

    @property
    def room(self) -> int:
        """How many more tasks it may get: no more than its share wait there, so that others get some."""
        waiting = sum(number > 0 for number in self.in_hand.keys() - self.submitted)
        return min(self.want - self._underway(turns=False), self.share.granted - waiting)

    @property
    def room_for_turns(self) -> int:
        """How many more turns it may get: one for each user that waits for one."""
        return self.want_turns - self._underway(turns=True)

    def _underway(self, *, turns: bool) -> int:
        """How many tasks, or turns, are dealt and have not arrived, as far as is known."""
        return sum(is_turn(task) is turns for task in self.dealt[self.got :])

    @property
    def precedence(self) -> tuple[bool, bool]:
        """Its place where the concurrency is dealt: what was begun is seen through first."""
        return not self.in_hand, not self.want

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

    def health(self) -> dict[str, Any]:
        """How the worker fares, for the live page."""
        return {
            "who": f"{self.name} ({self.host}, pid {self.pid})",
            "state": f"{self.state}: {self.problem}" if self.problem else str(self.state),
            "figures": {
                "sandboxes": len(self.submitted),
                "in_hand": len(self.in_hand),
                "share_of_concurrency": self.share.granted,
            },
        }
