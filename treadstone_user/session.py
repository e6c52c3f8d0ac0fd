"""One run from its first create to its last delete; knows nothing of Locust.

The finish is latched: whoever asks first starts it, in a greenlet of its own, and everybody
may wait for it. Locust fires its ending events in different orders, sometimes twice, and
kills the greenlets in which it does so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import gevent
from gevent.event import Event as Flag
from gevent.pool import Group, Pool

from treadstone_user.cleanup import Cleanup, about_itself
from treadstone_user.clientwatch import ClientWatch
from treadstone_user.eventlog import EventLog, read_events, utc_now
from treadstone_user.exitcode import ExitCode, worst
from treadstone_user.lifecycle import Lifecycle, Rules
from treadstone_user.model import Event, EventKind, Sandbox, Task
from treadstone_user.plan import Plan
from treadstone_user.poller import Poller
from treadstone_user.progress import Progress, Tally
from treadstone_user.report import render_left, render_summary
from treadstone_user.run import RunFolder
from treadstone_user.scenario import Scenario
from treadstone_user.steps import Report, describe_failure, record_server_times
from treadstone_user.summary import summarize
from treadstone_user.transports.base import CallError, Transport
from treadstone_user.transports.cli import CliTransport

DRAIN_SEC = 75.0
"""How long calls in flight may take to end by themselves: a CLI call's limit, and some more."""

_MAY_EXIST = ("request_timeout", "bad_output", "connect_error")
_SETTLE_SEC = 3.0


class Ending(StrEnum):
    """Why a run ended."""

    COMPLETED = "completed"
    """Every planned sandbox has its result."""
    STOPPED = "stopped"
    """Locust's run time was reached, or somebody stopped the test in the web UI."""
    INTERRUPTED = "interrupted"
    """Ctrl-C or SIGTERM, before all was over."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What a run is to do; the same for every run of a process.

    steady: one lifecycle after the other without a total, each deleted as it goes.
    cleanup: False for ``--no-cleanup``.
    """

    scenario: Scenario
    steady: bool
    cleanup: bool

    @property
    def planned(self) -> int | None:
        """How many sandboxes are planned; None where the load is steady."""
        return None if self.steady else self.scenario.total

    @property
    def persist(self) -> bool | None:
        """The one `persist` of all matrix rows, None where there are both."""
        kinds = {variant.persist for variant in self.scenario.matrix}
        return kinds.pop() if len(kinds) == 1 else None


class Session:
    """A run in progress.

    report: gets each finished step, for Locust's request event.
    say: gets a line on what goes on; show: gets a table.
    cli: the transport, where it is the CLI: then the server's times are asked for once the
        burst is over, as each question costs a process.
    at_end: called once the clean-up is over, before the summary (stops a local server).
    """

    def __init__(
        self,
        *,
        folder: RunFolder,
        orders: Orders,
        transport: Transport,
        plan: Plan,
        report: Report,
        say: Callable[[str], None],
        show: Callable[[str], None],
        cli: CliTransport | None,
        at_end: Callable[[], None],
    ) -> None:
        self.folder = folder
        self.plan = plan
        self.exit_code = ExitCode.OK
        self.closing = False
        self.ending = Ending.STOPPED
        self.drained = Flag()
        self.finished = Flag()
        self._orders = orders
        self._transport = transport
        self._report = report
        self._say = say
        self._show = show
        self._at_end = at_end
        self._started = time.monotonic()
        self._finishing: gevent.Greenlet[..., None] | None = None
        self._lifecycles = Group()
        self._ask_at_end = cli is not None and not orders.steady
        self._tasks: dict[str, Mapping[str, Any]] = {}
        self._ready: list[str] = []
        self._settle_until = 0.0
        self._failed_polls: set[str] = set()
        self._log = EventLog(folder.events_path, worker="local")
        self._tally = Tally()
        self._log.subscribe(self._tally.add)
        self._log.subscribe(self._remember)
        self._progress = Progress(self._tally, planned=orders.planned, say=say)
        scenario = orders.scenario
        self._poller = Poller(
            transport, interval_sec=scenario.poll_interval_sec, on_failure=self._on_failed_poll
        )
        self._lifecycle = Lifecycle(
            transport=transport,
            poller=self._poller,
            log=self._log,
            rules=Rules(
                label=folder.label,
                ready_timeout_sec=scenario.ready_timeout_sec,
                auto_stop_interval=scenario.auto_stop_interval,
                auto_delete_interval=scenario.auto_delete_interval,
                delete_after_ready=orders.steady,
                ask_server_times=not self._ask_at_end,
            ),
            report=report,
            closing=lambda: self.closing,
        )
        self._watch = ClientWatch(cli)
        self._progress.start()

    def lead(self, task: Task) -> None:
        """Lead one sandbox through its life and wait for its end.

        It is led by a greenlet of the run's own: the caller may be killed at any time, and a
        create in flight must end by itself all the same, or nobody would know its sandbox.
        """
        self._lifecycles.spawn(self._lead, task).get()

    def _lead(self, task: Task) -> None:
        try:
            self._lifecycle.lead(task)
        finally:
            self.plan.resolved(task)

    def finish(self, ending: Ending) -> None:
        """Begin the finish, if nobody has; returns at once."""
        if self._finishing is None:
            self.closing = True
            self.ending = ending
            self._finishing = gevent.spawn(self._finish)

    def interrupt(self) -> None:
        """Begin the finish over a signal, or take note that one came while it goes."""
        self.ending = Ending.INTERRUPTED
        self.finish(Ending.INTERRUPTED)

    def _interrupted(self) -> bool:
        return self.ending is Ending.INTERRUPTED

    def outlook(self) -> str:
        """What would be left behind, were the finish ended now."""
        counts = self._tally.counts
        there = counts[EventKind.CREATE_OK] - counts[EventKind.DELETE_OK]
        unanswered = counts[EventKind.CREATE_SUBMITTED] - counts[EventKind.CREATE_OK]
        unanswered -= counts[EventKind.CREATE_ERR]
        more = f" and {unanswered} creates without an answer" if unanswered else ""
        return f"{there} sandboxes{more}, labelled {self.folder.label}"

    def _finish(self) -> None:
        try:
            self._drain()
            self.drained.set()
            self.folder.write_run(client=self._watch.stop())
            self._ask_server_times()
            cleanup = self._clean_up()
            self._at_end()
            self._log.close()
            self._conclude(cleanup)
        except Exception:
            self.exit_code = ExitCode.LEFT_BEHIND
            self._show(f"the finish of run {self.folder.run_id} failed; its events are in {self.folder.path}")
            raise
        finally:
            self.drained.set()
            self.finished.set()

    def _drain(self) -> None:
        """No new work; calls in flight end by themselves; waits are over."""
        self.plan.close()
        self._poller.interrupt()
        self._lifecycles.join(timeout=DRAIN_SEC)
        self._lifecycles.kill()
        self._poller.stop()
        self._progress.stop()

    def _ask_server_times(self) -> None:
        """Ask for the server's times of all that got ready, before they are deleted."""
        if not self._ask_at_end or self._interrupted() or not self._ready:
            return
        self._say(f"asking the server for its own times of {len(self._ready)} sandboxes")
        asked = Pool(self._orders.scenario.concurrency)
        for sandbox_id in self._ready:
            if self._interrupted():
                break  # whoever interrupts wants the sandboxes gone, not more figures
            asked.spawn(record_server_times, self._transport, self._log, self._tasks[sandbox_id])
        asked.join()

    def _clean_up(self) -> dict[str, Any]:
        reason = None
        if not self._orders.cleanup:
            reason = "--no-cleanup"
        elif self._interrupted() and not self._orders.scenario.cleanup_on_failure:
            reason = "interrupted, and cleanup.on_failure is false"
        if reason is not None:
            return {"ran": False, "reason": reason}
        cleanup = Cleanup(
            transport=self._transport,
            run_id=self.folder.run_id,
            persist=self._orders.persist,
            at_once=self._orders.scenario.concurrency,
            log=self._log,
            report=self._report,
            about=self._about,
            say=self._say,
            not_before=self._settle_until,
        )
        return cleanup.run().describe()

    def _conclude(self, cleanup: dict[str, Any]) -> None:
        folder = self.folder
        folder.write_run(
            finished_at=utc_now(),
            duration_sec=round(time.monotonic() - self._started, 3),
            ending=str(self.ending),
            cleanup=cleanup,
        )
        summary = summarize(read_events(folder.events_path), folder.run)
        folder.write_summary(summary)
        self.exit_code = judge(summary)
        self._show(render_summary(summary))
        results = str(folder.path.parent)
        left = render_left(cleanup, run_id=folder.run_id, label=folder.label, results=results)
        if left:
            self._show(left)
        elif cleanup["ran"]:
            self._show(f"clean-up: all {cleanup['found']} sandboxes found are gone, none left")
        self._show(f"run {folder.run_id} {self.ending}, results in {folder.path}")

    def _about(self, sandbox: Sandbox) -> Mapping[str, Any]:
        """How events name a sandbox: by its task where the run knows it, else by itself."""
        return self._tasks.get(sandbox.id) or about_itself(sandbox)

    def _remember(self, event: Event) -> None:
        if event["event"] == EventKind.CREATE_OK:
            names = ("task", "profile_idx", "template", "persist", "storage_size", "sandbox_id")
            self._tasks[event["sandbox_id"]] = {name: event[name] for name in names}
        elif event["event"] == EventKind.READY:
            self._ready.append(event["sandbox_id"])
        elif event["event"] == EventKind.CREATE_ERR and event["error_kind"] in _MAY_EXIST:
            # The server may still be making it: an empty list proves nothing before that.
            self._settle_until = time.monotonic() + _SETTLE_SEC

    def _on_failed_poll(self, error: CallError) -> None:
        self._log.write(EventKind.POLL_ERR, **describe_failure(error))
        if error.cause not in self._failed_polls:
            self._failed_polls.add(error.cause)
            self._say(f"a poll failed, and is tried again each interval: {error.cause}: {error}")


def judge(summary: Mapping[str, Any]) -> ExitCode:
    """The exit code that a summary deserves."""
    overall, cleanup = summary["overall"], summary["cleanup"]
    findings = []
    if any(overall[key] for key in ("created_err", "failed_status", "poll_timeout", "delete_errors")):
        findings.append(ExitCode.REQUESTS_FAILED)
    results = sum(overall[key] for key in ("created_err", "ready", "failed_status", "poll_timeout"))
    planned = summary["planned"]
    if summary["ending"] == Ending.INTERRUPTED or (planned is not None and results < planned):
        findings.append(ExitCode.INCOMPLETE)
    if cleanup["ran"] and not cleanup["verified"]:
        findings.append(ExitCode.LEFT_BEHIND)
    return worst(findings)
