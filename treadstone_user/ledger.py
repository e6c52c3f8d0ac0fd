"""The ledger: what a run knows of its sandboxes, from its own events."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from treadstone_user.cleanup import about_itself
from treadstone_user.model import Event, EventKind, Sandbox

_MAY_EXIST = ("request_timeout", "bad_output", "connect_error")
_SETTLE_SEC = 3.0


class Ledger:
    """Takes in events and tells which sandboxes there may be."""

    def __init__(self) -> None:
        self.ready: list[str] = []
        """Those that got ready, in that order."""
        self.settled_at = 0.0
        """Before this moment (monotonic s) a create without an answer may still make a sandbox."""
        self._created: dict[str, Mapping[str, Any]] = {}
        self._deleted: set[str] = set()
        self._lost = 0
        self._open = 0

    def add(self, event: Event) -> None:
        """Take in an event."""
        kind = event["event"]
        if kind == EventKind.CREATE_SUBMITTED:
            self._open += 1
        elif kind == EventKind.CREATE_OK:
            self._open -= 1
            names = ("task", "profile_idx", "template", "persist", "storage_size", "sandbox_id")
            self._created[event["sandbox_id"]] = {name: event[name] for name in names}
        elif kind == EventKind.CREATE_ERR:
            self._open -= 1
            if event["error_kind"] in _MAY_EXIST:
                self._lost += 1
                self.settled_at = time.monotonic() + _SETTLE_SEC
        elif kind == EventKind.LOST:
            if event["submitted"] and event["sandbox_id"] is None:  # its call may still go on
                self.settled_at = time.monotonic() + _SETTLE_SEC
        elif kind == EventKind.READY:
            self.ready.append(event["sandbox_id"])
        elif kind == EventKind.DELETE_OK:
            self._deleted.add(event["sandbox_id"])

    @property
    def expected(self) -> list[str]:
        """Sandboxes that were made and whose delete was not accepted so far."""
        return [sandbox_id for sandbox_id in self._created if sandbox_id not in self._deleted]

    @property
    def unanswered(self) -> int:
        """Creates of which nobody knows whether they made a sandbox."""
        return self._open + self._lost

    def describe(self, sandbox_id: str) -> Mapping[str, Any]:
        """The fields by which events name a sandbox that this run created."""
        return self._created[sandbox_id]

    def about(self, sandbox: Sandbox) -> Mapping[str, Any]:
        """The fields by which events name a sandbox: by its task where the run knows it."""
        return self._created.get(sandbox.id) or about_itself(sandbox)
