"""The sandboxes that queries and streams go to: prepared ones, and those that the run itself has made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from treadstone_user.access import Accesses, check_key
from treadstone_user.assets import load_assets
from treadstone_user.cleanup import list_all
from treadstone_user.model import LABEL_KEY, SandboxStatus
from treadstone_user.sections import Job
from treadstone_user.transports.base import CallError, PreflightError


@dataclass(frozen=True, slots=True)
class Stocked:
    """A sandbox that is there. account: whose it is. proxy: the URL that leads into it.

    fresh: it has only just got ready, and nobody knows whether its proxy reaches it yet.
    """

    id: str
    account: str | None
    proxy: str
    fresh: bool = False


class Stock:
    """Gives out the sandboxes that are there, one after the other."""

    def __init__(self, sandboxes: Iterable[Stocked] = ()) -> None:
        self._all = {one.id: one for one in sandboxes}
        self._order: list[Stocked] = list(self._all.values())
        self._at = 0

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, sandbox: Stocked) -> bool:
        return sandbox.id in self._all

    def add(self, sandbox: Stocked) -> None:
        """Take in a sandbox that got ready."""
        if sandbox.id not in self._all:
            self._all[sandbox.id] = sandbox
            self._order.append(sandbox)

    def remove(self, sandbox_id: str) -> None:
        """Give a sandbox out no more: it is about to be deleted."""
        self._all.pop(sandbox_id, None)

    def pick(self) -> Stocked | None:
        """The next sandbox, in turn; None where there is none."""
        if len(self._order) > 2 * len(self._all):
            self._order = list(self._all.values())
        for _ in range(len(self._order)):
            self._at = (self._at + 1) % len(self._order)
            if self._order[self._at].id in self._all:
                return self._order[self._at]
        return None


def take_stock(accesses: Accesses, accounts: str | None, jobs: Iterable[Job]) -> Stock:
    """The sandboxes that are prepared: those of the store, or those that load tests have on the account.

    accounts: the store. jobs: what the run does; one of lifecycles alone needs no stock, and others that
        make sandboxes themselves may begin without.
    Nothing is run in a sandbox that carries no load test's label.
    Raises `PreflightError` where nothing is there for streams; `TreadstoneError` for the store.
    """
    wanted = set(jobs)
    if wanted <= {Job.LIFECYCLE}:
        return Stock()
    if Job.STREAM in wanted:
        check_key(accesses)
    if accounts is not None:
        stock = Stock(
            Stocked(one.id, one.email, one.proxy or accesses.proxy_of(one.id))
            for one in load_assets(Path(accounts)).sandboxes
        )
    else:
        try:
            listed = list_all(accesses.first.transport).sandboxes.values()
        except CallError as error:
            raise PreflightError(f"the sandboxes cannot be listed: {error.cause}: {error}") from error
        stock = Stock(
            Stocked(one.id, None, one.proxy or accesses.proxy_of(one.id))
            for one in listed
            if one.status == SandboxStatus.READY and LABEL_KEY in one.labels
        )
    if Job.STREAM in wanted and Job.LIFECYCLE not in wanted and not stock:
        raise PreflightError(
            "streams need sandboxes that are ready, and there are none: make some with "
            "python -m prep.sandboxes and name their store (accounts: FILE), or give the scenario a matrix"
        )
    return stock
