"""What plans allow: who takes which task, and which creates the server will refuse."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadstone_user.model import Task, Variant
from treadstone_user.quota import Allowance, foretell, foretell_platform, spread

TINY, LARGE = "aio-sandbox-tiny", "aio-sandbox-large"
FREE = Allowance("free", 1, 0, (TINY,), 7200, 0.0, 10.0)
PRO = Allowance("pro", 5, 0, (TINY, LARGE), 0, 20.0, 180.0)
PLAIN = Variant(0, TINY, 1)
STORED = Variant(1, TINY, 1, persist=True, storage_size="10Gi")

FORETOLD: list[tuple[str, Variant, Allowance, int, int | None]] = [
    ("what the plan offers", PLAIN, FREE, 60, None),
    ("another template", Variant(0, LARGE, 1), FREE, 60, 403),
    ("as many as may run", PLAIN, replace(FREE, running=1), 60, 429),
    ("no storage", STORED, FREE, 60, 402),
    ("storage that is left", STORED, PRO, 60, None),
    ("more storage than is left", STORED, replace(PRO, storage_left_gib=5.0), 60, 402),
    ("no credit", PLAIN, replace(PRO, compute_left=0.0), 60, 402),
    ("exactly as long as the plan allows", PLAIN, FREE, 120, None),
    ("longer", PLAIN, FREE, 121, 400),
    ("for ever", PLAIN, FREE, 0, 400),
    ("for ever, where any length is allowed", PLAIN, PRO, 0, None),
    # the order of the server's checks: template, compute, running, storage, duration
    ("template before running", Variant(0, LARGE, 1), replace(FREE, running=1), 0, 403),
    ("credit before running", PLAIN, replace(FREE, running=1, compute_left=0.0), 0, 402),
    ("running before storage and duration", STORED, replace(FREE, running=1), 0, 429),
    ("storage before duration", STORED, FREE, 0, 402),
]


@pytest.mark.parametrize(
    ("variant", "allowance", "auto_stop", "status"), [r[1:] for r in FORETOLD], ids=[r[0] for r in FORETOLD]
)
def test_a_refusal_is_foretold(
    variant: Variant, allowance: Allowance, auto_stop: int, status: int | None
) -> None:
    """With the status that the server answers, and a reason that names the plan."""
    found = foretell(variant, allowance, auto_stop_interval=auto_stop)
    assert (found.status if found else None) == status
    assert found is None or allowance.tier in found.reason


def _tasks(*variants: Variant) -> list[Task]:
    return [Task(number, variant) for number, variant in enumerate(variants, start=1)]


def test_accounts_take_turns_and_none_goes_beyond_its_limit() -> None:
    """The free one takes one, the others five each; while there is room, nothing is refused."""
    allowances: dict[str | None, Allowance] = {"a": PRO, "b": FREE, "c": PRO}
    found = spread(_tasks(*[PLAIN] * 11), allowances, auto_stop_interval=60)
    assert [task.account for task in found.tasks[:6]] == ["a", "b", "c", "a", "c", "a"]
    assert Counter(task.account for task in found.tasks) == {"a": 5, "b": 1, "c": 5}
    assert (found.refused, found.by_status()) == ({}, {})


def test_what_has_no_room_is_foretold_and_goes_round_robin() -> None:
    """Eleven have room, the other four are refused, and each of them is sent all the same."""
    found = spread(_tasks(*[PLAIN] * 15), {"a": PRO, "b": FREE, "c": PRO}, auto_stop_interval=60)
    assert found.by_status() == {"429": 4}
    assert [task.account for task in found.tasks[11:]] == ["a", "b", "c", "a"]
    assert "4 of 15 creates will be refused with 429" in found.sentences()[0]


def test_one_free_account_is_foretold_to_make_one() -> None:
    """The account of the environment has no name."""
    found = spread(_tasks(*[PLAIN] * 100), {None: FREE}, auto_stop_interval=60)
    assert found.by_status() == {"429": 99}
    assert {task.account for task in found.tasks} == {None}


def test_what_runs_already_counts() -> None:
    """An account that has three has room for two."""
    found = spread(_tasks(*[PLAIN] * 5), {"a": replace(PRO, running=3)}, auto_stop_interval=60)
    assert found.by_status() == {"429": 3}


def test_a_kind_goes_to_an_account_that_may_make_it() -> None:
    """Large ones go to the plans that offer them, whoever's turn it is, and storage counts down."""
    big, variants = Variant(2, LARGE, 1), [STORED, STORED, STORED]
    found = spread(_tasks(big, big, *variants), {"a": FREE, "b": PRO}, auto_stop_interval=60)
    assert [task.account for task in found.tasks[:4]] == ["b"] * 4
    assert found.by_status() == {"402": 1}, "two of 10 GiB fill the 20 of the plan"


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=8),
    st.lists(st.sampled_from([PLAIN, STORED, Variant(2, LARGE, 1)]), max_size=40),
)
def test_limits_hold_for_any_accounts(limits: list[int], variants: list[Variant]) -> None:
    """Each task has an account; those that are not foretold as refused never exceed a limit."""
    allowances: dict[str | None, Allowance] = {
        f"a{n}": replace(PRO, max_running=limit) for n, limit in enumerate(limits)
    }
    found = spread(_tasks(*variants), allowances, auto_stop_interval=60)
    assert [task.number for task in found.tasks] == list(range(1, len(variants) + 1))
    accepted: Counter[str | None] = Counter()
    stored: Counter[str | None] = Counter()
    refused = 0
    for task in found.tasks:  # the server's own arithmetic, in the order of the plan
        allowance = allowances[task.account]
        left = replace(
            allowance,
            running=accepted[task.account],
            storage_left_gib=allowance.storage_left_gib - stored[task.account],
        )
        if foretell(task.variant, left, auto_stop_interval=60) is not None:
            refused += 1
            continue
        accepted[task.account] += 1
        stored[task.account] += 10 if task.variant.persist else 0
    assert refused == sum(found.refused.values())
    assert all(count <= allowances[account].max_running for account, count in accepted.items())


PLATFORM: list[tuple[str, dict[str, Any], dict[str, Any], list[int]]] = [
    ("no caps", {"max_total_sandboxes": None, "max_total_storage_gib": None}, {}, []),
    ("room for all", {"max_total_sandboxes": 10}, {"total_sandboxes": 7}, []),
    ("room for some", {"max_total_sandboxes": 10}, {"total_sandboxes": 9}, [2]),
    ("full", {"max_total_sandboxes": 10}, {"total_sandboxes": 12}, [3]),
    ("storage for one", {"max_total_storage_gib": 30}, {"total_storage_gib": 15}, [1]),
]


@pytest.mark.parametrize(
    ("limits", "usage", "counts"), [row[1:] for row in PLATFORM], ids=[row[0] for row in PLATFORM]
)
def test_the_platforms_caps_are_foretold(
    limits: dict[str, Any], usage: dict[str, Any], counts: list[int]
) -> None:
    """Of three sandboxes, two of them with 10 GiB."""
    found = foretell_platform(_tasks(PLAIN, STORED, STORED), limits, usage)
    assert [count for _, count in found] == counts
    assert {refusal.status for refusal, _ in found} <= {503}
