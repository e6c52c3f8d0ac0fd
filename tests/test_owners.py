"""An account is in one worker's hands at a time."""

from __future__ import annotations

from treadstone_user.model import Task, Variant
from treadstone_user.owners import Owners
from treadstone_user.plan import FixedPlan

TINY = Variant(0, "t", 1)


def _plan(*accounts: str | None) -> FixedPlan:
    return FixedPlan([Task(number, TINY, account) for number, account in enumerate(accounts, start=1)])


def _taken(owners: Owners, plan: FixedPlan, worker: str) -> Task:
    task = owners.take(plan, worker)
    assert task is not None
    return task


def test_two_workers_never_have_tasks_of_one_account() -> None:
    """The second one gets another account, and nothing once there is no other."""
    owners, plan = Owners(), _plan("a", "b", "a", "b")
    first, second = _taken(owners, plan, "w1"), _taken(owners, plan, "w2")
    assert (first.account, second.account) == ("a", "b")
    assert [_taken(owners, plan, "w1").account, _taken(owners, plan, "w2").account] == ["a", "b"]
    assert owners.take(plan, "w1") is None


def test_a_worker_keeps_to_its_own_account_while_others_are_free() -> None:
    """So that a worker that comes late finds one."""
    owners, plan = Owners(), _plan("a", "b", "a", "b")
    assert [_taken(owners, plan, "w1").account for _ in range(3)] == ["a", "a", "b"]


def test_an_account_without_a_task_in_hand_is_free() -> None:
    """It goes to whoever asks next."""
    owners, plan = Owners(), _plan("a", "a")
    task = _taken(owners, plan, "w1")
    assert owners.take(plan, "w2") is None
    owners.release(task)
    assert _taken(owners, plan, "w2").account == "a"


def test_tasks_without_an_account_are_anybodys() -> None:
    """As in a run on the environment's credential."""
    owners, plan = Owners(), _plan(None, None)
    tasks = [_taken(owners, plan, "w1"), _taken(owners, plan, "w2")]
    assert [task.number for task in tasks] == [1, 2]
    owners.release(tasks[0])


def test_a_task_that_is_put_back_is_the_next_of_its_account() -> None:
    """And nobody else's, as long as its account is in other hands."""
    owners, plan = Owners(), _plan("a", "a")
    first = _taken(owners, plan, "w1")
    owners.release(first)
    plan.put_back(first)
    assert _taken(owners, plan, "w2") is first
