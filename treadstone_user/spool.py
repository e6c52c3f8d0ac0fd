"""A worker's events: in a file of its own until the master has them in the run's log."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from treadstone_user.eventlog import EventLog, read_events
from treadstone_user.model import Event
from treadstone_user.transports.base import ConfigError


class Spool:
    """Writes events to a file and keeps them until they are acknowledged.

    The file holds at least what is not acknowledged yet: it is emptied whenever all is, and
    removed by `close` if all is. Where a worker was killed it tells what nobody else knows.

    began: when the run began (monotonic s).
    Raises `ConfigError` where the file cannot be opened.
    """

    def __init__(
        self, path: Path, *, worker: str, began: float, on_broken: Callable[[OSError], None]
    ) -> None:
        self.path = path
        self._pending: deque[Event] = deque()
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot make {path.parent}: {error.strerror}") from error
        self.log = EventLog(path, worker=worker, began=began, on_broken=on_broken)
        self.log.subscribe(self._pending.append)

    def pending(self, limit: int) -> list[Event]:
        """The first `limit` events that are not acknowledged."""
        return [event for event, _ in zip(self._pending, range(limit), strict=False)]

    @property
    def delivered(self) -> bool:
        """Whether everything is acknowledged."""
        return not self._pending

    def acknowledge(self, seq: int) -> None:
        """Forget the events up to this one."""
        if not self._pending or self._pending[0]["seq"] > seq:
            return
        while self._pending and self._pending[0]["seq"] <= seq:
            self._pending.popleft()
        if not self._pending:
            with suppress(OSError):
                os.truncate(self.path, 0)

    def close(self) -> None:
        """Close the file, and remove it if everything is acknowledged."""
        self.log.close()
        if self.delivered:
            with suppress(OSError):
                self.path.unlink()
                self.path.parent.rmdir()  # the last worker takes the folder away


def gather(folder: Path, known: Iterable[Event]) -> list[Event]:
    """The events in the spools of a run's workers on this machine that its own log has not got.

    known: the events of that log.
    """
    there = {(event.get("worker"), event.get("seq")) for event in known}
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        found += [
            event for event in read_events(path) if (event.get("worker"), event.get("seq")) not in there
        ]
    return found
