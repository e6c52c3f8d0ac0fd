"""Server-sent events out of bytes, as they arrive: a parser without input, output or a clock.

The format is that of the WHATWG HTML standard, section 9.2.5 "Parsing an event stream" and 9.2.6
"Interpreting an event stream": https://html.spec.whatwg.org/multipage/server-sent-events.html.

An event is told with the byte that ends it. Libraries that wait after a CR for the LF that may
follow tell the last event of such a stream late, which is no matter for reading and spoils a measurement.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_EVENT_BYTES = 64 * 2**20
"""What an event may hold before its end; one without an end would else fill the memory."""

_BOM = b"\xef\xbb\xbf"
_CR, _LF = 13, 10
_MAX_DIGITS = 18  # of a retry; Python refuses to read endless ones


class EventTooLarge(ValueError):
    """An event grew past `MAX_EVENT_BYTES` and had not ended."""


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """An event as the standard dispatches it.

    event: its type, `message` where the stream names none.
    data: its data fields, joined by LF.
    id: the last id that the stream has told, this event's or an earlier one's; empty at first.
    """

    event: str
    data: str
    id: str


class Parser:
    """Reads a stream that is cut into chunks anywhere. Not for use after `EventTooLarge`.

    Attributes:
        retry_ms: the reconnection time that the stream asked for, None while it did not.
    """

    def __init__(self) -> None:
        self.retry_ms: int | None = None
        self._line: list[bytes] = []  # the unfinished line's pieces, joined once it has ended
        self._data: list[bytes] = []
        self._type = ""
        self._id = ""
        self._line_bytes = 0
        self._data_bytes = 0
        self._begun = False
        self._after_cr = False
        self._at_start = True

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        """Take the next bytes and tell the events that they complete.

        Bytes that are no UTF-8 become U+FFFD, as the standard's decoder has it.
        Raises `EventTooLarge`.
        """
        if self._after_cr and data:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        if not data:
            return []
        lines = data.splitlines()  # of bytes: at CR, LF and CRLF, and nowhere else
        last = data[-1]
        self._after_cr = last == _CR
        unfinished = b"" if last in (_CR, _LF) else lines.pop()
        found: list[ServerSentEvent] = []
        if lines:
            if self._line:
                lines[0] = b"".join([*self._line, lines[0]])
                self._line = []
                self._line_bytes = 0
            if self._at_start:
                lines[0] = lines[0].removeprefix(_BOM)
                self._at_start = False
            for line in lines:
                self._interpret(line, found)
        if unfinished:
            self._line.append(unfinished)
            self._line_bytes += len(unfinished)
        if self._line_bytes + self._data_bytes > MAX_EVENT_BYTES:
            raise EventTooLarge(f"an event of more than {MAX_EVENT_BYTES} bytes")
        return found

    def close(self) -> bool:
        """Tell whether the stream ended within an event, which is then not dispatched.

        A comment that was cut off is not an event.
        """
        line = b"".join(self._line)
        if self._at_start:
            line = line.removeprefix(_BOM)
        return self._begun or (line != b"" and not line.startswith(b":"))

    def _interpret(self, line: bytes, found: list[ServerSentEvent]) -> None:
        if not line:
            if self._data:
                data = b"\n".join(self._data).decode("utf-8", "replace")
                found.append(ServerSentEvent(self._type or "message", data, self._id))
                self._data = []
            self._type = ""
            self._begun = False
            self._data_bytes = 0
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._data_bytes += len(value) + 1
            self._begun = True
        elif name == b"event":
            self._type = value.decode("utf-8", "replace")
            self._begun = True
        elif name == b"id":
            self._begun = True
            if b"\0" not in value:
                self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) <= _MAX_DIGITS:
            self.retry_ms = int(value)
