"""Who does what next: queues of tasks that users, or the machines that have them, pull from."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from gevent.event import Event
from gevent.lock import Semaphore

from treadstone_user.model import Task, Variant

May = Callable[[str | None], bool]
"""Whether whoever asks may have a task of an account."""

NO_VARIANT = Variant(-1, "", 1)
"""Of a turn, which makes no sandbox."""


class Plan:
    """Hands out tasks, in order, each once.

    `finished` is set once every planned task has its result. `accounts` is how many accounts its tasks name.
    """

    accounts = 0

    def __init__(self, *, at_once: int | None) -> None:
        self.finished = Event()
        self._closed = False
        self._free = Semaphore(at_once) if at_once is not None else None

    def take(self, *, wait: bool = True, may: May = lambda account: True) -> Task | None:
        """The next task; waits while there is none to give, None once the plan is closed.

        wait: False gives None at once where there is no task to give.
        may: only tasks of such accounts are given; to be used without waiting.
        """
        if self._free is not None and not self._free.acquire(blocking=wait):
            return None
        task = None if self._closed else self._next(may)
        if task is None:
            self._release()  # pass it on: the next who waits must learn it, too
        return task

    def put_back(self, task: Task) -> None:
        """Give a task back that was taken and never begun: somebody else gets it."""
        raise NotImplementedError

    def resolved(self, task: Task) -> None:
        """Say that a task that was taken has its result."""
        raise NotImplementedError

    def close(self) -> None:
        """Give out no more tasks and wake the first who waits."""
        self._closed = True
        self._release()

    def _next(self, may: May) -> Task | None:
        raise NotImplementedError

    def _release(self) -> None:
        if self._free is not None:
            self._free.release()


class FixedPlan(Plan):
    """A scenario's tasks; the accounts that make them take turns.

    The number of users is concurrency and never the total: a user who finds the queue empty
    waits until the plan is closed.
    """

    def __init__(self, tasks: Sequence[Task]) -> None:
        super().__init__(at_once=len(tasks))
        self._unresolved = len(tasks)
        self._waiting: dict[str | None, deque[Task]] = {}
        for task in tasks:
            self._waiting.setdefault(task.account, deque()).append(task)
        self.accounts = len(self._waiting.keys() - {None})

    def put_back(self, task: Task) -> None:
        """Give a task back; it is the next of its account."""
        self._waiting.setdefault(task.account, deque()).appendleft(task)
        self._release()

    def resolved(self, task: Task) -> None:
        """Count down; the last one finishes the plan."""
        self._unresolved -= 1
        if self._unresolved == 0:
            self.finished.set()

    def _next(self, may: May) -> Task | None:
        for account in self._waiting:
            if may(account):
                break
        else:
            return None
        waiting = self._waiting.pop(account)
        task = waiting.popleft()
        if waiting:
            self._waiting[account] = waiting  # behind the others, as a dict keeps its order
        return task


class SteadyPlan(Plan):
    """One task after the other, without end; `at_once` at most in hand, where given.

    It never finishes: a steady load ends by time or by hand.
    """

    def __init__(self, variant: Variant, *, at_once: int | None) -> None:
        super().__init__(at_once=at_once)
        self._variant = variant
        self._number = 0
        self._back: deque[Task] = deque()

    def put_back(self, task: Task) -> None:
        """Give a task back."""
        self._back.appendleft(task)
        self._release()

    def resolved(self, task: Task) -> None:
        """Make room for another task."""
        self._release()

    def _next(self, may: May) -> Task | None:
        if self._back:
            return self._back.popleft()
        self._number += 1
        return Task(self._number, self._variant)


class TurnPlan(Plan):
    """Turns of users who work through a file's rows: tasks with the numbers -1, -2 and so on.

    rows: how many turns there are; None for turns without end.
    """

    def __init__(self, rows: int | None) -> None:
        super().__init__(at_once=rows)
        self._given = 0
        self._unresolved = rows
        self._back: deque[Task] = deque()

    def put_back(self, task: Task) -> None:
        """Give a turn back."""
        self._back.appendleft(task)
        self._release()

    def resolved(self, task: Task) -> None:
        """Count down; the last one finishes the plan."""
        if self._unresolved is not None:
            self._unresolved -= 1
            if self._unresolved == 0:
                self.finished.set()

    def _next(self, may: May) -> Task | None:
        if self._back:
            return self._back.popleft()
        self._given += 1
        return Task(-self._given, NO_VARIANT)


def is_turn(task: Task) -> bool:
    """Whether a task is a turn, and no sandbox."""
    return task.number < 0
