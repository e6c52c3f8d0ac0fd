"""One sandbox's life: create, wait until ready, and in a steady load delete."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from treadstone_user.access import Access, Accesses
from treadstone_user.commands import FirstCommand
from treadstone_user.eventlog import EventLog, describe_task
from treadstone_user.model import EventKind, Sandbox, Task
from treadstone_user.poller import Outcome, Seen
from treadstone_user.pollers import Pollers
from treadstone_user.steps import Report, Step, delete_and_record, describe_failure, record_server_times
from treadstone_user.stock import Stock, Stocked
from treadstone_user.transports.base import CallError, CreateSpec, Reply


class CalledOff(Exception):
    """The run ends: a create that waited for its place is not sent."""


class NotSent(Exception):
    """Its event could not be written, so a create is not sent."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a scenario says about each lifecycle; times in seconds, intervals in minutes.

    ask_server_times: get each sandbox as soon as it is ready, for the server's own times.
    """

    label: str
    ready_timeout_sec: float
    auto_stop_interval: int
    auto_delete_interval: int
    delete_after_ready: bool
    ask_server_times: bool


class Lifecycle:
    """Leads sandboxes through their lives and records each step, in the log before in Locust.

    command: runs the first command in each ready sandbox; None for none.
    stock: gets the sandboxes that are ready and, where there is a first command, have answered it.
    closing: tells whether the run takes no more creates.
    """

    def __init__(
        self,
        *,
        accesses: Accesses,
        pollers: Pollers,
        log: EventLog,
        rules: Rules,
        command: FirstCommand | None,
        stock: Stock,
        report: Report,
        closing: Callable[[], bool],
    ) -> None:
        self._accesses = accesses
        self._pollers = pollers
        self._log = log
        self._rules = rules
        self._command = command
        self._stock = stock
        self._report = report
        self._closing = closing

    def lead(self, task: Task) -> bool:
        """Lead one sandbox through its life. Each end is recorded; nothing is raised for it.

        Returns False where it was called off before anything was sent.
        """
        about, access = describe_task(task), self._accesses[task.account]
        try:
            reply = self._create(task, about, access)
        except CalledOff:
            return False
        if reply is not None:
            self._live(task, about, access, reply)
        return True

    def _live(self, task: Task, about: dict[str, Any], access: Access, reply: Reply[Sandbox]) -> None:
        about["sandbox_id"] = reply.value.id
        seen = self._await_ready(task, about, reply)
        if seen.outcome is Outcome.READY:
            self._use(task, about, access, reply, seen)
        if self._rules.delete_after_ready and seen.outcome is not Outcome.INTERRUPTED:
            self._stock.remove(reply.value.id)
            delete_and_record(access.transport, self._log, self._report, about)

    def _use(
        self, task: Task, about: dict[str, Any], access: Access, reply: Reply[Sandbox], seen: Seen
    ) -> None:
        sandbox = reply.value
        proxy = sandbox.proxy or self._accesses.proxy_of(sandbox.id)
        if self._command is None:
            self._stock.add(Stocked(sandbox.id, task.account, proxy, fresh=True))
        elif self._command.run(
            access, about, proxy=proxy, created=reply.timing.started, ready_after=seen.after
        ):
            self._stock.add(Stocked(sandbox.id, task.account, proxy))
        if self._rules.ask_server_times:
            record_server_times(access.transport, self._log, about)

    def _create(self, task: Task, about: dict[str, Any], access: Access) -> Reply[Sandbox] | None:
        def submit(queued: float) -> None:
            if self._closing():
                raise CalledOff
            self._log.write(EventKind.CREATE_SUBMITTED, **about, queue_ms=queued * 1000)
            if self._log.broken:  # a create that no ledger knows of is not sent
                raise NotSent

        rules = self._rules
        spec = CreateSpec(task.variant, rules.label, rules.auto_stop_interval, rules.auto_delete_interval)
        name = f"1_create {task.variant.title}"
        try:
            reply = access.transport.create(spec, before_send=submit)
        except NotSent:
            # Listeners have heard that it was submitted; a worker's master may even have it in its log.
            told = {"http_status": None, "error_kind": "not_sent", "error": "the event log cannot be written"}
            self._log.write(EventKind.CREATE_ERR, **about, **told, latency_ms=None, queue_ms=None)
            return None
        except CallError as error:
            self._log.write(EventKind.CREATE_ERR, **about, **describe_failure(error))
            self._report(Step(name, error.timing.latency_ms, error.cause))
            return None
        timing = reply.timing
        self._log.write(
            EventKind.CREATE_OK,
            **about,
            sandbox_id=reply.value.id,
            latency_ms=timing.latency_ms,
            queue_ms=timing.queue_ms,
        )
        self._report(Step(name, timing.latency_ms))
        return reply

    def _await_ready(self, task: Task, about: dict[str, Any], reply: Reply[Sandbox]) -> Seen:
        sent = reply.timing.started
        timeout = self._rules.ready_timeout_sec
        seen = self._pollers[task.account].wait(
            reply.value.id, status=reply.value.status, after=sent, deadline=sent + timeout
        )
        name = f"2_ready {task.variant.title}"
        waited_ms = (seen.at - sent) * 1000
        about = about | {"polls": seen.polls, "ready_after_ms": (seen.after - sent) * 1000}
        match seen.outcome:
            case Outcome.READY:
                self._log.write(EventKind.READY, **about, ready_latency_ms=waited_ms)
                self._report(Step(name, waited_ms))
            case Outcome.FAILED:
                self._log.write(
                    EventKind.FAILED_STATUS, **about, last_status=seen.status, waited_ms=waited_ms
                )
                self._report(Step(name, waited_ms, f"status {seen.status}"))
            case Outcome.TIMEOUT:
                self._log.write(EventKind.POLL_TIMEOUT, **about, last_status=seen.status, waited_ms=waited_ms)
                self._report(Step(name, waited_ms, f"not ready after {timeout:g} s"))
            case Outcome.INTERRUPTED:
                # The server did nothing wrong: no request of Locust's, only an event.
                self._log.write(EventKind.INTERRUPTED, **about, last_status=seen.status, waited_ms=waited_ms)
        return seen
