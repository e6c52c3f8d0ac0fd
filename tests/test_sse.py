"""The parser of server-sent events, against the standard's examples and an oracle that reads all at once."""

from __future__ import annotations

import re
import time
from collections import deque
from dataclasses import astuple
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadstone_user import sse
from treadstone_user.sse import EventTooLarge, Parser, ServerSentEvent

Told = tuple[str, str, str]


def parse(*chunks: bytes) -> list[Told]:
    """All events of a stream that comes in these chunks: type, data, id."""
    parser = Parser()
    return [astuple(event) for chunk in chunks for event in parser.feed(chunk)]


STREAMS: dict[str, tuple[str, list[Told]]] = {
    # From section 9.2 of the standard, with their explanations there.
    "three messages": (
        "data: This is the first message.\n\n"
        "data: This is the second message, it\ndata: has two lines.\n\n"
        "data: This is the third message.\n\n",
        [
            ("message", "This is the first message.", ""),
            ("message", "This is the second message, it\nhas two lines.", ""),
            ("message", "This is the third message.", ""),
        ],
    ),
    "types": (
        "event: add\ndata: 73857293\n\nevent: remove\ndata: 2153\n\nevent: add\ndata: 113411\n\n",
        [("add", "73857293", ""), ("remove", "2153", ""), ("add", "113411", "")],
    ),
    "stock": ("data: YHOO\ndata: +2\ndata: 10\n\n", [("message", "YHOO\n+2\n10", "")]),
    "four blocks": (
        ": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event",
        [("message", "first event", "1"), ("message", "second event", "")],
    ),
    "empty data": ("data\n\ndata\ndata\n\ndata:", [("message", "", ""), ("message", "\n", "")]),
    "the space after the colon": ("data:test\n\ndata: test\n\n", [("message", "test", "")] * 2),
    # From its rules.
    "only one space is left away": ("data:  x\n\n", [("message", " x", "")]),
    "a colon in the value": ("data: a: b\n\n", [("message", "a: b", "")]),
    "no data, no event": ("event: add\nid: 7\n\ndata: x\n\n", [("message", "x", "7")]),
    "an id lasts": ("id: 7\ndata: a\n\ndata: b\n\n", [("message", "a", "7"), ("message", "b", "7")]),
    "an id with NUL is none": ("id: 7\nid: a\0b\ndata: x\n\n", [("message", "x", "7")]),
    "unknown fields and other cases": ("Data: x\n data: x\nfoo: x\ndata: y\n\n", [("message", "y", "")]),
    "the last type": ("event: a\nevent: b\ndata: x\n\n", [("b", "x", "")]),
    "an empty type": ("event:\ndata: x\n\n", [("message", "x", "")]),
    "keep-alives": (":\n\n: ping\n\ndata: a\n: ping\ndata: b\n\n:\n", [("message", "a\nb", "")]),
    "a byte order mark": ("\ufeffdata: x\n\n", [("message", "x", "")]),
    "a second one is no mark": ("\ufeff\ufeffdata: x\n\ndata: y\n\n", [("message", "y", "")]),
    "a later one is no mark": ("\n\ufeffdata: x\n\ndata: \ufeff\n\n", [("message", "\ufeff", "")]),
    "what only looks like line ends": (
        "data: a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\n\n",
        [("message", "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg", "")],
    ),
}


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"], ids=["LF", "CR", "CRLF"])
@pytest.mark.parametrize("name", STREAMS)
def test_standard(name: str, end: str) -> None:
    """The standard's examples and rules, at once and byte by byte, with each of its line ends."""
    text, events = STREAMS[name]
    raw = text.replace("\n", end).encode()
    assert parse(raw) == events
    assert parse(*(raw[at : at + 1] for at in range(len(raw)))) == events


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_an_event_is_told_with_its_last_byte(end: bytes) -> None:
    """Nothing waits for what might follow: a CR ends a line though an LF may come, which then is none."""
    raw = b"data: x" + end + end[:1]
    parser = Parser()
    assert parser.feed(raw[:-1]) == []
    assert len(parser.feed(raw[-1:])) == 1
    assert parser.feed(end[1:] + b"data: y" + end) == []
    assert [event.data for event in parser.feed(end)] == ["y"]


def test_mixed_line_ends_byte_by_byte() -> None:
    """Only the LF right after a CR belongs to it; the next one ends a line of its own."""
    raw = b"data: a\r\n\ndata: b\n\r\ndata: c\r\rdata: d\n\r"
    assert [data for _, data, _ in parse(*(raw[at : at + 1] for at in range(len(raw))))] == [
        "a",
        "b",
        "c",
        "d",
    ]


def test_bytes_that_are_no_utf8() -> None:
    """They become U+FFFD and end no line."""
    assert parse(b"data: a\xffb\xe2\x82\n", b"\n") == [("message", "a\ufffdb\ufffd", "")]


@pytest.mark.parametrize(
    ("text", "unfinished"),
    [
        ("", False),
        ("data: x\n\n", False),
        ("data: x\n", True),
        ("data: x", True),
        ("d", True),
        ("event: x\n", True),
        ("id: 1\n", True),
        ("data: x\n\n: bye\n", False),
        ("data: x\n\n: by", False),
        ("data: x\n\nretry: 5\n", False),
        ("\ufeff", False),
        ("\ufeff: x", False),
    ],
)
def test_close_tells_what_was_left(text: str, unfinished: bool) -> None:
    """A stream that breaks off within an event is told; a comment is no event."""
    parser = Parser()
    parser.feed(text.encode())
    assert parser.close() is unfinished


@pytest.mark.parametrize(
    ("value", "told"),
    [("3000", 3000), ("", None), ("1.5", None), ("-1", None), ("٣", None), ("9" * 5000, None)],
)
def test_retry(value: str, told: int | None) -> None:
    """It is a number of ASCII digits; any other value is passed over."""
    parser = Parser()
    parser.feed(f"retry: {value}\n".encode())
    assert parser.retry_ms == told


def test_an_endless_event_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a line nor an event without an end fills the memory; what has ended does not count."""
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 1000)
    assert len(parse(*[b"data: " + b"x" * 900 + b"\n\n"] * 5, *[b": pi", b"ng\n"] * 500)) == 5
    for piece in (b"x" * 90, b"data: " + b"x" * 90 + b"\n", b"data\n"):
        parser = Parser()
        with pytest.raises(EventTooLarge):
            deque(map(parser.feed, [piece] * 1100))


def test_a_long_line_costs_what_it_holds() -> None:
    """Its time grows with its length and not with the square of it."""
    parser = Parser()
    began = time.process_time()
    parser.feed(b"data: ")
    for _ in range(16_000):
        parser.feed(b"x" * 1024)
    assert len(parser.feed(b"\n\n")[0].data) == 16_000 * 1024
    assert time.process_time() - began < 5


def oracle(raw: bytes) -> list[Told]:
    """The standard's algorithm by the letter, for a stream that is there as a whole."""
    text = raw.decode("utf-8", "replace").removeprefix("\ufeff")
    lines = re.split("\r\n|\n|\r", text)[:-1]
    events: list[Told] = []
    data, kind, last_id = "", "", ""
    for line in lines:
        if line == "":
            if data != "":
                events.append((kind or "message", data.removesuffix("\n"), last_id))
            data, kind = "", ""
        elif not line.startswith(":"):
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "event":
                kind = value
            elif field == "data":
                data += value + "\n"
            elif field == "id" and "\0" not in value:
                last_id = value
    return events


LINES = st.lists(
    st.one_of(
        st.sampled_from(
            ["", "", "data", "data:", "data: x", ": ping", "id", "id: 1", "event: add", "retry: 1"]
        ),
        st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), max_size=8).map("data: {}".format),
        st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), max_size=8),
    ),
    max_size=20,
)
ENDS = st.sampled_from(["\n", "\r", "\r\n"])


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """A stream with line ends of all kinds, perhaps with a mark, a line without an end, and bad bytes."""
    text = "".join(line + draw(ENDS) for line in draw(LINES))
    raw = text.encode() + draw(st.sampled_from([b"", b"data: x", b"\xe2\x82", b"\r"]))
    return draw(st.sampled_from([b"", b"\xef\xbb\xbf"])) + raw


def cut(raw: bytes, places: list[int]) -> list[bytes]:
    """These bytes, cut at these places, which may be the same more than once."""
    marks = [0, *sorted(place % (len(raw) + 1) for place in places), len(raw)]
    return [raw[begin:end] for begin, end in pairwise(marks)]


@given(streams(), st.lists(st.integers(0, 1000), max_size=12))
def test_any_splitting_gives_the_same_events(raw: bytes, places: list[int]) -> None:
    """However the bytes are cut, the events are those of the whole."""
    assert parse(*cut(raw, places)) == oracle(raw)


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=5))
def test_any_bytes_give_what_the_standard_says(noise: bytes, places: list[int]) -> None:
    """Whatever comes, nothing fails and nothing is made up."""
    raw = b"data: " + noise + b"\n\ndata:" + noise[::-1] + b"\r\r\n"
    assert parse(*cut(raw, places)) == oracle(raw)


@given(LINES, st.lists(ENDS, min_size=20, max_size=20))
def test_any_line_end_gives_the_same_events(lines: list[str], ends: list[str]) -> None:
    """Events do not depend on how lines end, nor on whether all end alike."""
    mixed = ""
    for line, end in zip(lines, ends, strict=False):
        is_one_with_the_last = mixed.endswith("\r") and line == "" and end == "\n"
        mixed += line + ("\r" if is_one_with_the_last else end)
    assert parse(mixed.encode()) == parse("".join(line + "\n" for line in lines).encode())


def test_event_is_a_value() -> None:
    """It can be compared and not changed."""
    assert ServerSentEvent("a", "b", "c") == ServerSentEvent("a", "b", "c")
    with pytest.raises(AttributeError):
        ServerSentEvent("a", "b", "c").data = "d"  # type: ignore[misc]
