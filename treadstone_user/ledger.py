"""The ledger: which sandboxes a run has made and what became of them, from its events alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from treadstone_user.model import Event, EventKind, Sandbox

_MAY_EXIST = ("request_timeout", "bad_output", "connect_error")
_SETTLE_MS = 3000.0
_ABOUT = ("task", "profile_idx", "template", "persist", "storage_size", "account", "sandbox_id")


class Fate(StrEnum):
    """What became of a sandbox, as far as events tell."""

    GONE = "gone"
    """Deleted, and a whole list did not show it any more."""
    REMOVED = "removed"
    """Its delete was accepted; nobody has seen it gone."""
    LEFT = "left"
    """It was made, and no delete was accepted."""


class Ledger:
    """Takes in a run's events and tells which sandboxes there may be.

    Of a log that was cut off it tells all that the log tells: fields that are missing are passed over.
    """

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.ready: list[str] = []
        """Those that got ready, in that order."""
        self.settles_at_ms = 0.0
        """Before this moment of the run's clock a create without an answer may still make a sandbox."""
        self._fates: dict[str, Fate] = {}
        self._about: dict[str, Mapping[str, Any]] = {}
        self._unanswered: dict[int, str | None] = {}
        for event in events:
            self.add(event)

    def add(self, event: Event) -> None:
        """Take in an event."""
        kind, task, sandbox_id = event["event"], event.get("task"), event.get("sandbox_id")
        if kind == EventKind.CREATE_SUBMITTED and task is not None:
            self._unanswered[task] = event.get("ts")
        elif kind == EventKind.CREATE_ERR:
            if event.get("error_kind") in _MAY_EXIST:
                self._unsettled(event)
            else:
                self._answered(task)
        elif kind == EventKind.LOST:
            if event.get("submitted") and sandbox_id is None:
                self._unsettled(event)  # its worker's call may still go on
        elif sandbox_id is not None:
            self._add_fate(kind, task, sandbox_id, event)

    def _add_fate(self, kind: str, task: int | None, sandbox_id: str, event: Event) -> None:
        if kind == EventKind.CREATE_OK:
            self._answered(task)
            self._set(sandbox_id, Fate.LEFT, event)
        elif kind == EventKind.READY:
            self.ready.append(sandbox_id)
        elif kind == EventKind.DELETE_OK and self._fates.get(sandbox_id) is not Fate.GONE:
            self._set(sandbox_id, Fate.REMOVED, event)
        elif kind == EventKind.GONE:
            self._set(sandbox_id, Fate.GONE, event)

    def _answered(self, task: int | None) -> None:
        if task is not None:
            self._unanswered.pop(task, None)

    def _set(self, sandbox_id: str, fate: Fate, event: Event) -> None:
        self._fates[sandbox_id] = fate
        if sandbox_id not in self._about:
            known = {name: event.get(name) for name in _ABOUT}
            self._about[sandbox_id] = known if known["account"] is not None else _without_account(known)

    def _unsettled(self, event: Event) -> None:
        self.settles_at_ms = max(self.settles_at_ms, event.get("t_ms", 0.0) + _SETTLE_MS)

    def of(self, fate: Fate) -> list[str]:
        """The ids of all sandboxes of this fate, in the order in which they came up."""
        return [sandbox_id for sandbox_id, found in self._fates.items() if found is fate]

    def of_account(self, fate: Fate, account: str | None) -> list[str]:
        """The same for one account's sandboxes; None for those of the environment's credential."""
        return [one for one in self.of(fate) if self._about[one].get("account") == account]

    @property
    def unanswered(self) -> int:
        """Creates of which nobody knows whether they made a sandbox."""
        return len(self._unanswered)

    @property
    def unanswered_at(self) -> str | None:
        """When the last of these was sent (UTC, ISO 8601), as far as is known."""
        return max((ts for ts in self._unanswered.values() if ts), default=None)

    @property
    def may_be_there(self) -> int:
        """How many sandboxes nobody has seen gone, and creates without an answer."""
        return len(self._fates) - len(self.of(Fate.GONE)) + self.unanswered

    def describe(self, sandbox_id: str) -> Mapping[str, Any]:
        """The fields by which events name a sandbox that the ledger knows."""
        return self._about[sandbox_id]

    def about(self, sandbox: Sandbox, account: str | None = None) -> Mapping[str, Any]:
        """The fields by which events name a sandbox: by its task where the ledger knows it."""
        return self._about.get(sandbox.id) or about_itself(sandbox, account)


def about_itself(sandbox: Sandbox, account: str | None = None) -> Mapping[str, Any]:
    """The fields by which events name a sandbox whose task is not known; account: whose it is."""
    return {
        "task": None,
        "template": sandbox.template,
        "persist": sandbox.persist,
        "storage_size": sandbox.storage_size if sandbox.persist else None,
        **({} if account is None else {"account": account}),
        "sandbox_id": sandbox.id,
    }


def _without_account(known: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in known.items() if name != "account"}
