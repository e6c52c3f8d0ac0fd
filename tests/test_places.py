"""Places bound how many calls run and how many start up, and none is ever lost."""

from __future__ import annotations

import time
from collections.abc import Callable

import gevent
import pytest
from gevent.event import Event

from treadstone_user.transports.places import Places

SOON = 0.02


class _Caller:
    """A call that holds its place until it is told to end."""

    def __init__(
        self, places: Places, *, urgent: bool = False, order: list[str] | None = None, name: str = ""
    ) -> None:
        self.queued = -1.0
        self.may_end = Event()
        self._has_place = False
        self._places = places
        self._urgent = urgent
        self._order = order if order is not None else []
        self._name = name
        self.greenlet = gevent.spawn(self._run)
        gevent.idle()

    def _run(self) -> None:
        with self._places.hold(urgent=self._urgent) as self.queued:
            self._has_place = True
            self._order.append(self._name)
            try:
                self.may_end.wait()
            finally:
                self._has_place = False

    @property
    def has_place(self) -> bool:
        """Whether it holds a place now."""
        gevent.sleep(SOON)
        return self._has_place

    def end(self) -> None:
        """Have it give its place back."""
        self.may_end.set()
        self.greenlet.join(timeout=1)


def _holding(callers: list[_Caller]) -> int:
    return sum(caller.has_place for caller in callers)


def test_never_more_than_in_flight() -> None:
    """As many calls run at once as there are places; each that ends lets one in."""
    places = Places(in_flight=2, starting=10)
    callers = [_Caller(places) for _ in range(5)]
    for ended in range(4):
        assert _holding(callers) == min(2, 5 - ended)
        next(caller for caller in callers if caller.has_place).end()
    assert _holding(callers) == 1


@pytest.mark.parametrize("starting", [1, 3])
def test_never_more_starting_than_cores(starting: int) -> None:
    """Within the time of a start-up, so many calls get a place at most, though more are free."""
    startup = 0.15
    places = Places(in_flight=100, starting=starting, startup_sec=startup)
    granted: list[float] = []

    def call() -> None:
        with places.hold():
            granted.append(time.monotonic())
            gevent.sleep(5 * startup)

    callers = [gevent.spawn(call) for _ in range(3 * starting)]
    gevent.joinall(callers, raise_error=True)
    assert len(granted) == 3 * starting
    spans = [later - first for first, later in zip(granted, granted[starting:], strict=False)]
    assert min(spans) >= startup / 2, "a call got its place before one of the last had started"
    assert granted[-1] - granted[0] < 5 * startup, "nobody waits for a call to end"


def test_a_busy_client_makes_no_start_up_shorter() -> None:
    """The time of a start-up counts from the place, however long the client computed just before."""
    places, granted = Places(in_flight=10, starting=1, startup_sec=0.2), list[float]()

    def call() -> None:
        gevent.sleep(0.01)
        if not granted:
            time.sleep(0.15)  # gevent's clock, from which its timers count, falls behind by it
        with places.hold():
            granted.append(time.monotonic())
            gevent.sleep(1)

    gevent.joinall([gevent.spawn(call), gevent.spawn(call)], raise_error=True)
    assert granted[1] - granted[0] >= 0.2


def test_a_call_that_ends_early_starts_no_longer() -> None:
    """A call that is over before its start-up time makes room for the next at once."""
    places = Places(in_flight=10, starting=1, startup_sec=60)
    first, second = _Caller(places), _Caller(places)
    assert not second.has_place
    first.end()
    assert second.has_place


def test_a_start_up_that_ended_early_frees_no_second_place() -> None:
    """The timer of a call that has ended long since does not count for the one that followed it."""
    places = Places(in_flight=10, starting=1, startup_sec=0.2)
    first, second = _Caller(places), _Caller(places)
    gevent.sleep(0.1)
    first.end()  # half way: the second starts up until 0.3 s, the first one's timer fires at 0.2 s
    third = _Caller(places)
    gevent.sleep(0.3)
    assert second.has_place
    assert third.queued > 0.15


def test_urgent_callers_come_first() -> None:
    """Polls pass creates in the queue, and within each sort the first to ask is the first."""
    places = Places(in_flight=1, starting=1)
    order: list[str] = []
    first = _Caller(places, order=order, name="first")
    for name in ("create 1", "poll 1", "create 2", "poll 2"):
        caller = _Caller(places, urgent=name.startswith("poll"), order=order, name=name)
        caller.may_end.set()
    first.end()
    gevent.sleep(0.05)
    assert order == ["first", "poll 1", "poll 2", "create 1", "create 2"]


def test_an_urgent_caller_takes_no_place_away() -> None:
    """Urgent is first in the queue, not beyond the limit."""
    places = Places(in_flight=1, starting=1)
    first, poll = _Caller(places), _Caller(places, urgent=True)
    assert first.has_place
    assert not poll.has_place


def test_a_killed_waiter_gives_its_place_back() -> None:
    """Who is killed while waiting is passed over, and nobody behind it waits longer."""
    places = Places(in_flight=1, starting=1)
    first, killed, last = (_Caller(places) for _ in range(3))
    killed.greenlet.kill()
    first.end()
    assert last.has_place


def test_a_waiter_killed_at_the_moment_of_its_place_gives_it_back() -> None:
    """Who is killed after the place was granted, but before it could run, gives it back as well."""
    places = Places(in_flight=1, starting=1)
    first, killed, last = (_Caller(places) for _ in range(3))
    first.may_end.set()
    first.greenlet.join()  # its place has been passed on in this moment
    killed.greenlet.kill(block=False)
    assert last.has_place


def test_a_killed_holder_gives_its_place_back() -> None:
    """So does who is killed while it holds the place."""
    places = Places(in_flight=1, starting=1, startup_sec=60)
    killed, last = _Caller(places), _Caller(places)
    killed.greenlet.kill()
    assert last.has_place


def test_an_exception_gives_the_place_back() -> None:
    """A call that fails gives its place back and lets its error through."""
    places = Places(in_flight=1, starting=1, startup_sec=60)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), places.hold():
            _ = 1 / 0
    assert _Caller(places).has_place


def test_no_place_is_lost_however_waiters_end() -> None:
    """After any mixture of ends, all places are free again."""
    places = Places(in_flight=3, starting=2, startup_sec=0.001)
    ends: list[Callable[[_Caller], None]] = [
        lambda caller: caller.end(),
        lambda caller: caller.greenlet.kill(),
        lambda caller: caller.greenlet.kill(block=False),
    ]
    callers = [_Caller(places, urgent=number % 3 == 0) for number in range(30)]
    for number, caller in enumerate(callers):
        ends[number % 3](caller)
    gevent.joinall([caller.greenlet for caller in callers], timeout=2)
    again = [_Caller(places) for _ in range(5)]
    assert _holding(again) == 3


def test_the_time_queued_is_the_wait_alone() -> None:
    """A free place is had at once; a taken one costs the wait and nothing of the work after it."""
    places = Places(in_flight=1, starting=1)
    with places.hold() as queued:
        second = gevent.spawn(_queued, places, 0.3)
        gevent.sleep(0.1)
    assert queued < 0.05
    waited = second.get()
    assert 0.05 <= waited < 0.3, "neither less than the wait, nor the work that follows"


def test_blocked_is_the_wait_for_nothing_but_a_place_to_start() -> None:
    """Who waits though there is room in flight waits for this machine's start-ups: so long it counts."""
    places = Places(in_flight=10, starting=1, startup_sec=0.2)
    assert places.start_blocked_sec == 0
    first, second = _Caller(places), _Caller(places)
    gevent.sleep(0.05)
    assert 0.03 <= places.start_blocked_sec < 0.2, "and it shows while it goes on"
    second.may_end.set()
    gevent.sleep(0.3)
    first.end()
    assert second.queued == pytest.approx(0.2, abs=0.1)
    assert places.start_blocked_sec == pytest.approx(second.queued, abs=0.05)
    settled = places.start_blocked_sec
    gevent.sleep(0.05)
    assert places.start_blocked_sec == settled, "nobody waits any more"


def test_a_wait_for_a_place_in_flight_is_not_blocked() -> None:
    """Where the scenario's concurrency is what holds a call back, the machine is not to blame."""
    places = Places(in_flight=1, starting=1, startup_sec=0.01)
    first, second = _Caller(places), _Caller(places)
    gevent.sleep(0.2)
    assert not second.has_place
    first.end()
    assert second.has_place
    assert places.start_blocked_sec < 0.05


def test_blocked_counts_the_clock_and_not_the_waiters() -> None:
    """Three who wait at once are blocked for as long as one of them is, not three times as long."""
    places = Places(in_flight=10, starting=1, startup_sec=0.1)
    began = time.monotonic()
    callers = [_Caller(places) for _ in range(4)]
    while not callers[-1].has_place:
        assert time.monotonic() < began + 5
    assert places.start_blocked_sec == pytest.approx(callers[-1].queued, abs=0.05)
    assert places.start_blocked_sec <= time.monotonic() - began


def test_a_call_that_ends_turns_its_place_in_flight_into_a_wait_to_start() -> None:
    """What holds a waiter back may change while it waits: only the one part of it counts."""
    places = Places(in_flight=2, starting=1, startup_sec=0.3)
    first = _Caller(places)
    gevent.sleep(0.35)
    second, third = _Caller(places), _Caller(places)  # two in flight, and the second starts until 0.3 s
    gevent.sleep(0.1)
    assert second.has_place
    assert places.start_blocked_sec == 0
    first.end()  # there is room in flight now: the third waits for the second's start-up alone
    gevent.sleep(0.4)
    assert third.has_place
    assert 0.05 < places.start_blocked_sec < third.queued - 0.05


def _queued(places: Places, work_sec: float) -> float:
    with places.hold() as queued:
        gevent.sleep(work_sec)
    return queued


def test_resized_places_let_more_in_at_once_and_take_none_back() -> None:
    """Calls that run go on; the new number holds as soon as enough of them have ended."""
    places = Places(in_flight=1, starting=10)
    callers = [_Caller(places) for _ in range(4)]
    assert _holding(callers) == 1
    places.resize(in_flight=3)
    assert _holding(callers) == 3
    places.resize(in_flight=1)
    assert _holding(callers) == places.in_flight == 3
    for left in (2, 1, 1):
        next(caller for caller in callers if caller.has_place).end()
        assert _holding(callers) == left


def test_places_resized_to_none_let_nobody_in() -> None:
    """As of a worker that has no share yet."""
    places = Places(in_flight=5, starting=5)
    places.resize(in_flight=0)
    caller = _Caller(places)
    assert not caller.has_place
    places.resize(in_flight=1, starting=1)
    assert caller.has_place
    caller.end()
