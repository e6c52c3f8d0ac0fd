"""Clean-up: list, delete, and list again until none of the run's sandboxes is left.

A 204 is a promise: only a sandbox that the list no longer shows is gone. And rows of the
list move between its pages while states change, so a list of several pages proves an
absence only if its pages fit together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import gevent
from gevent.pool import Pool

from treadstone_user.eventlog import EventLog
from treadstone_user.model import Sandbox, SandboxStatus
from treadstone_user.retry import backoff
from treadstone_user.steps import Report, delete_and_record
from treadstone_user.transports.base import MAX_PAGE, CallError, Transport

GIVE_UP_SEC = 120.0
"""Clean-up ends when for so long neither a delete was accepted nor a sandbox went away."""

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
    remaining: dict[str, str] = field(default_factory=dict)
    """Sandboxes that could not be removed, with the reason."""
    kept: dict[str, str] = field(default_factory=dict)
    """Sandboxes under the run's label that are not of the run's kind, left on purpose."""
    verified: bool = False
    """Whether a whole list has shown that nothing removable is left."""
    problem: str | None = None
    """Why it is not verified."""

    def describe(self) -> dict[str, Any]:
        """The outcome for run.json and summary.json."""
        return {
            "ran": True,
            "passes": self.passes,
            "found": len(self.found),
            "remaining": self.remaining,
            "kept": self.kept,
            "verified": self.verified,
            "problem": self.problem,
        }


class Cleanup:
    """Deletes what carries a run's label, and nothing else.

    persist: where not None, only sandboxes with this `persist` are deleted: one of the other
        kind was not made by the scenario, and its data is not thrown away by surprise.
    about: tells the fields by which events name a sandbox.
    expected: sandboxes that the run knows it made; while no list can be read, they count as there.
    say: gets a line on each pass.
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
        about: Callable[[Sandbox], Mapping[str, Any]],
        expected: Collection[str] = (),
        say: Callable[[str], None],
        not_before: float = 0.0,
        give_up_sec: float = GIVE_UP_SEC,
    ) -> None:
        self._transport = transport
        self._run_id = run_id
        self._persist = persist
        self._at_once = at_once
        self._log = log
        self._report = report
        self._about = about
        self._say = say
        self._not_before = not_before
        self._give_up_sec = give_up_sec
        self._accepted: set[str] = set()
        self._said, self._said_at = "", 0.0
        self.outcome = Outcome(remaining=dict.fromkeys(expected, "not seen gone"))

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
            if time.monotonic() - moved_at > self._give_up_sec:
                return outcome
            gevent.sleep(backoff(idle, first_sec=0.3, longest_sec=5.0))

    def _one_pass(self) -> tuple[int, int] | None:
        """List once and delete what is there; returns a state whose change is progress."""
        outcome = self.outcome
        asked = time.monotonic()
        try:
            listing = list_all(self._transport)
        except CallError as error:
            said = str(error).partition("\n")[0]
            outcome.problem = f"the list of sandboxes cannot be read: {error.cause}: {said}"
            self._say_once(f"clean-up: {outcome.problem}; it is tried for {self._give_up_sec:g} s")
            return None
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

    def _say_once(self, line: str) -> None:
        """Say a line, and the same one again only after a while."""
        now = time.monotonic()
        if line != self._said or now - self._said_at >= _SAY_AGAIN_SEC:
            self._said, self._said_at = line, now
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
        error = delete_and_record(self._transport, self._log, self._report, self._about(sandbox))
        if error is None:
            self._accepted.add(sandbox.id)
        else:
            self.outcome.remaining[sandbox.id] = f"delete failed: {error.cause}"


def about_itself(sandbox: Sandbox) -> Mapping[str, Any]:
    """The fields by which events name a sandbox whose task is not known."""
    return {
        "task": None,
        "template": sandbox.template,
        "persist": sandbox.persist,
        "storage_size": sandbox.storage_size if sandbox.persist else None,
        "sandbox_id": sandbox.id,
    }


def _problem(there: int, listing: Listing) -> str:
    if there:
        return f"{there} still in the list"
    if not listing.whole:
        return f"the list changed while it was read ({len(listing.sandboxes)} sandboxes)"
    return "a create without an answer may still make a sandbox"
