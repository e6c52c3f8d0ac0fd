"""Server-sent events: bytes in, events out.

By the HTML standard, section 9.2.6, "Interpreting an event stream" (https://html.spec.whatwg.org).
Incremental, as a chunk may end anywhere; without input or output, so that whoever reads also takes the time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event. `event` is ``message`` where the stream names none; `id` is the last one told."""

    event: str
    data: str
    id: str


class Parser:
    """Takes in a stream in whatever pieces it comes."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._begun = self._after_cr = False
        self._event, self._id = "", ""
        self._data: list[str] = []

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        """Take in the next bytes; returns the events that they complete.

        A CR ends its line at once, though an LF that belongs to it may come with the next bytes.
        """
        if not data:
            return []
        if self._after_cr:
            data, self._after_cr = data.removeprefix(b"\n"), False
        self._rest += data
        if not self._begun:
            if len(self._rest) < len(_BOM) and _BOM.startswith(bytes(self._rest)):
                return []  # it may become a byte order mark
            if self._rest.startswith(_BOM):
                del self._rest[: len(_BOM)]
            self._begun = True
        found: list[ServerSentEvent] = []
        taken = 0
        for end in _LINE_END.finditer(self._rest):
            self._take(self._rest[taken : end.start()], found)
            taken = end.end()
        self._after_cr = taken == len(self._rest) and self._rest.endswith(b"\r")
        del self._rest[:taken]
        return found

    def close(self) -> bool:
        """Tell whether the stream ended in the middle of an event, which then is none."""
        return bool(self._rest) or bool(self._data)

    def _take(self, line: bytes | bytearray, found: list[ServerSentEvent]) -> None:
        if not line:
            if self._data:
                found.append(ServerSentEvent(self._event or "message", "\n".join(self._data), self._id))
            self._event, self._data = "", []
            return
        name, _, value = line.decode("utf-8", errors="replace").partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._id = value
        # A line that begins with a colon is a comment; `retry` is for who reconnects, and nobody does here.
