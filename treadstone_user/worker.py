"""A worker process: it asks the master what there is to do, gets ready for it, and takes part.

Knows nothing of Locust: `send` takes a message to the master, `receive` is given its messages.
"""

from __future__ import annotations

import logging
import os
import platform
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import gevent
from gevent.event import AsyncResult
from gevent.event import Event as Flag

from treadstone_user import __version__
from treadstone_user.access import Accesses, connect, read_accounts
from treadstone_user.binary import Binary
from treadstone_user.engagement import Engagement
from treadstone_user.load import LoadRules
from treadstone_user.localserver import KEY_VARIABLE
from treadstone_user.messages import Answer, Assignment, Join, Message, Refusal
from treadstone_user.model import run_label
from treadstone_user.preflight import check
from treadstone_user.scenario import Scenario, restore_scenario
from treadstone_user.sections import Job
from treadstone_user.spool import Spool
from treadstone_user.steps import Report
from treadstone_user.stock import take_stock
from treadstone_user.transports.base import AuthError, ConnectError, PreflightError, TreadstoneError
from treadstone_user.transports.cli import CliTransport

_log = logging.getLogger("treadstone")

_ASK_AGAIN_SEC = 2.0
_REFUSALS = 3  # messages may get lost, and this one is not answered
_LOCAL_KEY = (
    f"the master's local server wants a key that both know: set {KEY_VARIABLE} to the same value "
    "for the master and its workers, such as sk-local"
)


def machine() -> str:
    """Tells machines apart: the same for all processes of one, until it is started anew."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return f"{platform.node()}-{uuid.getnode():x}"


@dataclass(frozen=True, slots=True)
class Means:
    """What a worker has of its own; the rest comes from the master.

    find_binary: finds the CLI, or installs it. Raises `TreadstoneError`.
    warm_cli: None for "where it is possible".
    results: a run's spool lies in a folder of it until the master has everything.
    environment: holds the credential.
    """

    find_binary: Callable[[], Binary]
    warm_cli: bool | None
    results: Path
    environment: Mapping[str, str]


class Worker:
    """Takes part in the runs of a master, one after the other.

    send: takes a message to the master; messages may get lost.
    report: gets each finished step, for Locust's request event.
    on_drained: called once nothing of a run goes on any more, before the master is told.
    say: gets a line on what goes on.
    """

    def __init__(
        self,
        means: Means,
        *,
        send: Callable[[Message], None],
        report: Report,
        on_drained: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self._means = means
        self._send = send
        self._report = report
        self._on_drained = on_drained
        self._say = say
        self._assigned: AsyncResult[Assignment] = AsyncResult()
        self._engaged = Flag()
        self._engagement: Engagement | None = None
        self._starting: gevent.Greenlet[..., None] | None = None
        self._leaving = False

    def begin(self) -> None:
        """A run has begun: ask the master for it, and take part."""
        if self._leaving:
            return
        if self._starting is not None:
            self._starting.kill()
        self._engaged.clear()
        self._assigned = AsyncResult()
        self._starting = gevent.spawn(self._start)

    def do(self, job: Job) -> None:
        """Do one piece of work; idle once there is no more."""
        self._engaged.wait()
        if self._engagement is not None:
            self._engagement.load.do(job)

    def receive(self, message: Message) -> None:
        """Take in a message from the master."""
        engagement = self._engagement
        if isinstance(message, Assignment):
            self._assigned.set(message)
        elif isinstance(message, Answer) and engagement is not None and engagement.run_id == message.run_id:
            engagement.receive(message)

    def leave(self, *, within_sec: float) -> Path | None:
        """Take no more part: end what goes on, deliver everything, and wait for that.

        Returns the file with the events that the master has not got, None where it has all.
        """
        self._leaving = True
        if self._starting is not None:
            self._starting.kill()
        engagement = self._engagement
        if engagement is None:
            return None
        engagement.drain()
        return None if engagement.wait(within_sec=within_sec) else engagement.abandon()

    def _start(self) -> None:
        assignment, error_ms = self._ask()
        if self._engagement is not None and self._engagement.run_id == assignment.run_id:
            self._engaged.set()  # Locust has begun anew in the middle of a run
            return
        began = time.monotonic() - (assignment.t_ms + error_ms) / 1000
        try:
            self._engagement = self._engage(assignment, began, error_ms)
        except TreadstoneError as error:
            problem = _one_line(error)
            self._say(f"this worker takes no tasks: {problem}")
            for _ in range(_REFUSALS):
                self._send(Refusal(assignment.run_id, problem))
                gevent.sleep(_ASK_AGAIN_SEC)
        else:
            self._engaged.set()

    def _ask(self) -> tuple[Assignment, float]:
        """The master's assignment, and half the round trip that it took, in ms.

        The run's clock is set by it, to within that: F. Cristian, "Probabilistic clock
        synchronization", Distributed Computing 3 (1989) 146-158.
        """
        while True:
            asked = time.monotonic()
            self._send(Join(__version__, platform.node(), machine(), os.getpid()))
            assignment = self._assigned.wait(timeout=_ASK_AGAIN_SEC)
            if assignment is not None:
                return assignment, round((time.monotonic() - asked) * 500, 3)

    def _engage(self, assignment: Assignment, began: float, error_ms: float) -> Engagement:
        rules = LoadRules(
            scenario=restore_scenario(assignment.scenario, source="the master's scenario"),
            label=run_label(assignment.run_id),
            steady=assignment.steady,
            ask_later=assignment.transport == "cli" and not assignment.steady,
        )
        folder = self._means.results / assignment.run_id / "spool"
        accesses = self._connect(assignment, rules.scenario)
        try:
            jobs = [Job(job) for job in assignment.jobs]
            return Engagement(
                run_id=assignment.run_id,
                clock_error_ms=error_ms,
                rules=rules,
                accesses=accesses,
                stock=take_stock(accesses, rules.scenario.accounts, jobs),
                spool=lambda on_broken: Spool(
                    folder / f"{assignment.worker}.jsonl",
                    worker=assignment.worker,
                    began=began,
                    on_broken=on_broken,
                ),
                report=self._report,
                send=self._send,
                on_drained=self._on_drained,
                say=self._say,
            )
        except BaseException:
            accesses.close()
            raise

    def _connect(self, assignment: Assignment, scenario: Scenario) -> Accesses:
        """A way to reach the server, tried out."""
        environment = dict(self._means.environment)
        if assignment.local:
            if not environment.get(KEY_VARIABLE):
                raise PreflightError(_LOCAL_KEY)
            environment["TREADSTONE_API_KEY"] = environment[KEY_VARIABLE]
        with_cli = assignment.transport == CliTransport.name
        same_cli = assignment.machine == machine() and self._means.warm_cli in (None, assignment.warm_cli)
        accesses = connect(
            binary=self._means.find_binary() if with_cli else None,
            warm_cli=self._means.warm_cli,
            at_once=scenario.concurrency,
            base_url=assignment.base_url,
            environment=environment,
            accounts=None if scenario.accounts is None else read_accounts(scenario.accounts),
            startup_sec=assignment.cli_startup_sec if same_cli else None,
            say=self._say,
        )
        try:
            check(
                accesses.first.transport, base_url=assignment.base_url, matrix=scenario.matrix, say=_log.debug
            )
        except PreflightError as error:
            accesses.close()
            if assignment.local and isinstance(error.__cause__, AuthError):
                raise PreflightError(_LOCAL_KEY) from error
            if assignment.local and isinstance(error.__cause__, ConnectError):
                raise PreflightError(
                    f"the master's local server ({assignment.base_url}) is for workers on its own machine"
                ) from error
            raise
        return accesses


def _one_line(error: BaseException) -> str:
    return "; ".join(line.strip() for line in str(error).splitlines() if line.strip())
