"""The client watches itself: how long its event loop stands still, and what CPU it takes."""

from __future__ import annotations

import os
import resource
import time
from array import array
from typing import Any

import gevent

from treadstone_user.figures import distribution
from treadstone_user.transports.cli import CliTransport
from treadstone_user.verdict import STALL_MS

_TICK_SEC = 0.02


def usable_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class ClientWatch:
    """Watches this process and its CLI calls from its making until `stop`.

    cli: the transport, where it is the CLI.
    """

    def __init__(self, cli: CliTransport | None) -> None:
        self._cli = cli
        self._began_warm = cli is not None and cli.warm
        self._busiest = self._last_sec = self._longest_ms = 0.0
        self._lags_ms = array("f")
        self._started = time.monotonic()
        self._own_sec, self._cli_sec = _own_cpu_sec(), cli.cpu_sec() if cli else 0.0
        self._blocked_sec = cli.start_blocked_sec if cli else 0.0
        self._greenlet = gevent.spawn(self._loop)

    def now(self) -> dict[str, Any]:
        """How the client fares at this moment, in figures that cost nothing."""
        return {"longest_stall_ms": round(self._longest_ms), "cpu_of_one_core": round(self._last_sec, 2)}

    def stop(self) -> dict[str, Any]:
        """End the watch, at the end of the load; returns what it saw."""
        self._greenlet.kill()
        cli, cores = self._cli, usable_cores()
        busy_sec = max(time.monotonic() - self._started, 1e-6)
        own = _own_cpu_sec() - self._own_sec
        calls = cli.cpu_sec() - self._cli_sec if cli else 0.0
        return {
            "loop_lag_ms": distribution(self._lags_ms),
            "stalled_share": round(sum(lag for lag in self._lags_ms if lag >= STALL_MS) / busy_sec / 1000, 5),
            "cores": cores,
            "cpu_sec": round(own, 2),
            "cpu_cli_sec": round(calls, 2),
            "cpu_of_one_core": round(own / busy_sec, 3),
            "cpu_of_one_core_busiest_sec": round(self._busiest, 3),
            "cpu_of_all_cores": round((own + calls) / busy_sec / cores, 3),
            "cli_startup_ms": round(cli.startup_sec * 1000) if cli else None,
            "warm_cli_lost": self._began_warm and cli is not None and not cli.warm,
            "start_blocked_sec": round(cli.start_blocked_sec - self._blocked_sec, 3) if cli else None,
        }

    def _loop(self) -> None:
        second, used = time.monotonic(), _own_cpu_sec()
        while True:
            due = time.monotonic() + _TICK_SEC
            gevent.sleep(_TICK_SEC)
            now = time.monotonic()
            lag_ms = max(0.0, (now - due) * 1000)
            self._lags_ms.append(lag_ms)
            self._longest_ms = max(self._longest_ms, lag_ms)
            if now - second >= 1:
                self._last_sec = (_own_cpu_sec() - used) / (now - second)
                self._busiest = max(self._busiest, self._last_sec)
                second, used = now, _own_cpu_sec()


def _own_cpu_sec() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
