"""Which worker gets which task, and which turn: as it has room, and by account."""

from __future__ import annotations

from treadstone_user.member import Member
from treadstone_user.model import Task
from treadstone_user.owners import Owners
from treadstone_user.plan import Plan, is_turn


class Dealing:
    """Deals the tasks of a run, and the turns where a file's rows are dealt."""

    def __init__(self, plan: Plan, turns: Plan | None) -> None:
        self._plan = plan
        self._turns = turns
        self._owners = Owners()

    def idle(self, workers: int) -> int:
        """How many of so many workers can have nothing to do, as each account is one worker's at a moment."""
        return max(0, workers - self._plan.accounts) if self._plan.accounts else 0

    def deal(self, member: Member) -> bool:
        """Hand a worker what it has room for; whether that was anything."""
        before = len(member.dealt)
        while member.room > 0 and (task := self._owners.take(self._plan, member.name)) is not None:
            member.hand(task)
        if self._turns is not None:
            while member.room_for_turns > 0 and (turn := self._turns.take(wait=False)) is not None:
                member.hand(turn)
        return len(member.dealt) > before

    def resolved(self, task: Task) -> None:
        """Take note that a task has its result."""
        self._owners.release(task)
        self._plan_of(task).resolved(task)

    def put_back(self, member: Member) -> None:
        """Take back what a worker has never begun, in its order: somebody else gets it."""
        for task in reversed(member.in_hand.values()):
            self._owners.release(task)
            self._plan_of(task).put_back(task)
        member.in_hand.clear()

    def close(self) -> None:
        """Deal nothing more."""
        self._plan.close()
        if self._turns is not None:
            self._turns.close()

    def _plan_of(self, task: Task) -> Plan:
        return self._turns if self._turns is not None and is_turn(task) else self._plan
