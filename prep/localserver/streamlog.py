"""The truth about streams: for each, when its outputs were really written and how it ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from prep.localserver.truth import JsonLines, moment


@dataclass(kw_only=True, eq=False)
class Told:
    """What has become of a stream, by the server's clock, in Unix seconds."""

    kind: str
    sandbox_id: str
    arrived: float
    planned: int
    outputs: int = 0
    first: float | None = None
    last: float | None = None
    is_broken: bool = False
    """Cut on purpose."""

    def written(self, outputs: int, now: float) -> bool:
        """Note that outputs have been written, and tell whether they are the first."""
        is_first = self.first is None
        self.outputs += outputs
        self.last = now
        if is_first:
            self.first = now
        return is_first

    def record(self, now: float) -> dict[str, Any]:
        """Give the line for the log: milliseconds from the arrival to what was really written."""
        return {
            "ts": moment(now),
            "stream": self.kind,
            "sandbox_id": self.sandbox_id,
            "arrived": moment(self.arrived),
            "first_ms": self._after(self.first),
            "last_ms": self._after(self.last),
            "outputs": self.outputs,
            "planned": self.planned,
            "broken": self.is_broken,
        }

    def _after(self, when: float | None) -> float | None:
        return None if when is None else round((when - self.arrived) * 1000, 3)


class StreamLog:
    """Writes a line for each stream when it ends, or when the server does.

    Args:
        lines: where the lines go.
        clock: tells the time in Unix seconds.
    """

    def __init__(self, lines: JsonLines, clock: Callable[[], float]) -> None:
        self._lines = lines
        self._clock = clock
        self._open: set[Told] = set()

    def begin(self, told: Told) -> None:
        """Note that a stream goes on."""
        self._open.add(told)

    def end(self, told: Told) -> None:
        """Write down a stream, unless that has been done."""
        if told in self._open:
            self._open.remove(told)
            self._lines.write(told.record(self._clock()))

    def finish(self) -> None:
        """Write down the streams that still go on."""
        for told in list(self._open):
            self.end(told)
