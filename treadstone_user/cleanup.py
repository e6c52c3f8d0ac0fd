"""Clean-up: list, delete, and list again until none of the run's sandboxes is left.

A 204 is a promise: only a sandbox that the list no longer shows is gone. And rows of the
list move between its pages while states change, so a list of several pages proves an
absence only if its pages fit together.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gevent
from gevent.pool import Pool

from treadstone_user.eventlog import EventLog
from treadstone_user.ledger import Fate, Ledger
from treadstone_user.model import EventKind, Sandbox, SandboxStatus
from treadstone_user.retry import backoff
from treadstone_user.steps import Report, delete_and_record
from treadstone_user.transports.base import MAX_PAGE, AuthError, CallError, Transport

GIVE_UP_SEC = 120.0
"""Clean-up ends when for so long neither a delete was accepted nor a sandbox went away."""

_REFUSALS = 3
"""So many lists in a row that answer 401: the credential has expired, and waiting helps nobody."""

_PASS = re.compile(r"pass \d+")
_SAY_AGAIN_SEC = 15.0
_GOING = (SandboxStatus.DELETING, SandboxStatus.DELETED)


@dataclass(frozen=True, slots=True)
class Listing:
    """All sandboxes of the account; `whole` says whether its pages fit together."""

    sandboxes: Mapping[str, Sandbox]
    whole: bool


def list_all(transport: Transport) -> Listing:
    """Read the list to its end. Raises `CallError`."""
    found: dict[str, Sandbox] = {}
    totals: set[int] = set()
    offset = 0
    while True:
        page = transport.list_page(offset=offset, limit=MAX_PAGE).value
        totals.add(page.total)
        found |= {sandbox.id: sandbox for sandbox in page.items}
        offset += len(page.items)
        if not page.items or offset >= page.total:
            # A row that slipped past between two pages leaves fewer ids than the total says.
            return Listing(found, whole=totals == {len(found)})


@dataclass(slots=True)
class Outcome:
    """What the clean-up found and what it left."""

    passes: int = 0
    found: set[str] = field(default_factory=set)
    deleted: int = 0
    """Deletes that were accepted."""
    already_gone: int = 0
    """Deletes that were answered 404 or 409: gone, or on its way."""
    failed: set[str] = field(default_factory=set)
    """Sandboxes of which a delete has failed, and none was accepted so far."""
    gone: int = 0
    """Deleted sandboxes that a whole list showed no more."""
    remaining: dict[str, str] = field(default_factory=dict)
    """Sandboxes that could not be removed, with the reason."""
    kept: dict[str, str] = field(default_factory=dict)
    """Sandboxes under the run's label that are not of the run's kind, left on purpose."""
    verified: bool = False
    """Whether a whole list has shown that nothing removable is left."""
    problem: str | None = None
    """Why it is not verified."""

    @classmethod
    def pooled(cls, outcomes: Sequence[Outcome]) -> Outcome:
        """The outcome of several accounts together."""
        return cls(
            passes=max((one.passes for one in outcomes), default=0),
            found=set[str]().union(*(one.found for one in outcomes)),
            deleted=sum(one.deleted for one in outcomes),
            already_gone=sum(one.already_gone for one in outcomes),
            failed=set[str]().union(*(one.failed for one in outcomes)),
            gone=sum(one.gone for one in outcomes),
            remaining={name: reason for one in outcomes for name, reason in one.remaining.items()},
            kept={name: reason for one in outcomes for name, reason in one.kept.items()},
            verified=all(one.verified for one in outcomes),
            problem=next((one.problem for one in outcomes if one.problem is not None), None),
        )

    def describe(self) -> dict[str, Any]:
        """The outcome for run.json and summary.json."""
        return {
            "ran": True,
            "passes": self.passes,
            "found": len(self.found),
            "deleted": self.deleted,
            "already_gone": self.already_gone,
            "failed": len(self.failed),
            "gone": self.gone,
            "remaining": self.remaining,
            "kept": self.kept,
            "verified": self.verified,
            "problem": self.problem,
        }


class Cleanup:
    """Deletes what carries a run's label, and nothing else.

    persist: where not None, only sandboxes with this `persist` are deleted: one of the other
        kind was not made by the scenario, and its data is not thrown away by surprise.
    ledger: what is known of the run's sandboxes so far; it hears of the log's events. While no list
        can be read, those that it has as left count as there.
    say: gets a line on each pass.
    account: whose sandboxes these are; None for the account of the environment's credential.
    not_before: an empty list proves nothing before this moment (monotonic s).
    """

    def __init__(
        self,
        *,
        transport: Transport,
        run_id: str,
        persist: bool | None,
        at_once: int,
        log: EventLog,
        report: Report,
        ledger: Ledger,
        say: Callable[[str], None],
        account: str | None = None,
        not_before: float = 0.0,
        give_up_sec: float = GIVE_UP_SEC,
    ) -> None:
        self._transport = transport
        self._run_id = run_id
        self._persist = persist
        self._at_once = at_once
        self._log = log
        self._report = report
        self._ledger = ledger
        self._say = say
        self._not_before = not_before
        self._give_up_sec = give_up_sec
        self._accepted: set[str] = set()
        self._refused = 0
        self._said, self._said_at = "", 0.0
        self._account = account
        self.outcome = Outcome(
            remaining=dict.fromkeys(ledger.of_account(Fate.LEFT, account), "not seen gone")
        )

    def run(self) -> Outcome:
        """Delete until a whole list shows none of the run's sandboxes, or nothing moves any more."""
        outcome = self.outcome
        progress, moved_at, idle = None, time.monotonic(), 0
        while True:
            outcome.passes += 1
            state = self._one_pass()
            if outcome.verified:
                return outcome
            if state is not None and state != progress:
                progress, moved_at, idle = state, time.monotonic(), 0
            idle += 1
            if time.monotonic() - moved_at > self._give_up_sec or self._refused >= _REFUSALS:
                return outcome
            gevent.sleep(backoff(idle, first_sec=0.3, longest_sec=5.0))

    def _one_pass(self) -> tuple[int, int] | None:
        """List once and delete what is there; returns a state whose change is progress."""
        outcome = self.outcome
        asked = time.monotonic()
        try:
            listing = list_all(self._transport)
        except CallError as error:
            self._refused = self._refused + 1 if isinstance(error, AuthError) else 0
            said = str(error).partition("\n")[0]
            outcome.problem = f"the list of sandboxes cannot be read: {error.cause}: {said}"
            self._say_once(f"clean-up: {outcome.problem}; it is tried for {self._give_up_sec:g} s")
            return None
        self._refused = 0
        self._note_gone(listing)
        there = list(self._ours(listing))
        outcome.found |= {sandbox.id for sandbox in there}
        outcome.remaining = {s.id: f"still {s.status}" for s in there}
        outcome.verified = not there and listing.whole and asked >= self._not_before
        outcome.problem = None if outcome.verified else _problem(len(there), listing)
        to_delete = [sandbox for sandbox in there if sandbox.status not in _GOING]
        if there:
            self._say_once(
                f"clean-up, pass {outcome.passes}: {len(to_delete)} to delete, "
                f"{len(there) - len(to_delete)} on their way"
            )
        Pool(self._at_once).map(self._delete, to_delete)
        return len(there), len(self._accepted)

    def _note_gone(self, listing: Listing) -> None:
        """Write down which deleted sandboxes the list shows no more; only a whole list proves that."""
        if listing.whole:
            for sandbox_id in self._ledger.of_account(Fate.REMOVED, self._account):
                if sandbox_id not in listing.sandboxes:
                    self._log.write(EventKind.GONE, **self._ledger.describe(sandbox_id))
                    self.outcome.gone += 1

    def _say_once(self, line: str) -> None:
        """Say a line, and the same one again only after a while."""
        now, news = time.monotonic(), _PASS.sub("", line)
        if news != self._said or now - self._said_at >= _SAY_AGAIN_SEC:
            self._said, self._said_at = news, now
            self._say(line)

    def _ours(self, listing: Listing) -> Iterator[Sandbox]:
        for sandbox in listing.sandboxes.values():
            if not sandbox.belongs_to(self._run_id):
                continue
            if self._persist is not None and sandbox.persist != self._persist:
                kind = "persistent" if sandbox.persist else "not persistent"
                self.outcome.kept[sandbox.id] = f"{kind}, which the scenario does not make"
                continue
            yield sandbox

    def _delete(self, sandbox: Sandbox) -> None:
        about = self._ledger.about(sandbox, self._account)
        deletion = delete_and_record(self._transport, self._log, self._report, about)
        if deletion.error is not None:
            self.outcome.failed.add(sandbox.id)
            self.outcome.remaining[sandbox.id] = f"delete failed: {deletion.error.cause}"
            return
        self._accepted.add(sandbox.id)
        self.outcome.failed.discard(sandbox.id)
        if deletion.already:
            self.outcome.already_gone += 1
        else:
            self.outcome.deleted += 1


def _problem(there: int, listing: Listing) -> str:
    if there:
        return f"{there} still in the list"
    if not listing.whole:
        return f"the list changed while it was read ({len(listing.sandboxes)} sandboxes)"
    return "a create without an answer may still make a sandbox"
