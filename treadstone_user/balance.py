"""Keeps the number of users where it was asked for, though workers come and go."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import gevent
from locust.runners import STATE_RUNNING, STATE_SPAWNING, MasterRunner

_LOOK_SEC = 1.0
_PATIENCE = 3
_SETTLE_SEC = 10.0

_log = logging.getLogger("treadstone")


class Balance:
    """Deals a master's users anew where Locust does not.

    Locust 2.47 deals them anew when a worker comes or leaves, but only once: its dispatcher
    then takes itself to be busy for ever. Users of a worker that went without a word it deals
    anew after a minute.

    wanted: whether users are still needed.
    """

    def __init__(self, runner: MasterRunner, *, wanted: Callable[[], bool]) -> None:
        self._runner = runner
        self._wanted = wanted
        self._greenlet = gevent.spawn(self._loop)

    def stop(self) -> None:
        """Change nothing more, and wait until Locust has ended what it was told to."""
        self._wanted = lambda: False
        end = time.monotonic() + _SETTLE_SEC
        while self._runner.state == STATE_SPAWNING and time.monotonic() < end:
            gevent.sleep(0.05)  # upstream issue 2938: stopping a master that spawns starts all users anew
        self._greenlet.kill()

    def _loop(self) -> None:
        uneven = 0
        while True:
            gevent.sleep(_LOOK_SEC)
            uneven = uneven + 1 if self._is_uneven() else 0
            if uneven >= _PATIENCE and self._wanted():
                uneven = 0
                _log.info(
                    "workers have come or gone: %d users are dealt anew", self._runner.target_user_count
                )
                self._runner.start(self._runner.target_user_count, self._runner.spawn_rate)

    def _is_uneven(self) -> bool:
        """Whether users are missing, or a worker is there that has got none."""
        runner = self._runner
        if runner.state != STATE_RUNNING or not runner.spawning_completed or not runner.worker_count:
            return False
        return runner.user_count < runner.target_user_count or bool(runner.clients.ready)
