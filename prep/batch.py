"""The batch runner: many items, some at once, not too fast, and nothing lost when it is interrupted."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from types import FrameType
from typing import Any

from treadstone_user.transports.base import TreadstoneError

_SAVE_SEC = 1.0
_LOOK_SEC = 0.2


class Interrupted(Exception):
    """Ctrl-C or SIGTERM, after what was in flight has ended and everything is saved."""


class Throttle:
    """Lets so many items a second begin, evenly; None for as many as come."""

    def __init__(self, rate: float | None) -> None:
        self._gap = 0.0 if rate is None else 1 / rate
        self._next = time.monotonic()

    @property
    def wait_sec(self) -> float:
        """Seconds until the next item may begin."""
        return max(0.0, self._next - time.monotonic())

    def begin(self) -> None:
        """Take note that an item begins."""
        self._next = max(time.monotonic(), self._next) + self._gap


def run_batch[T, R](
    items: Sequence[T],
    work: Callable[[T], R],
    *,
    concurrency: int,
    throttle: Throttle,
    on_result: Callable[[T, R], None],
    on_error: Callable[[T, TreadstoneError], None],
    save: Callable[[], None],
) -> None:
    """Do `work` for each item, in threads.

    on_result, on_error: called in this thread as items end; any error but a `TreadstoneError` ends it all.
    save: called in this thread once a second while items end, and at the end whatever happens.

    Ctrl-C and SIGTERM begin nothing more and wait for what is in flight, then raise `Interrupted`; a second
    one is as ever: after it, Ctrl-C saves and raises KeyboardInterrupt, whatever is in flight.
    """
    waiting: Iterator[T] = iter(items)
    running: dict[Future[R], T] = {}
    left, saved = len(items), time.monotonic()
    pool, waits = ThreadPoolExecutor(max_workers=concurrency), True
    with _interruptible() as interrupted:
        try:
            while running or (left and not interrupted.is_set()):
                while left and len(running) < concurrency and not throttle.wait_sec:
                    if interrupted.is_set():
                        break
                    item = next(waiting)
                    left -= 1
                    throttle.begin()
                    running[pool.submit(work, item)] = item
                pause = min(
                    _LOOK_SEC, throttle.wait_sec if left and len(running) < concurrency else _LOOK_SEC
                )
                for future in _ended(running, pause):
                    _hand_over(future, running.pop(future), on_result, on_error)
                if time.monotonic() - saved >= _SAVE_SEC:
                    save()
                    saved = time.monotonic()
        except KeyboardInterrupt:
            waits = False
            raise
        finally:
            save()
            pool.shutdown(wait=waits, cancel_futures=True)
        if interrupted.is_set():
            raise Interrupted


def _ended[R](running: dict[Future[R], Any], pause: float) -> set[Future[R]]:
    if not running:
        time.sleep(pause)
        return set()
    return wait(running, timeout=pause, return_when=FIRST_COMPLETED).done


def _hand_over[T, R](
    future: Future[R],
    item: T,
    on_result: Callable[[T, R], None],
    on_error: Callable[[T, TreadstoneError], None],
) -> None:
    try:
        result = future.result()
    except TreadstoneError as error:
        on_error(item, error)
    else:
        on_result(item, result)


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """While it lasts, the first signal only sets the event; the second one is as ever."""
    interrupted = threading.Event()
    before: dict[int, Any] = {}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def take_note(_number: int, _frame: FrameType | None) -> None:
        interrupted.set()
        # Not as before: who was started in the background ignores SIGINT, and a second one shall end it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, take_note)
    try:
        yield interrupted
    finally:
        restore()
