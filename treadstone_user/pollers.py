"""One poller for each account, made when somebody waits there."""

from __future__ import annotations

from array import array
from collections.abc import Callable

from treadstone_user.access import Accesses
from treadstone_user.poller import Poller
from treadstone_user.transports.base import CallError


class Pollers:
    """The pollers of a run's accounts; see `Poller`.

    on_failure: called with the account and its poller for each poll that failed.
    """

    def __init__(
        self,
        accesses: Accesses,
        *,
        interval_sec: float,
        on_failure: Callable[[str | None, Poller, CallError], None],
    ) -> None:
        self._accesses = accesses
        self._interval_sec = interval_sec
        self._on_failure = on_failure
        self._pollers: dict[str | None, Poller] = {}
        self._interrupted = False

    def __getitem__(self, account: str | None) -> Poller:
        poller = self._pollers.get(account)
        if poller is None:
            poller = self._pollers[account] = self._make(account)
        return poller

    def _make(self, account: str | None) -> Poller:
        poller = Poller(
            self._accesses[account].transport,
            interval_sec=self._interval_sec,
            on_failure=lambda error: self._on_failure(account, poller, error),
        )
        if self._interrupted:
            poller.interrupt()
        return poller

    def interrupt(self) -> None:
        """End all waits, present and future, as interrupted."""
        self._interrupted = True
        for poller in self._pollers.values():
            poller.interrupt()

    def stop(self) -> None:
        """Ask no more."""
        for poller in self._pollers.values():
            poller.stop()

    def periods_ms(self) -> array[float]:
        """How far apart polls really began, while somebody waited."""
        return array("f", [period for poller in self._pollers.values() for period in poller.periods_ms])
