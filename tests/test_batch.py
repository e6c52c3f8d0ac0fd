"""The batch runner: bounded, throttled, and whole when it ends."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from prep.batch import Interrupted, Throttle, run_batch
from treadstone_user.transports.base import ConnectError, TreadstoneError


class Seen:
    """What a batch told."""

    def __init__(self) -> None:
        self.results: list[Any] = []
        self.errors: list[tuple[Any, TreadstoneError]] = []
        self.saves = 0

    def save(self) -> None:
        """Count."""
        self.saves += 1


def _run(
    items: list[int], work: Callable[[int], Any], *, at_once: int = 4, rate: float | None = None
) -> Seen:
    seen = Seen()
    run_batch(
        items,
        work,
        concurrency=at_once,
        throttle=Throttle(rate),
        on_result=lambda item, result: seen.results.append((item, result)),
        on_error=lambda item, error: seen.errors.append((item, error)),
        save=seen.save,
    )
    return seen


def test_every_item_ends_once_and_never_too_many_at_a_time() -> None:
    """Results come as items end, errors do not stop the others, and it is saved at the end."""
    lock, now = threading.Lock(), [0, 0]

    def work(item: int) -> int:
        with lock:
            now[0] += 1
            now[1] = max(now)
        time.sleep(0.01)
        with lock:
            now[0] -= 1
        if item % 5 == 0:
            raise ConnectError("away")
        return item * item

    seen = _run(list(range(20)), work)
    assert sorted(seen.results) == [(n, n * n) for n in range(20) if n % 5]
    assert sorted(item for item, _ in seen.errors) == [0, 5, 10, 15]
    assert 2 <= now[1] <= 4
    assert seen.saves >= 1


def test_no_more_begin_a_second_than_wanted() -> None:
    """Ten at 50 a second take 0.18 s at least, evenly."""
    began: list[float] = []
    _run(list(range(10)), lambda _: began.append(time.monotonic()), at_once=10, rate=50)
    assert 0.17 <= began[-1] - began[0] < 2
    assert min(b - a for a, b in pairwise(began)) > 0.005


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_what_was_begun_end(number: signal.Signals) -> None:
    """Nothing more begins, everything that ended is handed over and saved; signals are as before."""
    before = signal.getsignal(number)
    begun: list[int] = []
    seen = Seen()

    def work(item: int) -> int:
        begun.append(item)
        if item == 2:
            os.kill(os.getpid(), number)
        time.sleep(0.1)
        return item

    with pytest.raises(Interrupted):
        run_batch(
            list(range(50)),
            work,
            concurrency=2,
            throttle=Throttle(None),
            on_result=lambda item, result: seen.results.append(result),
            on_error=lambda item, error: None,
            save=seen.save,
        )
    assert sorted(seen.results) == sorted(begun)
    assert 3 <= len(begun) <= 6
    assert (seen.saves >= 1, signal.getsignal(number)) == (True, before)


def test_an_error_of_the_program_ends_it_and_what_was_done_is_saved() -> None:
    """It is no failure of an item."""
    seen = Seen()
    with pytest.raises(ZeroDivisionError):
        run_batch(
            [1, 0],
            lambda item: 1 / item,
            concurrency=1,
            throttle=Throttle(None),
            on_result=lambda item, result: seen.results.append(result),
            on_error=lambda item, error: None,
            save=seen.save,
        )
    assert (seen.results, seen.saves) == ([1.0], 1)


def test_nothing_to_do() -> None:
    """An empty batch ends at once."""
    assert _run([], lambda item: item).saves == 1
