"""The concurrency is dealt evenly, and all shares together never exceed it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadstone_user.shares import Share, deal


@pytest.mark.parametrize(
    ("budget", "workers", "granted"),
    [
        (10, 1, [10]),
        (10, 3, [4, 3, 3]),
        (3, 3, [1, 1, 1]),
        (2, 4, [1, 1, 0, 0]),
        (10, 0, []),
    ],
)
def test_even_and_the_first_get_the_remainder(budget: int, workers: int, granted: list[int]) -> None:
    """Nobody waits for ever who has begun something: the first keep at least one place each."""
    shares = [Share() for _ in range(workers)]
    deal(budget, shares)
    assert [share.granted for share in shares] == granted


def test_a_late_worker_gets_only_what_others_have_given_back() -> None:
    """Others shrink at once, but their calls in flight count until they end."""
    first, late = Share(granted=10, holds=10), Share()
    deal(10, [first, late])
    assert (first.granted, late.granted) == (5, 0)
    first.holds = 7
    deal(10, [first, late])
    assert (first.granted, late.granted) == (5, 3)
    first.holds = 5
    deal(10, [first, late])
    assert (first.granted, late.granted) == (5, 5)


def test_the_share_of_a_worker_that_is_gone_goes_to_the_others() -> None:
    """They grow to the whole budget."""
    left = [Share(granted=3, holds=3), Share(granted=3, holds=3)]
    deal(10, left)
    assert [share.granted for share in left] == [5, 5]


@given(st.integers(1, 50), st.data())
def test_never_more_than_the_budget_whatever_comes_and_goes(budget: int, data: st.DataObject) -> None:
    """Workers come, go, and hold at most what they were told last; in the end all of it is dealt."""
    shares: list[Share] = []
    for _ in range(data.draw(st.integers(1, 12))):
        action = data.draw(st.sampled_from(["join", "leave", "report"]))
        if action == "join":
            shares.append(Share())
        elif shares and action == "leave":
            shares.pop(data.draw(st.integers(0, len(shares) - 1)))
        elif shares:
            share = data.draw(st.sampled_from(shares))
            share.holds = data.draw(st.integers(share.granted, max(share.granted, share.holds)))
        deal(budget, shares)
        assert sum(max(share.granted, share.holds) for share in shares) <= budget
    for _ in range(2):
        for share in shares:
            share.holds = share.granted
        deal(budget, shares)
    assert sum(share.granted for share in shares) == (budget if shares else 0)
