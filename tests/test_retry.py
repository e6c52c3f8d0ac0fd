"""Waits between tries grow and stay bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadstone_user.retry import backoff

WAITS = [
    # failed attempt, seconds to wait
    (1, 0.5),
    (2, 1.0),
    (3, 2.0),
    (5, 8.0),
    (6, 10.0),  # 16, capped
    (10_000, 10.0),  # and no overflow
]


@pytest.mark.parametrize(("attempt", "seconds"), WAITS)
def test_waits_double_up_to_the_longest(attempt: int, seconds: float) -> None:
    """Each wait is twice the one before, up to the longest."""
    assert backoff(attempt) == seconds


def test_first_and_longest_are_the_callers() -> None:
    """A caller says how long the first wait and the longest are."""
    assert [backoff(n, first_sec=0.3, longest_sec=1) for n in (1, 2, 3)] == [0.3, 0.6, 1.0]


@given(st.integers(1, 10**9), st.floats(0.001, 10), st.floats(0.001, 1000))
def test_waits_never_shrink_and_stay_within_bounds(attempt: int, first: float, longest: float) -> None:
    """However long it goes on, a wait is neither shorter than the one before nor beyond the longest."""
    this, following = (backoff(n, first_sec=first, longest_sec=longest) for n in (attempt, attempt + 1))
    assert 0 < this <= following <= longest
