"""The half of a run that makes its load: in the only process of a run, or in each of its workers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gevent
from gevent.event import Event
from gevent.pool import Group

from treadstone_user.access import Accesses
from treadstone_user.clientwatch import ClientWatch
from treadstone_user.commands import FirstCommand
from treadstone_user.eventlog import EventLog
from treadstone_user.figures import distribution
from treadstone_user.fillin import Rows
from treadstone_user.lifecycle import Lifecycle, Rules
from treadstone_user.model import EventKind, Task
from treadstone_user.plan import Plan, is_turn
from treadstone_user.poller import Poller
from treadstone_user.pollers import Pollers
from treadstone_user.queries import Queries
from treadstone_user.scenario import Scenario
from treadstone_user.sections import DEFAULT_QUERIES, DEFAULT_STREAM, DataSource, Job
from treadstone_user.steps import Report, describe_failure
from treadstone_user.stock import Stock
from treadstone_user.streams import Streams
from treadstone_user.transports.base import CallError
from treadstone_user.trouble import HOPELESS_SEC, REFUSALS, Trouble

DRAIN_SEC = 75.0
"""How long calls in flight may take to end by themselves: a CLI call's limit, and some more."""

_LOOK_SEC = 0.05


@dataclass(frozen=True, slots=True)
class LoadRules:
    """What a load does.

    steady: one lifecycle after the other without a total, each deleted as it goes.
    ask_later: the server's times are asked for once the burst is over, as each question costs a
        process, and not by the load.
    """

    scenario: Scenario
    label: str
    steady: bool
    ask_later: bool


class Load:
    """Does the work of all users: leads sandboxes through their lives, asks queries, follows streams.

    accesses: the accounts on which it does so.
    plan, turns: the tasks, and the turns of streams.
    stock: the sandboxes for queries and streams; it gets those that are made here.
    log: gets each event; report: gets each finished step, for Locust's request event.
    say: gets a line on what goes on.
    on_hopeless: told once, with the reason, when waiting on makes no sense any more.
    Raises `TreadstoneError` where a data file cannot be read.
    """

    def __init__(
        self,
        *,
        accesses: Accesses,
        plan: Plan,
        turns: Plan,
        stock: Stock,
        rules: LoadRules,
        log: EventLog,
        report: Report,
        on_hopeless: Callable[[str], None],
        say: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._turns = turns
        self._log = log
        self._say = say
        self._closing = False
        self._closed_now = Event()
        self.may_begin: Callable[[], bool] = lambda: True
        """Whether a create may be sent at this moment; one that may not waits."""
        self._on_hopeless = on_hopeless
        self._failed_polls: set[str] = set()
        self._at_work = Group()
        scenario = rules.scenario
        self._pollers = Pollers(
            accesses, interval_sec=scenario.poll_interval_sec, on_failure=self._on_failed_poll
        )
        command = None
        if scenario.exec is not None:
            command = FirstCommand(
                rules=scenario.exec,
                rows=_rows(scenario.exec.data),
                log=log,
                report=report,
                closing=self._closed,
            )
        self._lifecycle = Lifecycle(
            accesses=accesses,
            pollers=self._pollers,
            log=log,
            rules=Rules(
                label=rules.label,
                ready_timeout_sec=scenario.ready_timeout_sec,
                auto_stop_interval=scenario.auto_stop_interval,
                auto_delete_interval=scenario.auto_delete_interval,
                delete_after_ready=rules.steady,
                ask_server_times=not rules.ask_later,
            ),
            command=command,
            stock=stock,
            report=report,
            closing=self._must_not_begin,
        )
        trouble = Trouble(self._give_up)
        self._queries = Queries(
            accesses=accesses,
            rules=scenario.query or DEFAULT_QUERIES,
            stock=stock,
            log=log,
            report=report,
            trouble=trouble,
            pause=self._pause,
        )
        streams = scenario.stream or DEFAULT_STREAM
        self._streams = Streams(
            accesses=accesses,
            rules=streams,
            rows=_rows(streams.data),
            stock=stock,
            log=log,
            report=report,
            closing=self._closed,
            say=say,
            trouble=trouble,
            pause=self._pause,
        )
        self._watch = ClientWatch(accesses.cli)

    def do(self, job: Job) -> None:
        """Do one piece of work for a user; idle once there is no more.

        It is done by a greenlet of the load's own: the caller may be killed at any time, and a
        create in flight must end by itself all the same, or nobody would know its sandbox.
        """
        begun = False
        if job is Job.QUERY:
            begun = not self._closing
            if begun:
                self._at_work.spawn(self._queries.ask).get()
        else:
            plan = self._turns if job is Job.STREAM else self._plan
            task = plan.take()
            begun = task is not None
            if task is not None:
                self._at_work.spawn(self._see_through, plan, task).get()
        if not begun:
            gevent.sleep(3600)  # a user that stopped would be replaced at the next step of the ramp-up

    def _see_through(self, plan: Plan, task: Task) -> None:
        begun = True  # what broke off may have made a sandbox
        try:
            begun = self._streams.open(task) if is_turn(task) else self._lifecycle.lead(task)
        finally:
            if begun:
                plan.resolved(task)
            else:
                plan.put_back(task)

    def _must_not_begin(self) -> bool:
        while not self._closing and not self.may_begin():
            gevent.sleep(_LOOK_SEC)
        return self._closing

    def _closed(self) -> bool:
        return self._closing

    def _pause(self, sec: float) -> None:
        if sec:
            self._closed_now.wait(sec)

    def _give_up(self, reason: str) -> None:
        if not self._closing:
            self._on_hopeless(reason)

    def close(self) -> None:
        """Begin nothing more."""
        self._closing = True
        self._closed_now.set()
        self._plan.close()
        self._turns.close()

    def drain(self) -> dict[str, Any]:
        """Let calls in flight end, end all waits as interrupted; returns what the client saw of itself."""
        self.close()
        self._pollers.interrupt()
        self._at_work.join(timeout=DRAIN_SEC)
        self._at_work.kill()
        self._pollers.stop()
        return self._watch.stop() | {"poll_period_ms": distribution(self._pollers.periods_ms())}

    def describe(self) -> dict[str, Any]:
        """What run.json says of who made the load."""
        return {"workers": 1}

    def health(self) -> list[dict[str, Any]]:
        """How this process fares at this moment."""
        return [{"who": "this process", "state": "working", "figures": self._watch.now()}]

    def _on_failed_poll(self, account: str | None, poller: Poller, error: CallError) -> None:
        whose = {} if account is None else {"account": account}
        self._log.write(EventKind.POLL_ERR, **whose, **describe_failure(error))
        if error.cause not in self._failed_polls:
            self._failed_polls.add(error.cause)
            self._say(f"a poll failed, and is tried again each interval: {error.cause}: {error}")
        of = "" if account is None else f" of {account}"
        if poller.refused >= REFUSALS:
            self._give_up(f"the server refuses the credential{of} ({error}): the run ends")
        elif time.monotonic() - (poller.failing_since or math.inf) > HOPELESS_SEC:
            self._give_up(f"the server has answered no poll{of} for {HOPELESS_SEC:g} s: the run ends")


def _rows(source: DataSource | None) -> Rows | None:
    return None if source is None else Rows.load(source)
