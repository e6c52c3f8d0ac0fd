"""Users go slower while nothing is answered, and a run ends where going on makes no sense."""

from __future__ import annotations

import time

import pytest

from treadstone_user.transports.base import CallError, ConnectError, RequestTimeout, api_error
from treadstone_user.trouble import Trouble

EXPIRED = api_error(401, "Invalid or expired API key.")
AWAY = ConnectError("Connection refused")


class _Clock:
    now = 1000.0


@pytest.fixture(name="clock")
def _clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    clock = _Clock()
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    return clock


@pytest.fixture(name="hopeless")
def _hopeless() -> list[str]:
    return []


@pytest.mark.parametrize("error", [AWAY, RequestTimeout("no answer"), EXPIRED])
def test_pauses_grow_up_to_a_few_seconds(clock: _Clock, hopeless: list[str], error: CallError) -> None:
    """Each user's is about as long as nothing was answered; an answer ends that."""
    trouble = Trouble(hopeless.append)
    assert 0.25 <= trouble.failed(error, sent=clock.now) <= 0.75
    clock.now += 2
    assert 1 <= trouble.failed(error, sent=clock.now) <= 3
    clock.now += 50
    assert 1.5 <= trouble.failed(error, sent=clock.now) <= 4.5
    trouble.answered()
    assert trouble.failed(error, sent=clock.now) <= 0.75


def test_an_answer_that_is_a_failure_takes_no_pause(clock: _Clock, hopeless: list[str]) -> None:
    """The load goes on against a server that fails: that is what is measured."""
    trouble = Trouble(hopeless.append)
    for status in (404, 409, 429, 500, 502):
        clock.now += 1000
        assert trouble.failed(api_error(status, "No."), sent=clock.now) == 0
    assert hopeless == []


def test_two_minutes_without_an_answer_end_the_run(clock: _Clock, hopeless: list[str]) -> None:
    """Not sooner, and not where something is answered in between."""
    trouble = Trouble(hopeless.append)
    for _ in range(13):
        trouble.failed(AWAY, sent=clock.now)
        clock.now += 10
    assert hopeless == []
    trouble.answered()
    for _ in range(14):
        trouble.failed(AWAY, sent=clock.now)
        clock.now += 10
    assert hopeless == ["the server has answered no query or stream for 120 s: the run ends"]


def test_three_refusals_in_a_row_end_the_run(clock: _Clock, hopeless: list[str]) -> None:
    """Those of many users at one moment are one; another failure between them begins the count anew."""
    trouble = Trouble(hopeless.append)
    errors = [EXPIRED, EXPIRED, AWAY, EXPIRED, EXPIRED]
    for error in errors:
        sent, clock.now = clock.now, clock.now + 1
        for _ in range(10):
            trouble.failed(error, sent=sent)
    assert hopeless == []
    trouble.failed(EXPIRED, sent=clock.now)
    assert hopeless[0].startswith("the server refuses the credential of a query or stream (Invalid")
