"""Places for calls: how many may run, and how many CLI processes may be starting up.

A CLI call costs the client a third of a second of CPU before it sends a byte. More
start-ups at once than there are cores only stretch each other, and the stretch would be
reported as the server's latency. So a call waits for its place first and is timed after it.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator
from contextlib import contextmanager

import gevent
from gevent.event import Event


class _Ticket:
    """One caller's wait for a place, and then its place."""

    def __init__(self) -> None:
        self.granted = Event()
        self.starting = False
        self.withdrawn = False


class Places:
    """Hands out places, urgent callers first, otherwise in the order of asking.

    in_flight: calls running at once, at most.
    starting: calls starting up at once, at most; a call counts as starting for
        `startup_sec` seconds or until it ends, whichever is first.
    """

    def __init__(self, *, in_flight: int, starting: int, startup_sec: float = 0.0) -> None:
        self._limit = in_flight
        self._start_limit = starting
        self.startup_sec = startup_sec
        self._in_flight = 0
        self._starting = 0
        self._asked = 0
        self._waiting: list[tuple[bool, int, _Ticket]] = []
        self._blocked_since: float | None = None
        self._blocked_sec = 0.0

    @property
    def start_blocked_sec(self) -> float:
        """For how long callers waited for nothing but a place to start."""
        since = self._blocked_since
        return self._blocked_sec + (time.monotonic() - since if since is not None else 0.0)

    @property
    def in_flight(self) -> int:
        """How many calls run now."""
        return self._in_flight

    def resize(self, *, in_flight: int, starting: int | None = None) -> None:
        """Set anew how many calls may run, and may start up, at once; running ones go on."""
        self._limit = in_flight
        if starting is not None:
            self._start_limit = starting
        self._grant()

    @contextmanager
    def hold(self, *, urgent: bool = False) -> Iterator[float]:
        """Wait for a place and keep it; yields the seconds spent waiting."""
        asked = time.monotonic()
        ticket = _Ticket()
        self._asked += 1
        heapq.heappush(self._waiting, (not urgent, self._asked, ticket))
        try:
            self._grant()
            ticket.granted.wait()
            yield time.monotonic() - asked
        finally:
            self._give_back(ticket)

    def _grant(self) -> None:
        while self._waiting and self._in_flight < self._limit and self._starting < self._start_limit:
            _, _, ticket = heapq.heappop(self._waiting)
            if ticket.withdrawn:
                continue
            self._in_flight += 1
            ticket.granted.set()
            if self.startup_sec > 0:
                self._starting += 1
                ticket.starting = True
                gevent.get_hub().loop.update_now()  # a timer counts from there, and it may be past
                gevent.spawn_later(self.startup_sec, self._started, ticket)
        self._note_blocked(bool(self._waiting) and self._in_flight < self._limit)

    def _note_blocked(self, blocked: bool) -> None:
        if blocked and self._blocked_since is None:
            self._blocked_since = time.monotonic()
        elif not blocked and self._blocked_since is not None:
            self._blocked_sec += time.monotonic() - self._blocked_since
            self._blocked_since = None

    def _started(self, ticket: _Ticket) -> None:
        if ticket.starting:
            ticket.starting = False
            self._starting -= 1
            self._grant()

    def _give_back(self, ticket: _Ticket) -> None:
        if not ticket.granted.is_set():
            ticket.withdrawn = True  # its caller was killed while it waited
            return
        self._in_flight -= 1
        if ticket.starting:
            self._started(ticket)
        else:
            self._grant()
