"""One sandbox: what was asked for, and its state as a pure function of time.

All times are Unix seconds of the server's clock. What will happen to a sandbox is drawn when it is asked
for; asking for its status only compares those moments with the clock, so nothing depends on when, or how
often, somebody looks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum


class Status(StrEnum):
    """The statuses that the API shows, and `deleted` for what it no longer shows."""

    CREATING = "creating"
    READY = "ready"
    STOPPED = "stopped"
    COLD = "cold"
    ERROR = "error"
    DELETING = "deleting"
    DELETED = "deleted"


LIST_RANK: Mapping[Status, int] = {
    Status.READY: 0,
    Status.CREATING: 1,
    Status.DELETING: 2,
    Status.ERROR: 3,
    Status.STOPPED: 3,
    Status.COLD: 3,
}
"""Where a status stands in the list; the last three stand together."""

ListKey = tuple[int, float, float, str]


@dataclass(frozen=True, kw_only=True)
class SandboxSpec:
    """What a create asks for. Intervals are minutes; `name` is None where the server shall choose one."""

    template: str
    name: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    auto_stop_interval: int = 60
    auto_delete_interval: int = -1
    persist: bool = False
    storage_size: str | None = None


@dataclass(frozen=True)
class Provision:
    """One attempt to bring a sandbox up: when it began, when it ends (infinity: never), and how.

    `reached` is when the proxy reaches it, infinity for never.
    """

    begins: float
    settles: float
    fails: bool = False
    reached: float = math.inf

    @staticmethod
    def never(begins: float) -> Provision:
        """An attempt that comes to nothing."""
        return Provision(begins, math.inf)


@dataclass(kw_only=True)
class Sandbox:
    """A sandbox and everything that was, or will be, done with it."""

    id: str
    name: str
    owner_id: str
    spec: SandboxSpec
    created: float
    provisions: list[Provision]
    foreign: bool = False
    """There from the start, part of nobody's run: kept out of the truth log."""
    is_stopped: bool = False
    stopped_at: float | None = None
    delete_requested: float | None = None
    gone: float | None = None
    used: float | None = None
    """When the proxy last passed a request on to it."""
    first_exec: float | None = None
    """When a command in it first succeeded."""

    def status(self, now: float) -> Status:
        """Tell the status at a moment that is not before the last thing done with the sandbox."""
        if self.gone is not None:
            return Status.DELETED if now >= self.gone else Status.DELETING
        if self.is_stopped:
            return Status.STOPPED
        provision = self.provisions[-1]
        if now < provision.settles:
            return Status.CREATING
        return Status.ERROR if provision.fails else Status.READY

    def started_at(self, now: float) -> float | None:
        """Tell when it last became ready, None if it has not yet."""
        readies = self._settled(now, failed=False)
        return readies[-1] if readies else None

    def first_ready(self, now: float) -> float | None:
        """Tell when it first became ready, None if it has not yet."""
        return next(iter(self._settled(now, failed=False)), None)

    def first_error(self, now: float) -> float | None:
        """Tell when it first turned error, None if it has not yet."""
        return next(iter(self._settled(now, failed=True)), None)

    def is_reachable(self, now: float) -> bool:
        """Tell whether the proxy reaches it at a moment at which it is ready."""
        return self.provisions[-1].reached <= now

    def first_reachable(self, now: float) -> float | None:
        """Tell when the proxy first reached it, None if it has not yet."""
        until = self._until(now)
        return next((p.reached for p in self.provisions if p.reached <= until), None)

    def stop(self, now: float) -> None:
        """Note that it is stopped; what the proxy had not reached by then it reaches no more."""
        self.is_stopped, self.stopped_at = True, now
        last = self.provisions[-1]
        if last.reached > now:
            self.provisions[-1] = replace(last, reached=math.inf)

    def next_change(self, now: float) -> float | None:
        """Tell the next moment at which the status changes by itself, None if it stays."""
        moment = self.gone
        if moment is None and not self.is_stopped:
            moment = self.provisions[-1].settles
        return moment if moment is not None and now < moment < math.inf else None

    def list_key(self, now: float) -> ListKey:
        """Give the sandbox's place in the list: status, last activity, creation (newest first), name."""
        started, used = self.started_at(now) or self.created, self.used or self.created
        last_active = max(self.provisions[-1].begins, started, used)
        return LIST_RANK[self.status(now)], -last_active, -self.created, self.name

    def _settled(self, now: float, *, failed: bool) -> list[float]:
        until = self._until(now)
        return [p.settles for p in self.provisions if p.fails is failed and p.settles <= until]

    def _until(self, now: float) -> float:
        # What is being deleted no longer becomes ready.
        return now if self.delete_requested is None else min(now, self.delete_requested)
