"""The plan hands out each task once, and lets nobody wait for ever."""

from __future__ import annotations

import gevent

from treadstone_user.model import Task, Variant
from treadstone_user.plan import FixedPlan, Plan, SteadyPlan, TurnPlan, is_turn

TINY = Variant(0, "aio-sandbox-tiny", 100)


def _tasks(count: int) -> list[Task]:
    return [Task(number, TINY) for number in range(1, count + 1)]


def _takers(plan: Plan, count: int) -> list[gevent.Greenlet[..., Task | None]]:
    greenlets = [gevent.spawn(plan.take) for _ in range(count)]
    gevent.sleep(0.01)
    return greenlets


def test_tasks_are_given_in_order_each_once() -> None:
    """Users get the tasks in the plan's order, none of them twice."""
    plan, tasks = FixedPlan(_tasks(5)), _tasks(5)
    assert [plan.take() for _ in range(5)] == tasks


def test_many_users_share_the_tasks() -> None:
    """However many users pull, each task goes to one of them."""
    plan = FixedPlan(_tasks(20))
    users = _takers(plan, 30)
    taken = [user.value.number for user in users if user.value is not None]
    assert sorted(taken) == list(range(1, 21))
    plan.close()
    gevent.joinall(users, raise_error=True)


def test_an_idle_user_waits_until_the_plan_is_closed() -> None:
    """Who finds no task left waits, and learns of the end from the closing."""
    plan = FixedPlan(_tasks(1))
    plan.take()
    idle = _takers(plan, 3)
    assert not any(user.ready() for user in idle)
    plan.close()
    gevent.joinall(idle, timeout=1, raise_error=True)
    assert [(user.ready(), user.value) for user in idle] == [(True, None)] * 3


def test_a_closed_plan_gives_nothing_though_tasks_are_left() -> None:
    """Once the run ends, no new sandbox is begun."""
    plan = FixedPlan(_tasks(5))
    plan.take()
    plan.close()
    assert plan.take() is None
    assert plan.take() is None


def test_finished_when_every_task_has_its_result() -> None:
    """The plan is finished with the last result, not with the last task taken."""
    plan, tasks = FixedPlan(_tasks(3)), _tasks(3)
    for _ in tasks:
        plan.take()
    for task in reversed(tasks):
        assert not plan.finished.is_set()
        plan.resolved(task)
    assert plan.finished.is_set()


def test_a_closed_plan_is_not_finished() -> None:
    """Closing ends the giving; only results finish a plan."""
    plan = FixedPlan(_tasks(2))
    plan.take()
    plan.close()
    assert not plan.finished.is_set()


def test_a_steady_load_goes_on_without_end() -> None:
    """A steady load numbers its tasks from 1 and never finishes by itself."""
    plan = SteadyPlan(TINY, at_once=None)
    taken = [plan.take() for _ in range(50)]
    assert taken == _tasks(50)
    for task in taken:
        assert task is not None
        plan.resolved(task)
    assert not plan.finished.is_set()


def test_a_steady_load_keeps_to_its_limit() -> None:
    """With a limit, as many tasks are in hand at most; each result makes room for one."""
    plan = SteadyPlan(TINY, at_once=2)
    users = _takers(plan, 5)
    done = [user.value for user in users if user.ready()]
    assert [task.number for task in done if task] == [1, 2]
    plan.resolved(Task(1, TINY))
    gevent.sleep(0.01)
    assert sum(user.ready() for user in users) == 3
    plan.close()
    gevent.joinall(users)


def test_closing_a_steady_load_wakes_everybody() -> None:
    """All who wait for room learn of the end, and nobody gets a task after it."""
    plan = SteadyPlan(TINY, at_once=1)
    assert plan.take() is not None
    waiting = _takers(plan, 5)
    plan.close()
    gevent.joinall(waiting, timeout=1, raise_error=True)
    assert [(user.ready(), user.value) for user in waiting] == [(True, None)] * 5
    assert plan.take() is None


def test_a_user_killed_while_it_waits_takes_no_room() -> None:
    """A user that Locust stops while it waits leaves its turn to the next."""
    plan = SteadyPlan(TINY, at_once=1)
    plan.take()
    killed, next_one = _takers(plan, 2)
    killed.kill()
    plan.resolved(Task(1, TINY))
    gevent.joinall([next_one], timeout=1)
    assert next_one.value == Task(2, TINY)


def test_accounts_take_turns() -> None:
    """Each with its tasks in order; who may not have an account's gets none of it."""
    accounts = ["a", "b", "a", "a"]
    tasks = [Task(number, TINY, account) for number, account in enumerate(accounts, start=1)]
    plan = FixedPlan(tasks)
    assert [plan.take(), plan.take(), plan.take()] == [tasks[0], tasks[1], tasks[2]]
    assert plan.take(wait=False, may=lambda account: account == "b") is None
    assert plan.take(wait=False, may=lambda account: account == "a") == tasks[3]


def test_turns_are_numbered_below_0_and_end() -> None:
    """One for each row; the plan finishes once each has its result, and one that is put back comes again."""
    plan = TurnPlan(3)
    turns = [plan.take(wait=False) for _ in range(4)]
    assert [turn.number if turn else None for turn in turns] == [-1, -2, -3, None]
    taken = [turn for turn in turns if turn is not None]
    assert all(is_turn(turn) for turn in taken)
    assert not is_turn(Task(1, TINY))
    plan.put_back(taken[1])
    assert plan.take(wait=False) == taken[1]
    for turn in taken:
        assert not plan.finished.is_set()
        plan.resolved(turn)
    assert plan.finished.is_set()


def test_turns_without_end() -> None:
    """Until the plan is closed."""
    plan = TurnPlan(None)
    assert [turn.number for _ in range(3) if (turn := plan.take()) is not None] == [-1, -2, -3]
    plan.close()
    assert plan.take() is None
