"""How a run's concurrency is dealt among its workers: a budget that is never exceeded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Share:
    """One worker's part of the budget.

    granted: how many calls it may have in flight, as it was told last.
    holds: how many it may really have, as it said last; more than `granted` until calls end.
    """

    granted: int = 0
    holds: int = 0


def deal(budget: int, shares: Sequence[Share]) -> None:
    """Set what is granted: as even as can be, the first workers get the remainder.

    A share shrinks at once and grows only by what others have really given back, so that all
    together never hold more than the budget.
    """
    if not shares:
        return
    even, more = divmod(budget, len(shares))
    targets = [even + (place < more) for place in range(len(shares))]
    for share, target in zip(shares, targets, strict=True):
        share.granted = min(share.granted, target)
    free = budget - sum(max(share.granted, share.holds) for share in shares)
    for share, target in zip(shares, targets, strict=True):
        held = max(share.granted, share.holds)
        if free > 0 and target > held:
            grown = min(target - held, free)
            free -= grown
            share.granted = held + grown
        elif target > share.granted:  # what it still holds anyway
            share.granted = min(target, held)
