"""A worker's part in one run: tasks and a share from the master, events and its state back.

Knows nothing of Locust: `send` takes a message to the master, `receive` is given the answers.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gevent
from gevent.event import Event as Flag

from treadstone_user.access import Accesses
from treadstone_user.clientwatch import usable_cores
from treadstone_user.load import Load, LoadRules
from treadstone_user.messages import Answer, Report
from treadstone_user.model import Task
from treadstone_user.plan import NO_VARIANT, May, Plan, is_turn
from treadstone_user.spool import Spool
from treadstone_user.steps import Report as ReportStep
from treadstone_user.stock import Stock

_BATCH = 500
_REPORT_SEC = 2.0
"""A report is sent so often at least, though there is nothing new: the last answer may be lost."""
_SHRINK_SEC = 0.05
_LEASE_SEC = 4.0
"""Without an answer for so long nothing is begun: the master may have given this worker up and cleaned up."""


class DealtPlan(Plan):
    """The tasks that the master has dealt to this worker.

    on_change: called when the master should hear something.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        super().__init__(at_once=0)
        self.done: list[int] = []
        self._dealt: deque[Task] = deque()
        self._takers = 0
        self._on_change = on_change

    def take(self, *, wait: bool = True, may: May = lambda account: True) -> Task | None:
        """The next task; waits while there is none to give, None once the plan is closed."""
        self._takers += 1
        self._on_change()
        try:
            return super().take(wait=wait, may=may)
        finally:
            self._takers -= 1

    def give(self, task: Task) -> None:
        """Add a task from the master."""
        self._dealt.append(task)
        self._release()

    def put_back(self, task: Task) -> None:
        """Leave a task that was called off: the master gives it to somebody else after the drain."""

    def resolved(self, task: Task) -> None:
        """Take note that a task is over."""
        self.done.append(task.number)
        self._on_change()

    @property
    def wanted(self) -> int:
        """How many users wait for a task."""
        return 0 if self._closed else max(0, self._takers - len(self._dealt))

    def _next(self, may: May) -> Task:
        return self._dealt.popleft()


class Engagement:
    """A worker's part in one run, from its first task until everything is delivered.

    accesses: have passed preflight; they are closed at the end.
    spool: opens the worker's spool, given what to do when it cannot be written.
    on_drained: called once nothing goes on any more, before the master is told.
    """

    def __init__(
        self,
        *,
        run_id: str,
        clock_error_ms: float,
        rules: LoadRules,
        accesses: Accesses,
        stock: Stock,
        spool: Callable[[Callable[[OSError], None]], Spool],
        report: ReportStep,
        send: Callable[[Report], None],
        on_drained: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self.run_id = run_id
        self.over = Flag()
        """Set once the master has everything."""
        self._clock_error_ms = clock_error_ms
        self._matrix = rules.scenario.matrix
        self._accesses = accesses
        self._places = accesses.first.transport.places
        self._send = send
        self._on_drained = on_drained
        self._changed, self._answered = Flag(), Flag()
        self._got = self._share = self._number = self._heard = self._answer = 0
        self._client: dict[str, Any] | None = None
        self._problem: str | None = None
        self._draining: gevent.Greenlet[..., None] | None = None
        self._spool = spool(self._on_broken)
        self._plan, self._turns = DealtPlan(self._changed.set), DealtPlan(self._changed.set)
        self._spool.log.subscribe(lambda _: self._changed.set())
        self.load = Load(
            accesses=accesses,
            plan=self._plan,
            turns=self._turns,
            stock=stock,
            rules=rules,
            log=self._spool.log,
            report=report,
            on_hopeless=self._give_up,
            say=say,
        )
        self._answered_at = time.monotonic()
        self.load.may_begin = lambda: time.monotonic() - self._answered_at < _LEASE_SEC
        self._changed.set()
        self._speaker = gevent.spawn(self._speak)

    def receive(self, answer: Answer) -> None:
        """Take in the master's state."""
        self._answered_at = time.monotonic()
        self._spool.acknowledge(answer.acknowledged)
        for index, (number, row, account) in enumerate(answer.tasks, start=answer.first):
            if index == self._got:  # the others came before
                self._got += 1
                task = Task(number, self._matrix[row] if row >= 0 else NO_VARIANT, account)
                (self._turns if is_turn(task) else self._plan).give(task)
                self._changed.set()
        if answer.number > self._answer:  # an older one may come late
            self._answer = answer.number
            self._take_share(answer)
        if answer.drain:
            self.drain()
        self._heard = max(self._heard, answer.heard)
        self._answered.set()

    def _take_share(self, answer: Answer) -> None:
        if answer.share != self._share:
            self._share = answer.share
            self._changed.set()
        starting = max(1, usable_cores() // max(1, answer.neighbours))
        self._places.resize(in_flight=answer.share, starting=starting)

    def drain(self) -> None:
        """Begin nothing more and end what goes on; returns at once. `over` is set when all is delivered."""
        if self._draining is None:
            self.load.close()
            self._draining = gevent.spawn(self._drain)

    def _drain(self) -> None:
        client = self.load.drain()
        self._on_drained()
        self._client = client
        self._changed.set()

    def wait(self, *, within_sec: float) -> bool:
        """Wait for the drain, and then so long for the delivery; whether the master has everything."""
        if self._draining is not None:
            self._draining.join()
        return bool(self.over.wait(timeout=within_sec))

    def abandon(self) -> Path | None:
        """End without the master; returns the file with the events that it has not got."""
        self._speaker.kill()
        self._close()
        return None if self._spool.delivered else self._spool.path

    def _close(self) -> None:
        self._spool.close()
        self._accesses.close()

    def _on_broken(self, error: OSError) -> None:
        """Without a ledger no sandbox may be made; the events go to the master all the same."""
        self._give_up(f"{self._spool.path} cannot be written ({error.strerror})")

    def _give_up(self, problem: str) -> None:
        self._problem = problem
        self.drain()

    @property
    def _holds(self) -> int:
        in_flight = self._places.in_flight
        return in_flight if self._draining is not None else max(in_flight, self._share)

    def _speak(self) -> None:
        """Tell the master whatever is new, one report after the other, until it knows everything."""
        while True:
            held = self._holds
            self._changed.wait(timeout=_SHRINK_SEC if held > self._share else _REPORT_SEC)
            self._changed.clear()
            report = self._report()
            told = set(report.done)
            self._send(report)
            if not self._is_heard(report.number):
                self._changed.set()
                continue
            for plan in (self._plan, self._turns):
                plan.done = [number for number in plan.done if number not in told]
            if report.client is not None and self._spool.delivered:
                break
            if not self._spool.delivered:
                self._changed.set()
        self._close()
        self.over.set()

    def _report(self) -> Report:
        self._number += 1
        events = self._spool.pending(_BATCH)
        everything = len(events) < _BATCH
        return Report(
            run_id=self.run_id,
            number=self._number,
            heard=self._answer,
            events=[json.dumps(event) for event in events],
            done=[*self._plan.done, *self._turns.done],
            got=self._got,
            want=self._plan.wanted,
            want_turns=self._turns.wanted,
            holds=self._holds,
            clock_error_ms=self._clock_error_ms,
            client=self._client if everything else None,
            problem=self._problem,
        )

    def _is_heard(self, number: int) -> bool:
        """Wait for the answer to a report; False where none comes."""
        end = time.monotonic() + _REPORT_SEC
        while self._heard < number:
            self._answered.clear()
            if not self._answered.wait(timeout=max(0.0, end - time.monotonic())):
                return False
        return True
