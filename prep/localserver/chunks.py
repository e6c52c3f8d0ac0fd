"""How a stream's bytes are cut: as they are, or as a network and other servers might have them."""

from __future__ import annotations

import random
from collections.abc import Iterator

WHOLE, MIXED, CRLF = "whole", "mixed", "crlf"
KINDS = (WHOLE, MIXED, CRLF)

_ENDS = (b"\n", b"\r\n", b"\r")
_COMMENTS = (b": keep-alive\n\n", b":\n\n", b": a comment\n")


class Writer:
    """Gives each event in parts, of which the last one is written when the event is due.

    Mixed: parts are cut anywhere, also within a character or a line end; an event may come together with a
    comment or with the beginning of its successor; line ends are of all three kinds, and there are fields
    that a reader passes over.
    """

    def __init__(self, kind: str, rng: random.Random) -> None:
        self._kind = kind
        self._rng = rng
        self._end = rng.choice(_ENDS) if kind == MIXED else (b"\r\n" if kind == CRLF else b"\n")

    def prelude(self) -> Iterator[bytes]:
        """What comes before the first event."""
        if self._kind == MIXED:
            yield self._written(b": welcome\nretry: 3000\n\n")

    def parts(self, event: bytes) -> list[bytes]:
        """The parts of an event, which may be several of the protocol's: all but the last come early."""
        if self._kind == WHOLE:
            return [event]
        if self._kind == CRLF:
            return [self._written(event)]
        rng, text = self._rng, event
        if rng.random() < 0.2:
            text = b"x-unknown: 1\n" + text
        early = [self._written(rng.choice(_COMMENTS))] if rng.random() < 0.3 else []
        data = self._written(text)
        last = len(data) - len(self._end)  # a reader may take an event as complete at the CR of a last CRLF
        cuts = sorted(rng.randint(1, last) for _ in range(rng.randrange(3)))
        pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True) if a < b]
        # The last piece alone completes the event: a reader cannot have it sooner.
        if early and rng.random() < 0.5:
            pieces[0] = early.pop() + pieces[0]
        return [*early, *pieces]

    def _written(self, text: bytes) -> bytes:
        return text if self._end == b"\n" else text.replace(b"\n", self._end)
