"""Who creates what next: the queue of tasks that users, or the machines that have them, pull from."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from gevent.event import Event
from gevent.lock import Semaphore

from treadstone_user.model import Task, Variant


class Plan:
    """Hands out tasks, in order, each once.

    `finished` is set once every planned task has its result.
    """

    def __init__(self, *, at_once: int | None) -> None:
        self.finished = Event()
        self._closed = False
        self._put_back: deque[Task] = deque()
        self._free = Semaphore(at_once) if at_once is not None else None

    def take(self, *, wait: bool = True) -> Task | None:
        """The next task; waits while there is none to give, None once the plan is closed.

        wait: False gives None at once where there is no task to give.
        """
        if self._free is not None and not self._free.acquire(blocking=wait):
            return None
        if self._closed:
            self._release()  # pass it on: the next who waits must learn it, too
            return None
        return self._put_back.popleft() if self._put_back else self._next()

    def put_back(self, task: Task) -> None:
        """Give a task back that was taken and never begun: somebody else gets it."""
        self._put_back.append(task)
        self._release()

    def resolved(self, task: Task) -> None:
        """Say that a task that was taken has its result."""
        raise NotImplementedError

    def close(self) -> None:
        """Give out no more tasks and wake the first who waits."""
        self._closed = True
        self._release()

    def _next(self) -> Task:
        raise NotImplementedError

    def _release(self) -> None:
        if self._free is not None:
            self._free.release()


class FixedPlan(Plan):
    """A scenario's tasks.

    The number of users is concurrency and never the total: a user who finds the queue empty
    waits until the plan is closed.
    """

    def __init__(self, tasks: Sequence[Task]) -> None:
        super().__init__(at_once=len(tasks))
        self._waiting = deque(tasks)
        self._unresolved = len(tasks)

    def resolved(self, task: Task) -> None:
        """Count down; the last one finishes the plan."""
        self._unresolved -= 1
        if self._unresolved == 0:
            self.finished.set()

    def _next(self) -> Task:
        return self._waiting.popleft()


class SteadyPlan(Plan):
    """One task after the other, without end; `at_once` at most in hand, where given.

    It never finishes: a steady load ends by time or by hand.
    """

    def __init__(self, variant: Variant, *, at_once: int | None) -> None:
        super().__init__(at_once=at_once)
        self._variant = variant
        self._number = 0

    def resolved(self, task: Task) -> None:
        """Make room for another task."""
        self._release()

    def _next(self) -> Task:
        self._number += 1
        return Task(self._number, self._variant)
