"""Server-sent events, and the pieces in which their bytes are written.

However the bytes are cut and joined, the piece that completes an event is written when the event is due and
not before: whoever reads the stream as its standard says sees the events in their rhythm.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

_PAUSE = 0.0005
_LINE_ENDS = ("\n", "\r\n", "\r")
_MOST_CUTS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """One event; `at` is when it is due, in seconds from the arrival of its request.

    `is_output` tells what a stream is for from what only frames it.
    """

    at: float
    data: str
    name: str | None = None
    id: str | None = None
    is_output: bool = True


class Write(NamedTuple):
    """Bytes to write in one go, when (in seconds from the arrival), and how many outputs they complete."""

    at: float
    data: bytes
    outputs: int


def writes(events: Iterable[Event], chunks: str, rng: random.Random) -> Iterator[Write]:
    """Give what is to be written for events, in one of the ways of the clause `chunks`, in order of time."""
    return _WAYS[chunks](events, rng)


def _whole(events: Iterable[Event], _rng: random.Random) -> Iterator[Write]:
    for event in events:
        yield Write(event.at, _lines(event, "\n").encode(), event.is_output)


def _crlf(events: Iterable[Event], _rng: random.Random) -> Iterator[Write]:
    for event in events:
        yield Write(event.at, _lines(event, "\r\n").encode(), event.is_output)


def _mixed(events: Iterable[Event], rng: random.Random) -> Iterator[Write]:
    last: Write | None = None
    for event in events:
        *early, final = _pieces(event, rng)
        if rng.random() < 0.25:
            end = rng.choice(_LINE_ENDS)
            early.insert(0, f": keep-alive{end * rng.randint(1, 2)}".encode())
        earliest = 0.0
        if last is not None:
            earliest = last.at
            if early and rng.random() < 0.5:
                last = last._replace(data=last.data + early.pop(0))
            yield last
        for number, piece in enumerate(early):
            yield Write(max(earliest, event.at - (len(early) - number) * _PAUSE), piece, 0)
        last = Write(event.at, final, event.is_output)
    if last is not None:
        yield last


_WAYS: dict[str, Callable[[Iterable[Event], random.Random], Iterator[Write]]] = {
    "whole": _whole,
    "mixed": _mixed,
    "crlf": _crlf,
}


def _lines(event: Event, end: str) -> str:
    text = f"event: {event.name}{end}" if event.name is not None else ""
    if event.id is not None:
        text += f"id: {event.id}{end}"
    return f"{text}data: {event.data}{end}{end}"


def _pieces(event: Event, rng: random.Random) -> list[bytes]:
    # One kind of line end an event: a CR and an LF from two lines would be read as one CR LF.
    end = rng.choice(_LINE_ENDS)
    data = event.data
    if rng.random() < 0.25:
        # Between two tokens of a JSON, where a line end means nothing.
        data = data.replace(": ", f": {end}data:", 1)
    text = _lines(Event(at=event.at, data=data, name=event.name, id=event.id), end)
    if rng.random() < 0.25:
        text = text.replace("data: ", "data:")
    whole = text.encode()
    # With the last line end begins what completes the event.
    latest = len(whole) - len(end)
    cuts = sorted(rng.sample(range(1, latest + 1), k=rng.randint(0, min(_MOST_CUTS, latest))))
    return [whole[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
