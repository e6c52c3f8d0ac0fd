"""Clean-up of a run on all its accounts: each has a list of its own, and sees no other's sandboxes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from gevent.pool import Pool

from treadstone_user.cleanup import Cleanup, Outcome
from treadstone_user.eventlog import EventLog
from treadstone_user.ledger import Ledger
from treadstone_user.steps import Report
from treadstone_user.transports.base import Transport

_ACCOUNTS_AT_ONCE = 10
_SAY_SEC = 2.0


class Cleanups:
    """One `Cleanup` an account, some of them at once; see there for what the arguments mean.

    transports: by account; None for that of the environment's credential.
    at_once: deletes in flight, of all accounts together, about.
    """

    def __init__(
        self,
        *,
        transports: Mapping[str | None, Transport],
        run_id: str,
        persist: bool | None,
        at_once: int,
        log: EventLog,
        report: Report,
        ledger: Ledger,
        say: Callable[[str], None],
        not_before: float = 0.0,
    ) -> None:
        self._say = say
        self._said_at = 0.0
        self._done = 0
        several = len(transports) > 1
        share = max(1, at_once // min(len(transports), _ACCOUNTS_AT_ONCE))
        self._all = [
            Cleanup(
                transport=transport,
                run_id=run_id,
                persist=persist,
                at_once=share,
                log=log,
                report=report,
                ledger=ledger,
                say=_nobody if several else say,
                account=account,
                not_before=not_before,
            )
            for account, transport in transports.items()
        ]

    @property
    def outcome(self) -> Outcome:
        """What it has come to so far, on all accounts together."""
        return Outcome.pooled([one.outcome for one in self._all])

    def run(self) -> dict[str, Any]:
        """Clean up, and return the outcome for run.json and summary.json."""
        if len(self._all) == 1:
            return self._all[0].run().describe()
        self._say(f"clean-up on {len(self._all)} accounts")
        Pool(_ACCOUNTS_AT_ONCE).map(self._run, self._all)
        return self.outcome.describe()

    def _run(self, cleanup: Cleanup) -> None:
        cleanup.run()
        self._done += 1
        if time.monotonic() - self._said_at >= _SAY_SEC or self._done == len(self._all):
            self._said_at = time.monotonic()
            outcome = self.outcome
            self._say(
                f"clean-up: {self._done} of {len(self._all)} accounts done, "
                f"{outcome.deleted + outcome.already_gone} sandboxes deleted"
            )


def _nobody(_line: str) -> None:
    """A line for each account and pass would be too many; the outcome names what is left."""
