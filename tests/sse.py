"""A reader of server-sent events for tests, which shares no code with what it reads from."""

from __future__ import annotations

import re
from collections.abc import Iterable


class Reader:
    """Reads server-sent events as their standard says, a byte at a time."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._after_cr = False
        self._fields: dict[str, list[str]] = {}
        self.events: list[dict[str, str]] = []

    def feed(self, data: bytes) -> None:
        """Take in bytes; what they complete is in `events`."""
        for byte in data:
            skipped, self._after_cr = self._after_cr and byte == 10, byte == 13
            if skipped:
                continue
            if byte in (10, 13):
                self._end_line(self._line.decode())
                self._line.clear()
            else:
                self._line.append(byte)

    def read(self, pieces: Iterable[bytes]) -> None:
        """Take in all pieces of a stream."""
        for piece in pieces:
            self.feed(piece)

    def _end_line(self, line: str) -> None:
        if not line:
            if "data" in self._fields:
                self.events.append({name: "\n".join(values) for name, values in self._fields.items()})
            self._fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(":")
            self._fields.setdefault(name, []).append(value.removeprefix(" "))


def close(events: list[dict[str, str]]) -> list[dict[str, str]]:
    """Events without the white space between the tokens of their JSON."""
    return [{**event, "data": re.sub(r":\s+", ":", event["data"])} for event in events]
