"""Who creates what next: the queue of tasks that users pull from."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from gevent.event import Event
from gevent.lock import Semaphore

from treadstone_user.model import Task, Variant


class Plan(Protocol):
    """Hands out tasks. `finished` is set once every planned task has its result."""

    finished: Event

    def take(self) -> Task | None:
        """The next task; waits while there is none to give, None once the plan is closed."""
        ...

    def resolved(self, task: Task) -> None:
        """Say that a task that was taken has its result."""
        ...

    def close(self) -> None:
        """Give out no more tasks."""
        ...


class FixedPlan:
    """A scenario's tasks, each given out once.

    The number of users is concurrency and never the total: a user who finds the queue empty
    waits until the plan is closed.
    """

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.finished = Event()
        self._waiting = deque(tasks)
        self._unresolved = len(tasks)
        self._closed = Event()

    def take(self) -> Task | None:
        """The next task, or None once the plan is closed."""
        if not self._waiting:
            self._closed.wait()
        return None if self._closed.is_set() else self._waiting.popleft()

    def resolved(self, task: Task) -> None:
        """Count down; the last one finishes the plan."""
        self._unresolved -= 1
        if self._unresolved == 0:
            self.finished.set()

    def close(self) -> None:
        """Give out no more tasks and wake the idle users."""
        self._closed.set()


class SteadyPlan:
    """One task after the other, without end; `at_once` at most in hand, where given."""

    def __init__(self, variant: Variant, *, at_once: int | None) -> None:
        self.finished = Event()  # never set: a steady load ends by time or by hand
        self._variant = variant
        self._number = 0
        self._closed = False
        self._free = Semaphore(at_once) if at_once is not None else None

    def take(self) -> Task | None:
        """A fresh task, or None once the plan is closed."""
        if self._free is not None:
            self._free.acquire()
        if self._closed:
            self._release()  # pass it on: the next who waits must learn it, too
            return None
        self._number += 1
        return Task(self._number, self._variant)

    def resolved(self, task: Task) -> None:
        """Make room for another task."""
        self._release()

    def close(self) -> None:
        """Give out no more tasks and wake the first who waits."""
        self._closed = True
        self._release()

    def _release(self) -> None:
        if self._free is not None:
            self._free.release()
