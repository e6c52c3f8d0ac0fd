"""One run from its first create to its last delete; knows nothing of Locust.

The finish is latched: whoever asks first starts it, in a greenlet of its own, and everybody
may wait for it. Locust fires its ending events in different orders, sometimes twice, and
kills the greenlets in which it does so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gevent
from gevent.event import Event as Flag
from gevent.pool import Pool

from treadstone_user.access import Accesses
from treadstone_user.cleanups import Cleanups
from treadstone_user.eventlog import EventLog, read_events, utc_now
from treadstone_user.exitcode import ExitCode, judge, worst
from treadstone_user.ledger import Fate, Ledger
from treadstone_user.live import Live
from treadstone_user.model import EventKind
from treadstone_user.orders import Ending, Hands, Orders, Phase
from treadstone_user.plan import Plan
from treadstone_user.progress import Progress, Tally
from treadstone_user.report import NOTHING_MADE, removal, render_cleanup, render_summary
from treadstone_user.run import RunFolder
from treadstone_user.sections import Job
from treadstone_user.steps import Report, record_server_times
from treadstone_user.summary import summarize


class Session:
    """A run in progress.

    accesses: the accounts that the run may have sandboxes on.
    log: the run's events, to which `hands` write.
    ends_with: the plans whose end is the run's; none for one that time or somebody ends.
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
        accesses: Accesses,
        ends_with: Sequence[Plan],
        log: EventLog,
        hands: Hands,
        ask_later: bool,
        report: Report,
        say: Callable[[str], None],
        show: Callable[[str], None],
        at_end: Callable[[], None],
    ) -> None:
        self.folder = folder
        self._ends_with = ends_with
        self.exit_code = ExitCode.OK
        self.closing = False
        self.ending = Ending.STOPPED
        self.phase = Phase.RUNNING
        self.summary: Mapping[str, Any] | None = None
        """summary.json, once it is written."""
        self.live = Live(timeout_ms=orders.scenario.ready_timeout_sec * 1000)
        self.hands = hands
        self.drained = Flag()
        self.finished = Flag()
        self.over = Flag()
        """Set once there is nothing more to do but the finish."""
        self._orders = orders
        self._accesses = accesses
        self._report = report
        self._say = say
        self._show = show
        self._at_end = at_end
        self._started = time.monotonic()
        self._finishing: gevent.Greenlet[..., None] | None = None
        self._ask_later = ask_later
        self._ended_ms: float | None = None
        self._cleaner: Cleanups | None = None
        self._cleaned: Mapping[str, Any] | None = None
        self._failures: list[ExitCode] = []
        self._log = log
        self._tally, self._ledger = Tally(), Ledger()
        log.on_broken = self._on_broken_log
        log.subscribe(self._tally.add)
        log.subscribe(self._ledger.add)
        log.subscribe(self.live.add)
        for plan in ends_with:
            plan.finished.rawlink(lambda _: self.over.set() if self.completed else None)
        self._progress = Progress(self._tally, planned=orders.planned, say=say)
        self._progress.start()

    def finish(self, ending: Ending) -> None:
        """Begin the finish, if nobody has; returns at once."""
        if self._finishing is None:
            self.closing = True
            if ending is Ending.COMPLETED and self._tally.counts[EventKind.LOST]:
                ending = Ending.INCOMPLETE
            if self.ending is not Ending.FAILED:
                self.ending = ending
            self.phase = Phase.DRAINING
            self.hands.close()
            self._finishing = gevent.spawn(self._finish)

    @property
    def completed(self) -> bool:
        """Whether there is nothing left to do."""
        return bool(self._ends_with) and all(plan.finished.is_set() for plan in self._ends_with)

    @property
    def elapsed_ms(self) -> float:
        """Milliseconds since the run began; to its end, once it has ended."""
        return self._log.t_ms if self._ended_ms is None else self._ended_ms

    @property
    def cleanup(self) -> Mapping[str, Any] | None:
        """What the clean-up has come to so far; None before it."""
        if self._cleaned is None and self._cleaner is not None:
            return self._cleaner.outcome.describe()
        return self._cleaned

    @property
    def has_begun(self) -> bool:
        """Whether a create was sent."""
        return self._tally.counts[EventKind.CREATE_SUBMITTED] > 0

    def interrupt(self) -> None:
        """Begin the finish over a signal, or take note that one came while it goes."""
        self.ending = Ending.INTERRUPTED
        self.finish(Ending.INTERRUPTED)

    def _interrupted(self) -> bool:
        return self.ending is Ending.INTERRUPTED

    def outlook(self) -> str:
        """What would be left behind, were the finish ended now, and what to do about it."""
        unseen = len(self._ledger.of(Fate.LEFT)) + len(self._ledger.of(Fate.REMOVED))
        more = f" and {self._ledger.unanswered} creates without an answer" if self._ledger.unanswered else ""
        return f"{unseen} sandboxes not seen gone{more}, labelled {self.folder.label}; {self.remedy}"

    @property
    def remedy(self) -> str:
        """How to remove what the run left."""
        return removal(self.folder.run_id, self.folder.path.parent, local=self._orders.local)

    def _finish(self) -> None:
        cleanup: dict[str, Any] = {"ran": True, "verified": False, "problem": "it did not come to it"}
        try:
            client = self.hands.drain()
            self._progress.stop()
            self.drained.set()
            self._ask_server_times()
            cleanup = self._clean_up()
            self._cleaned = cleanup
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
            self.phase = Phase.FINISHED
            self._ended_ms = self._log.t_ms
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
        self.hands.close()
        self.over.set()

    def _ask_server_times(self) -> None:
        """Ask for the server's times of all that got ready, before they are deleted."""
        if not self._ask_later or self._interrupted() or not self._ledger.ready:
            return
        self.phase = Phase.ASKING
        self._say(f"asking the server for its own times of {len(self._ledger.ready)} sandboxes")
        asked = Pool(self._orders.scenario.concurrency)
        for sandbox_id in self._ledger.ready:
            if self._interrupted():
                break  # whoever interrupts wants the sandboxes gone, not more figures
            about = self._ledger.describe(sandbox_id)
            transport = self._accesses[about.get("account")].transport
            asked.spawn(record_server_times, transport, self._log, about)
        asked.join()

    def _clean_up(self) -> dict[str, Any]:
        reason = None
        if Job.LIFECYCLE not in self._orders.jobs:
            reason = NOTHING_MADE
        elif not self._orders.cleanup:
            reason = "--no-cleanup"
        elif self._interrupted() and not self._orders.scenario.cleanup_on_failure:
            reason = "interrupted, and cleanup.on_failure is false"
        if reason is not None:
            return {"ran": False, "reason": reason}
        self.phase = Phase.CLEANING
        self._cleaner = Cleanups(
            transports={access.account: access.transport for access in self._accesses},
            run_id=self.folder.run_id,
            persist=self._orders.persist,
            at_once=self._orders.scenario.concurrency,
            log=self._log,
            report=self._report,
            ledger=self._ledger,
            say=self._say,
            not_before=time.monotonic() + (self._ledger.settles_at_ms - self._log.t_ms) / 1000,
        )
        return self._cleaner.run() | {"unanswered_creates": self._ledger.unanswered}

    def _conclude(self, client: dict[str, Any], cleanup: dict[str, Any]) -> None:
        folder = self.folder
        folder.write_run(
            **self.hands.describe(),
            finished_at=utc_now(),
            duration_sec=round(time.monotonic() - self._started, 3),
            ending=str(self.ending),
            client=client,
            cleanup=cleanup,
        )
        summary = summarize(read_events(folder.events_path), folder.run)
        folder.write_summary(summary)
        self.summary = summary
        self.exit_code = worst([judge(summary, strict=self._orders.strict), *self._failures])
        self._show(render_summary(summary))
        self._show(render_cleanup(cleanup, label=folder.label, remedy=self.remedy))
        self._show(f"run {folder.run_id} {self.ending}, results in {folder.path}")
