"""The client watches itself: stalls of its loop, its CPU, and that of its CLI calls."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Self

import gevent
import pytest

from treadstone_user.clientwatch import ClientWatch, usable_cores
from treadstone_user.transports.cli import CliTransport
from treadstone_user.transports.launch import Finished
from treadstone_user.transports.places import Places


def _compute(seconds: float) -> None:
    """Keep the process busy, so that no other greenlet runs."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_a_stall_shows_at_its_length() -> None:
    """A loop that computes for 200 ms keeps everybody waiting for about as long."""
    watch = ClientWatch(None)
    gevent.sleep(0.1)
    _compute(0.2)
    gevent.sleep(0.1)
    lag = watch.stop()["loop_lag_ms"]
    assert lag["max"] >= 150


def test_a_stall_in_sleep_shows_as_well() -> None:
    """A call that blocks without computing stalls the loop all the same, once and not on average."""
    watch = ClientWatch(None)
    gevent.sleep(0.5)
    time.sleep(0.2)
    gevent.sleep(0.5)
    lag = watch.stop()["loop_lag_ms"]
    assert lag["max"] >= 150
    assert lag["p50"] < 20


def test_a_calm_client_shows_little() -> None:
    """Where nothing stalls it, the loop is on time, and it is asked often enough to know."""
    watch = ClientWatch(None)
    gevent.sleep(0.6)
    lag = watch.stop()["loop_lag_ms"]
    assert lag["n"] >= 10
    assert lag["p50"] < 20


def test_own_cpu_is_counted() -> None:
    """Computing shows as CPU of this process: nearly a whole core, of however many there are."""
    watch = ClientWatch(None)
    began = time.monotonic()
    _compute(0.3)
    took = time.monotonic() - began
    seen = watch.stop()
    assert 0.3 <= seen["cpu_sec"] < 0.5
    assert seen["cpu_of_one_core"] == pytest.approx(0.3 / took, abs=0.15)
    assert seen["cpu_of_all_cores"] == pytest.approx(seen["cpu_of_one_core"] / seen["cores"], abs=0.002)


def test_cpu_before_the_watch_counts_for_nothing() -> None:
    """What the process did earlier is no part of the load."""
    _compute(0.2)
    watch = ClientWatch(None)
    gevent.sleep(0.2)
    assert watch.stop()["cpu_sec"] < 0.15


def test_nothing_is_watched_after_the_end() -> None:
    """After `stop` nothing of it runs: a clean-up that stalls is not the load's."""
    watch = ClientWatch(None)
    gevent.sleep(0.05)
    first = watch.stop()
    time.sleep(0.2)
    gevent.sleep(0.1)
    assert watch.stop()["loop_lag_ms"] == first["loop_lag_ms"]


def test_without_a_cli_there_is_no_figure_of_one() -> None:
    """Over HTTP there is no start-up, and nobody waits to start."""
    seen = ClientWatch(None).stop()
    assert (seen["cli_startup_ms"], seen["start_blocked_sec"], seen["cpu_cli_sec"]) == (None, None, 0)


class _Launcher:
    """A CLI that takes no time and as much CPU as a test says."""

    warm = False

    def __init__(self) -> None:
        self.used_sec = 100.0

    def run(self, arguments: Sequence[str], *, timeout_sec: float) -> Finished:
        """Answer as the CLI does on health."""
        return Finished(0, '{"status": "ok"}', "")

    def cpu_sec(self) -> float:
        """What the test says."""
        return self.used_sec

    def with_key(self, key: str) -> Self:
        """Keys make no difference."""
        return self

    def close(self) -> None:
        """Nothing is held."""


def test_what_the_cli_takes_is_told_apart() -> None:
    """CPU of the calls, their start-up and the wait to start: each since the watch began, none before."""
    launcher = _Launcher()
    places = Places(in_flight=5, starting=1, startup_sec=0.2)
    cli = CliTransport(launcher=launcher, base_url="http://127.0.0.1:9", places=places)

    def start_another_while_one_starts() -> float:
        """How long the second one waited to start."""
        with places.hold(), places.hold() as queued:
            return queued

    assert start_another_while_one_starts() > 0.1
    gevent.sleep(0.25)
    watch = ClientWatch(cli)
    launcher.used_sec += 3.0
    waited = start_another_while_one_starts()
    seen = watch.stop()
    assert seen["cpu_cli_sec"] == 3.0
    assert seen["cli_startup_ms"] == 200
    assert seen["start_blocked_sec"] == pytest.approx(waited, abs=0.05)
    assert seen["cpu_of_all_cores"] > seen["cpu_of_one_core"] / seen["cores"], "with that of the calls"
    assert seen["cpu_of_one_core"] < 1, "without it"


def test_cores_are_those_that_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container with two of 64 cores has two; a system that cannot tell has all of them."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {3, 7}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert usable_cores() == 2
    monkeypatch.delattr(os, "sched_getaffinity")
    assert usable_cores() == 64
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cores() == 1
