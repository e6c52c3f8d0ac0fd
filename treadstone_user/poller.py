"""One poller a credential: it asks once an interval and wakes all who wait.

No sandbox waits for another's poll: a waiter learns from the first answer that shows its
sandbox, and gives up at its own deadline whatever the poller is doing.
"""

from __future__ import annotations

import itertools
import math
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

import gevent
from gevent.event import Event

from treadstone_user.model import SandboxStatus
from treadstone_user.transports.base import MAX_PAGE, AuthError, CallError, NotFound, Timing, Transport

_PAGES_AS_A_RULE = 3
"""A poll reads the first page, and one or two where sandboxes are being created."""

_FEW = 100
_MARGIN = 50
"""Rows before those being created: deletes since the last poll move them forward."""


class Outcome(Enum):
    """How the wait for a sandbox ended."""

    READY = "ready"
    FAILED = "failed"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Seen:
    """The end of a wait, in seconds of the monotonic clock.

    at: when the answer came that ended it.
    after: when the last request was sent that still showed the sandbox not ready. The truth
        lies between the two.
    """

    outcome: Outcome
    status: str
    after: float
    at: float
    polls: int


def _outcome(status: str) -> Outcome:
    return Outcome.READY if status == SandboxStatus.READY else Outcome.FAILED


@dataclass(slots=True)
class _Waiter:
    """Somebody who waits for a sandbox, with what was seen of it so far."""

    sandbox_id: str
    status: str
    after: float
    polls: int = 0
    seen: Seen | None = None
    settled: Event = field(default_factory=Event)

    def settle(self, outcome: Outcome, at: float) -> Seen:
        """End the wait; the first end stands."""
        if self.seen is None:
            self.seen = Seen(outcome, self.status, self.after, at, self.polls)
            self.settled.set()
        return self.seen

    def look(self, status: str, timing: Timing) -> None:
        """Take in an answer that shows the sandbox."""
        self.polls += 1
        self.status = status
        if status == SandboxStatus.CREATING:
            self.after = max(self.after, timing.started)
            return
        self.settle(_outcome(status), timing.ended)


class Poller:
    """Asks for the state of all awaited sandboxes, once every `interval_sec`.

    It reads pages of the account's list, or gets each sandbox by itself where that takes
    fewer calls. on_failure is called with each poll that failed; the next interval tries
    again.
    """

    def __init__(
        self, transport: Transport, *, interval_sec: float, on_failure: Callable[[CallError], None]
    ) -> None:
        self._transport = transport
        self._interval = interval_sec
        self._on_failure = on_failure
        self._waiters: dict[str, _Waiter] = {}
        self._wanted = Event()
        self._interrupted = False
        self.periods_ms = array("f")
        """How far apart polls really began, while somebody waited."""
        self._pages = 1
        self._creating_from = 0
        self._greenlet: gevent.Greenlet[[], None] | None = None
        self.failing_since: float | None = None
        """When the first of the polls failed that have failed since (monotonic s); None where all is well."""
        self.refused = 0
        """How many failures in a row were of the credential."""

    def wait(self, sandbox_id: str, *, status: str, after: float, deadline: float) -> Seen:
        """Wait until the sandbox is ready, has failed, or `deadline` (monotonic s) has passed.

        status, after: what the create call showed, and when it was sent.
        """
        waiter = _Waiter(sandbox_id, status, after)
        if status != SandboxStatus.CREATING:
            return waiter.settle(_outcome(status), time.monotonic())
        if self._interrupted:
            return waiter.settle(Outcome.INTERRUPTED, time.monotonic())
        self._waiters[sandbox_id] = waiter
        self._wake()
        try:
            waiter.settled.wait(timeout=max(0.0, deadline - time.monotonic()))
            return waiter.settle(Outcome.TIMEOUT, time.monotonic())
        finally:
            self._waiters.pop(sandbox_id, None)

    def interrupt(self) -> None:
        """End all waits, present and future, as interrupted."""
        self._interrupted = True
        for waiter in list(self._waiters.values()):
            waiter.settle(Outcome.INTERRUPTED, time.monotonic())

    def stop(self) -> None:
        """Ask no more."""
        if self._greenlet is not None:
            self._greenlet.kill()

    def _wake(self) -> None:
        self._wanted.set()
        if self._greenlet is None or self._greenlet.dead:
            self._greenlet = gevent.spawn(self._loop)

    def _loop(self) -> None:
        began, due = None, time.monotonic() + self._interval
        while True:
            gevent.sleep(max(0.0, due - time.monotonic()))
            now = time.monotonic()
            due = now + self._interval
            if not self._waiters:
                self._wanted.clear()
                self._wanted.wait()
                began, due = None, time.monotonic() + self._interval
                continue
            if began is not None:
                self.periods_ms.append((now - began) * 1000)
            began = now
            try:
                self._poll()
                self.failing_since = None
            except CallError as error:
                self.failing_since = self.failing_since or began
                self._fail(error)

    def _fail(self, error: CallError) -> None:
        self.refused = self.refused + 1 if isinstance(error, AuthError) else 0
        self._on_failure(error)

    def _poll(self) -> None:
        waiters = list(self._waiters.values())
        if len(waiters) >= min(self._pages, _PAGES_AS_A_RULE):
            waiters = self._read_list(waiters)
        for waiter in waiters:
            try:
                self._ask_for(waiter)
            except CallError as error:  # the next one is asked for all the same
                self._fail(error)

    def _read_list(self, waiters: list[_Waiter]) -> list[_Waiter]:
        """Read pages until all waiters have been seen; returns those who are better asked for.

        The list begins with the sandboxes that got ready last, so the first page shows whose
        wait is over. Behind all that are ready stand those being created: where they began the
        last time, reading goes on. Only what is still unseen then needs the rest of the list.
        """
        unseen = {waiter.sandbox_id: waiter for waiter in waiters if waiter.seen is None}
        covered = Spans()
        creating_from, offset = None, 0
        for reads in itertools.count():
            # The rows that matter are few, and a page's cost is its rows; but one page costs less than two.
            few = self._pages > 1 and reads < 2
            limit = min(MAX_PAGE, max(_FEW, _MARGIN + 2 * len(unseen))) if few else MAX_PAGE
            reply = self._transport.list_page(offset=offset, limit=limit)
            items, total = reply.value.items, reply.value.total
            self._pages = max(1, math.ceil(total / MAX_PAGE))
            for row, sandbox in enumerate(items, start=offset):
                waiter = unseen.pop(sandbox.id, None)
                if waiter is not None:
                    waiter.look(sandbox.status, reply.timing)
                    if waiter.seen is None:
                        creating_from = row if creating_from is None else min(creating_from, row)
            covered.add(offset, offset + (len(items) or MAX_PAGE))  # an empty page: nothing is there
            ahead = offset + len(items) if offset else max(len(items), self._creating_from - _MARGIN)
            following = covered.next_page(ahead, total)
            if following is None or not unseen or len(unseen) < covered.missing_pages(total):
                break
            offset = following
        if creating_from is not None:
            self._creating_from = creating_from
        return [waiter for waiter in unseen.values() if waiter.seen is None]

    def _ask_for(self, waiter: _Waiter) -> None:
        """Get one sandbox: rows move between pages, so one that no page shows may still be there."""
        if waiter.seen is not None:
            return
        try:
            reply = self._transport.get(waiter.sandbox_id)
        except NotFound as error:
            waiter.look(SandboxStatus.DELETED, error.timing)
        else:
            waiter.look(reply.value.status, reply.timing)


class Spans:
    """Which rows of a list have been read."""

    def __init__(self) -> None:
        self._spans: list[tuple[int, int]] = []

    def add(self, start: int, end: int) -> None:
        """Take note of the rows from `start` to before `end`."""
        merged: list[tuple[int, int]] = []
        for low, high in sorted([*self._spans, (start, end)]):
            if merged and low <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
            else:
                merged.append((low, high))
        self._spans = merged

    def next_page(self, ahead: int, total: int) -> int | None:
        """Where to read on: at `ahead`, else at the end of the last gap; None if all `total` are read."""
        gaps = self._gaps(total)
        if not gaps:
            return None
        if any(low <= ahead < high for low, high in gaps):
            return ahead
        low, high = gaps[-1]
        return max(low, high - MAX_PAGE)

    def missing_pages(self, total: int) -> int:
        """How many more pages it takes to read all."""
        return sum(math.ceil((high - low) / MAX_PAGE) for low, high in self._gaps(total))

    def _gaps(self, total: int) -> list[tuple[int, int]]:
        read = [(min(low, total), min(high, total)) for low, high in self._spans]  # the list may have shrunk
        edges = [0, *(edge for span in read for edge in span), total]
        pairs = zip(edges[::2], edges[1::2], strict=True)
        return [(low, high) for low, high in pairs if low < high]
