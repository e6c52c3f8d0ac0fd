"""One run from its first create to its last delete; knows nothing of Locust.

The finish is latched: whoever asks first starts it, in a greenlet of its own, and everybody
may wait for it. Locust fires its ending events in different orders, sometimes twice, and
kills the greenlets in which it does so.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import gevent
from gevent.event import Event as Flag
from gevent.pool import Group, Pool

from treadstone_user.cleanup import Cleanup
from treadstone_user.clientwatch import ClientWatch
from treadstone_user.eventlog import EventLog, read_events, utc_now
from treadstone_user.exitcode import ExitCode, judge
from treadstone_user.ledger import Ledger
from treadstone_user.lifecycle import Lifecycle, Rules
from treadstone_user.model import EventKind, Task
from treadstone_user.plan import Plan
from treadstone_user.poller import Poller
from treadstone_user.progress import Progress, Tally
from treadstone_user.report import removal, render_cleanup, render_summary
from treadstone_user.run import RunFolder
from treadstone_user.scenario import Scenario
from treadstone_user.steps import Report, describe_failure, record_server_times
from treadstone_user.summary import distribution, summarize
from treadstone_user.transports.base import CallError, Transport
from treadstone_user.transports.cli import CliTransport

DRAIN_SEC = 75.0
"""How long calls in flight may take to end by themselves: a CLI call's limit, and some more."""


class Ending(StrEnum):
    """Why a run ended."""

    COMPLETED = "completed"
    """Every planned sandbox has its result."""
    STOPPED = "stopped"
    """Locust's run time was reached, or somebody stopped the test in the web UI."""
    FAILED = "failed"
    """Its own events could not be written."""
    INTERRUPTED = "interrupted"
    """Ctrl-C or SIGTERM, before all was over."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What a run is to do; the same for every run of a process.

    steady: one lifecycle after the other without a total, each deleted as it goes.
    cleanup: False for ``--no-cleanup``.
    local: whether the server is the run's own and ends with it.
    """

    scenario: Scenario
    steady: bool
    cleanup: bool
    local: bool

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
        self.over = Flag()
        """Set once there is nothing more to do but the finish."""
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
        self._unseen: list[str] | None = None
        self._failed_polls: set[str] = set()
        self._log = EventLog(folder.events_path, worker="local", on_broken=self._on_broken_log)
        self._tally, self._ledger = Tally(), Ledger()
        self._log.subscribe(self._tally.add)
        self._log.subscribe(self._ledger.add)
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
            if self.plan.finished.is_set():
                self.over.set()

    def finish(self, ending: Ending) -> None:
        """Begin the finish, if nobody has; returns at once."""
        if self._finishing is None:
            self.closing = True
            if self.ending is not Ending.FAILED:
                self.ending = ending
            self._finishing = gevent.spawn(self._finish)

    def interrupt(self) -> None:
        """Begin the finish over a signal, or take note that one came while it goes."""
        self.ending = Ending.INTERRUPTED
        self.finish(Ending.INTERRUPTED)

    def _interrupted(self) -> bool:
        return self.ending is Ending.INTERRUPTED

    def outlook(self) -> str:
        """What would be left behind, were the finish ended now, and what to do about it."""
        unseen = self._ledger.expected if self._unseen is None else self._unseen
        more = f" and {self._ledger.unanswered} creates without an answer" if self._ledger.unanswered else ""
        return f"{len(unseen)} sandboxes not seen gone{more}, labelled {self.folder.label}; {self._remedy()}"

    def _remedy(self) -> str:
        return removal(self.folder.run_id, self.folder.path.parent, local=self._orders.local)

    def _finish(self) -> None:
        cleanup: dict[str, Any] = {"ran": True, "verified": False, "problem": "it did not come to it"}
        try:
            self._drain()
            self.drained.set()
            client = self._watch.stop() | {"poll_period_ms": distribution(self._poller.periods_ms)}
            self._ask_server_times()
            cleanup = self._clean_up()
            self._at_end()
            self._conclude(client, cleanup)
        except OSError as error:
            self._show(f"the results of run {self.folder.run_id} cannot be written: {error}")
            self.exit_code = ExitCode.INCOMPLETE if cleanup["verified"] else ExitCode.LEFT_BEHIND
        except BaseException:
            self.exit_code = ExitCode.LEFT_BEHIND
            self._show(f"the finish of run {self.folder.run_id} broke off: {self.outlook()}")
            raise
        finally:
            self._at_end()  # once more does no harm
            self._log.close()
            self.drained.set()
            self.finished.set()

    def _on_broken_log(self, error: OSError) -> None:
        """Without a ledger no sandbox may be made; those that there are get removed."""
        self._say(
            f"{self.folder.events_path} cannot be written ({error.strerror}): the run takes no new work"
        )
        self.ending = Ending.FAILED
        self.closing = True
        self.over.set()

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
        if not self._ask_at_end or self._interrupted() or not self._ledger.ready:
            return
        self._say(f"asking the server for its own times of {len(self._ledger.ready)} sandboxes")
        asked = Pool(self._orders.scenario.concurrency)
        for sandbox_id in self._ledger.ready:
            if self._interrupted():
                break  # whoever interrupts wants the sandboxes gone, not more figures
            asked.spawn(record_server_times, self._transport, self._log, self._ledger.describe(sandbox_id))
        asked.join()

    def _clean_up(self) -> dict[str, Any]:
        reason = None
        if not self._orders.cleanup:
            reason = "--no-cleanup"
        elif self._interrupted() and not self._orders.scenario.cleanup_on_failure:
            reason = "interrupted, and cleanup.on_failure is false"
        if reason is not None:
            return {"ran": False, "reason": reason}
        self._unseen = self._ledger.expected
        cleanup = Cleanup(
            transport=self._transport,
            run_id=self.folder.run_id,
            persist=self._orders.persist,
            at_once=self._orders.scenario.concurrency,
            log=self._log,
            report=self._report,
            about=self._ledger.about,
            expected=self._unseen,
            say=self._say,
            not_before=self._ledger.settled_at,
        )
        return cleanup.run().describe() | {"unanswered_creates": self._ledger.unanswered}

    def _conclude(self, client: dict[str, Any], cleanup: dict[str, Any]) -> None:
        folder = self.folder
        folder.write_run(
            finished_at=utc_now(),
            duration_sec=round(time.monotonic() - self._started, 3),
            ending=str(self.ending),
            client=client,
            cleanup=cleanup,
        )
        summary = summarize(read_events(folder.events_path), folder.run)
        folder.write_summary(summary)
        self.exit_code = judge(summary)
        self._show(render_summary(summary))
        self._show(render_cleanup(cleanup, label=folder.label, remedy=self._remedy()))
        self._show(f"run {folder.run_id} {self.ending}, results in {folder.path}")

    def _on_failed_poll(self, error: CallError) -> None:
        self._log.write(EventKind.POLL_ERR, **describe_failure(error))
        if error.cause not in self._failed_polls:
            self._failed_polls.add(error.cause)
            self._say(f"a poll failed, and is tried again each interval: {error.cause}: {error}")
