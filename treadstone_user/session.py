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
from typing import Any, Protocol

import gevent
from gevent.event import Event as Flag
from gevent.pool import Pool

from treadstone_user.cleanup import Cleanup
from treadstone_user.eventlog import EventLog, read_events, utc_now
from treadstone_user.exitcode import ExitCode, judge, worst
from treadstone_user.ledger import Ledger
from treadstone_user.plan import Plan
from treadstone_user.progress import Progress, Tally
from treadstone_user.report import removal, render_cleanup, render_summary
from treadstone_user.run import RunFolder
from treadstone_user.scenario import Scenario
from treadstone_user.steps import Report, record_server_times
from treadstone_user.summary import summarize
from treadstone_user.transports.base import Transport


class Ending(StrEnum):
    """Why a run ended."""

    COMPLETED = "completed"
    """Every planned sandbox has its result."""
    STOPPED = "stopped"
    """Locust's run time was reached, or somebody stopped the test in the web UI."""
    FAILED = "failed"
    """It could not go on: its own events could not be written, or no worker could take part."""
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


class Hands(Protocol):
    """Who makes a run's sandboxes: the load of this process, or a crew of workers."""

    def close(self) -> None:
        """Begin nothing more; returns at once."""
        ...

    def drain(self) -> dict[str, Any]:
        """Wait until all that was begun has its end in the log; returns what the client saw of itself."""
        ...

    def describe(self) -> dict[str, Any]:
        """What run.json says of who made the load."""
        ...


class Session:
    """A run in progress.

    log: the run's events, to which `hands` write.
    ask_later: whether the server's times are asked for once the burst is over.
    report: gets each finished step, for Locust's request event.
    say: gets a line on what goes on; show: gets a table.
    at_end: called once the clean-up is over, before the summary (stops a local server).
    """

    def __init__(
        self,
        *,
        folder: RunFolder,
        orders: Orders,
        transport: Transport,
        plan: Plan,
        log: EventLog,
        hands: Hands,
        ask_later: bool,
        report: Report,
        say: Callable[[str], None],
        show: Callable[[str], None],
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
        self._ask_later = ask_later
        self._unseen: list[str] | None = None
        self._failures: list[ExitCode] = []
        self._log, self._hands = log, hands
        self._tally, self._ledger = Tally(), Ledger()
        log.on_broken = self._on_broken_log
        log.subscribe(self._tally.add)
        log.subscribe(self._ledger.add)
        plan.finished.rawlink(lambda _: self.over.set())
        self._progress = Progress(self._tally, planned=orders.planned, say=say)
        self._progress.start()

    def finish(self, ending: Ending) -> None:
        """Begin the finish, if nobody has; returns at once."""
        if self._finishing is None:
            self.closing = True
            if self.ending is not Ending.FAILED:
                self.ending = ending
            self._hands.close()
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
            client = self._hands.drain()
            self._progress.stop()
            self.drained.set()
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
        reason = f"{self.folder.events_path} cannot be written ({error.strerror}): the run takes no new work"
        self.fail(reason, ExitCode.INCOMPLETE)

    def fail(self, reason: str, code: ExitCode) -> None:
        """End the run, as it cannot go on; `code` is the least that it ends with."""
        if self.over.is_set():
            return
        self._say(reason)
        self._failures.append(code)
        self.ending = Ending.FAILED
        self._hands.close()
        self.over.set()

    def _ask_server_times(self) -> None:
        """Ask for the server's times of all that got ready, before they are deleted."""
        if not self._ask_later or self._interrupted() or not self._ledger.ready:
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
            **self._hands.describe(),
            finished_at=utc_now(),
            duration_sec=round(time.monotonic() - self._started, 3),
            ending=str(self.ending),
            client=client,
            cleanup=cleanup,
        )
        summary = summarize(read_events(folder.events_path), folder.run)
        folder.write_summary(summary)
        self.exit_code = worst([judge(summary), *self._failures])
        self._show(render_summary(summary))
        self._show(render_cleanup(cleanup, label=folder.label, remedy=self._remedy()))
        self._show(f"run {folder.run_id} {self.ending}, results in {folder.path}")
