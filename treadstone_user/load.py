"""The half of a run that makes sandboxes: in the only process of a run, or in each of its workers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gevent
from gevent.pool import Group

from treadstone_user.clientwatch import ClientWatch
from treadstone_user.eventlog import EventLog
from treadstone_user.lifecycle import Lifecycle, Rules
from treadstone_user.model import EventKind, Task
from treadstone_user.plan import Plan
from treadstone_user.poller import Poller
from treadstone_user.scenario import Scenario
from treadstone_user.steps import Report, describe_failure
from treadstone_user.summary import distribution
from treadstone_user.transports.base import AuthError, CallError, Transport
from treadstone_user.transports.cli import CliTransport

DRAIN_SEC = 75.0
"""How long calls in flight may take to end by themselves: a CLI call's limit, and some more."""


HOPELESS_SEC = 120.0
"""A server that has answered no poll for so long is gone for good."""

_LOOK_SEC = 0.05
_REFUSALS = 3
"""So many polls in a row that answer 401: the credential has expired."""


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
    """Leads the tasks of a plan through their lives.

    log: gets each event; report: gets each finished step, for Locust's request event.
    say: gets a line on what goes on.
    on_hopeless: told once, with the reason, when waiting on makes no sense any more.
    cli: the transport, where it is the CLI.
    """

    def __init__(
        self,
        *,
        transport: Transport,
        cli: CliTransport | None,
        plan: Plan,
        rules: LoadRules,
        log: EventLog,
        report: Report,
        on_hopeless: Callable[[str], None],
        say: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._log = log
        self._say = say
        self._closing = False
        self.may_begin: Callable[[], bool] = lambda: True
        """Whether a create may be sent at this moment; one that may not waits."""
        self._on_hopeless = on_hopeless
        self._failed_polls: set[str] = set()
        self._refused = 0
        self._lifecycles = Group()
        scenario = rules.scenario
        self._poller = Poller(
            transport, interval_sec=scenario.poll_interval_sec, on_failure=self._on_failed_poll
        )
        self._lifecycle = Lifecycle(
            transport=transport,
            poller=self._poller,
            log=log,
            rules=Rules(
                label=rules.label,
                ready_timeout_sec=scenario.ready_timeout_sec,
                auto_stop_interval=scenario.auto_stop_interval,
                auto_delete_interval=scenario.auto_delete_interval,
                delete_after_ready=rules.steady,
                ask_server_times=not rules.ask_later,
            ),
            report=report,
            closing=self._must_not_begin,
        )
        self._watch = ClientWatch(cli)

    def work(self) -> None:
        """Take a task and lead its sandbox through its life; idle once there are no more.

        It is led by a greenlet of the load's own: the caller may be killed at any time, and a
        create in flight must end by itself all the same, or nobody would know its sandbox.
        """
        task = self._plan.take()
        if task is None:
            gevent.sleep(3600)  # a user that stopped would be replaced at the next step of the ramp-up
        else:
            self._lifecycles.spawn(self._lead, task).get()

    def _lead(self, task: Task) -> None:
        begun = True  # what broke off may have made a sandbox
        try:
            begun = self._lifecycle.lead(task)
        finally:
            if begun:
                self._plan.resolved(task)
            else:
                self._plan.put_back(task)

    def _must_not_begin(self) -> bool:
        while not self._closing and not self.may_begin():
            gevent.sleep(_LOOK_SEC)
        return self._closing

    def close(self) -> None:
        """Begin nothing more."""
        self._closing = True
        self._plan.close()

    def drain(self) -> dict[str, Any]:
        """Let calls in flight end, end all waits as interrupted; returns what the client saw of itself."""
        self.close()
        self._poller.interrupt()
        self._lifecycles.join(timeout=DRAIN_SEC)
        self._lifecycles.kill()
        self._poller.stop()
        return self._watch.stop() | {"poll_period_ms": distribution(self._poller.periods_ms)}

    def describe(self) -> dict[str, Any]:
        """What run.json says of who made the load."""
        return {"workers": 1}

    def health(self) -> list[dict[str, Any]]:
        """How this process fares at this moment."""
        return [{"who": "this process", "state": "working", "figures": self._watch.now()}]

    def _on_failed_poll(self, error: CallError) -> None:
        self._log.write(EventKind.POLL_ERR, **describe_failure(error))
        if error.cause not in self._failed_polls:
            self._failed_polls.add(error.cause)
            self._say(f"a poll failed, and is tried again each interval: {error.cause}: {error}")
        self._refused = self._refused + 1 if isinstance(error, AuthError) else 0
        if self._closing:
            return
        if self._refused >= _REFUSALS:
            self._on_hopeless(f"the server refuses the credential ({error}): the run ends")
        elif time.monotonic() - (self._poller.failing_since or math.inf) > HOPELESS_SEC:
            self._on_hopeless(f"the server has answered no poll for {HOPELESS_SEC:g} s: the run ends")
