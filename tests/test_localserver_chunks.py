"""How the local server cuts the bytes of its streams: no event comes early, late or otherwise for it."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from prep.localserver.service import chat_events, exec_events, plain_events
from prep.localserver.sse import Event, Write, writes
from prep.localserver.timing import Rhythm
from tests.sse import Reader, close

RHYTHM = Rhythm(0.3, 40, 0.02)
CHAT = {"model": "m", "messages": [], "stream_options": {"include_usage": True}}
STREAMS = {
    "exec": lambda: exec_events("ça va: très ✓", RHYTHM),
    "chat": lambda: chat_events(CHAT, RHYTHM, 0.0),
    "events": lambda: plain_events(RHYTHM),
}
WAYS = ["whole", "mixed", "crlf"]


def expected(event: Event) -> dict[str, str]:
    """What a reader shall make of an event."""
    fields = {"event": event.name, "id": event.id, "data": event.data}
    return {name: value for name, value in fields.items() if value is not None}


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("way", WAYS)
def test_a_reader_sees_the_same_events_however_they_are_cut(kind: str, way: str) -> None:
    """All of them, in order, with their names and ids; each complete in the write of its moment."""
    for seed in range(15):
        reader, events, outputs = Reader(), list(STREAMS[kind]()), 0
        for write in writes(iter(events), way, random.Random(seed)):
            before = len(reader.events)
            reader.feed(write.data)
            for event in events[before : len(reader.events)]:
                assert write.at == event.at
            outputs += write.outputs
            assert outputs == sum(event.is_output for event in events[: len(reader.events)])
        assert close(reader.events) == close([expected(event) for event in events])
        assert outputs == RHYTHM.count


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_written_before_what_stands_before_it(kind: str, way: str) -> None:
    """The moments of the writes only go on, and pieces come at most a moment before they are due."""
    pieces = list(writes(STREAMS[kind](), way, random.Random(1)))
    moments = [write.at for write in pieces]
    assert moments == sorted(moments)
    assert min(moments) >= 0
    assert {round(write.at % 0.02, 6) for write in pieces if write.outputs} <= {0.0, 0.02}


def test_an_event_a_write_unless_mixed() -> None:
    """Whole events end their lines with LF, or with CR LF where that is wanted."""
    events = list(plain_events(RHYTHM))
    whole = list(writes(iter(events), "whole", random.Random(1)))
    assert whole[3] == Write(RHYTHM.at(3), b'event: tick\nid: 3\ndata: {"number": 3}\n\n', 1)
    crlf = list(writes(iter(events), "crlf", random.Random(1)))
    assert crlf[3].data == b'event: tick\r\nid: 3\r\ndata: {"number": 3}\r\n\r\n'


def test_mixed_has_everything_that_is_hard_to_read() -> None:
    """Cuts anywhere, also within a letter or a line end; events joined with comments and with half events."""
    seen: Counter[str] = Counter()
    for seed in range(20):
        pieces = list(writes(exec_events("ça va ✓", RHYTHM), "mixed", random.Random(seed)))
        for write, after in zip(pieces, [*pieces[1:], Write(0, b" ", 0)], strict=True):
            data = write.data
            seen["cut within a letter"] += after.data[:1] > b"\x7f" and after.data[0] & 0xC0 == 0x80
            seen["cut within CR LF"] += data.endswith(b"\r") and after.data.startswith(b"\n")
            seen["part of an event"] += not write.outputs
            seen["joined with a comment"] += bool(write.outputs) and b"\n: keep-alive" in data
            seen["joined with half an event"] += bool(write.outputs) and data.endswith(b'"output"')
            seen["comment alone"] += not write.outputs and data.startswith(b": keep-alive")
            seen["CR alone"] += data.endswith(b"\r\r")
            seen["CR LF"] += data.endswith(b"\r\n\r\n")
            seen["data in two lines"] += data.count(b"data:") == 2 and data.count(b"output") == 1
            seen["no space"] += b"data:{" in data
    for what in seen:
        assert seen[what] > 0, what


def test_the_same_seed_cuts_the_same() -> None:
    """And another seed cuts otherwise."""

    def cut(seed: int) -> list[Write]:
        return list(writes(plain_events(RHYTHM), "mixed", random.Random(seed)))

    assert cut(1) == cut(1) != cut(2)
