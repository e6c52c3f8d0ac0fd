"""The progress line: what a run has come to, said while it goes."""

from __future__ import annotations

import time
from collections.abc import Callable

import gevent

from treadstone_user.model import TASK_ENDS, Event, EventKind

_OTHERS = (EventKind.QUERY_OK, EventKind.QUERY_ERR, EventKind.STREAM_OK, EventKind.STREAM_ERR)
_EVERY_SEC = 2.0
_AT_LEAST_EVERY_SEC = 10.0


class Tally:
    """Counts events as they come."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(EventKind, 0)
        self._lost_unsent = 0

    def add(self, event: Event) -> None:
        """Take in an event."""
        kind = EventKind(event["event"])
        self.counts[kind] += 1
        if kind is EventKind.LOST and not event["submitted"]:
            self._lost_unsent += 1

    @property
    def failed(self) -> int:
        """Sandboxes that never got ready: refused, failed or timed out."""
        kinds = (EventKind.CREATE_ERR, EventKind.FAILED_STATUS, EventKind.POLL_TIMEOUT)
        return sum(self.counts[kind] for kind in kinds)

    @property
    def in_flight(self) -> int:
        """Sandboxes asked for that have no result yet."""
        asked = self.counts[EventKind.CREATE_SUBMITTED] + self._lost_unsent
        return asked - sum(self.counts[kind] for kind in TASK_ENDS)

    def line(self, planned: int | None) -> str:
        """The progress line."""
        of = f"/{planned}" if planned is not None else ""
        counts = self.counts
        if planned == 0:  # no sandboxes are made: what else there is leads the line
            return self._others_line()
        line = (
            f"created {counts[EventKind.CREATE_OK]}{of}, ready {counts[EventKind.READY]}, "
            f"failed {self.failed}, in flight {self.in_flight}"
        )
        if counts[EventKind.LOST]:
            line += f", lost {counts[EventKind.LOST]}"
        if counts[EventKind.EXEC_OK]:
            line += f", answered {counts[EventKind.EXEC_OK]}"
        if any(counts[kind] for kind in _OTHERS):
            line += f", {self._others_line()}"
        if counts[EventKind.DELETE_OK]:
            line += f", deleted {counts[EventKind.DELETE_OK]}"
        if counts[EventKind.POLL_ERR]:
            line += f", failed polls {counts[EventKind.POLL_ERR]}"
        return line

    def _others_line(self) -> str:
        line = self._others(EventKind.QUERY_OK, EventKind.QUERY_ERR, "queries")
        line += self._others(EventKind.STREAM_OK, EventKind.STREAM_ERR, "streams")
        return line.removeprefix(", ") or "nothing has answered so far"

    def _others(self, well: EventKind, badly: EventKind, what: str) -> str:
        done, failed = self.counts[well] + self.counts[badly], self.counts[badly]
        if not done:
            return ""
        return f", {what} {done}" + (f" ({failed} failed)" if failed else "")


class Progress:
    """Says the progress line every two seconds while it changes, else every ten."""

    def __init__(self, tally: Tally, *, planned: int | None, say: Callable[[str], None]) -> None:
        self._tally = tally
        self._planned = planned
        self._say = say
        self._greenlet: gevent.Greenlet[[], None] | None = None
        self._last = ""

    def start(self) -> None:
        """Begin to speak."""
        self._greenlet = gevent.spawn(self._loop)

    def stop(self) -> None:
        """Say the last line, if it is new, and fall silent."""
        if self._greenlet is not None:
            self._greenlet.kill()
        self._speak()

    def _loop(self) -> None:
        spoken_at = time.monotonic()
        while True:
            gevent.sleep(_EVERY_SEC)
            silent_sec = time.monotonic() - spoken_at
            if self._speak(again=silent_sec >= _AT_LEAST_EVERY_SEC):
                spoken_at = time.monotonic()

    def _speak(self, *, again: bool = False) -> bool:
        line = self._tally.line(self._planned)
        if line == self._last and not again:
            return False
        self._last = line
        self._say(line)
        return True
