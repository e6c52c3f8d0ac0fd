"""Which worker an account belongs to at a moment: one credential is polled by one worker alone."""

from __future__ import annotations

from collections import Counter

from treadstone_user.model import Task
from treadstone_user.plan import Plan


class Owners:
    """Deals the tasks of accounts so that no two workers have tasks of one account in hand.

    An account belongs to a worker as long as that has a task of it in hand, so accounts move to workers
    that come late. A task without an account is anybody's.
    """

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}
        self._in_hand: Counter[str] = Counter()

    def take(self, plan: Plan, worker: str) -> Task | None:
        """The next task for a worker: of its own accounts first, so that others find free ones."""
        task = plan.take(wait=False, may=lambda account: self._is_of(account, worker))
        if task is None:
            task = plan.take(wait=False, may=lambda account: account not in self._owners)
        if task is not None and task.account is not None:
            self._owners[task.account] = worker
            self._in_hand[task.account] += 1
        return task

    def _is_of(self, account: str | None, worker: str) -> bool:
        return account is None or self._owners.get(account) == worker

    def release(self, task: Task) -> None:
        """Take note that a task is in nobody's hands any more."""
        account = task.account
        if account is None:
            return
        self._in_hand[account] -= 1
        if self._in_hand[account] <= 0:
            del self._in_hand[account], self._owners[account]
