"""Server-sent events by the HTML standard, however the bytes come."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadstone_user.sse import Parser, ServerSentEvent

M = "message"
CASES: list[tuple[str, bytes, list[tuple[str, str, str]]]] = [
    # what it proves; the stream; event, data and id of each event
    ("one event", b"data: hi\n\n", [(M, "hi", "")]),
    ("several lines of data", b"data: YHOO\ndata: +2\ndata: 10\n\n", [(M, "YHOO\n+2\n10", "")]),
    ("names and ids", b"event: add\nid: 7\ndata: 1\n\n", [("add", "1", "7")]),
    ("an id lasts", b"id: 1\ndata: a\n\ndata: b\n\n", [(M, "a", "1"), (M, "b", "1")]),
    (
        "an empty id resets",
        b"id: 1\ndata: a\n\nid\ndata: b\n\n",
        [(M, "a", "1"), (M, "b", "")],
    ),
    ("a name does not last", b"event: x\ndata: a\n\ndata: b\n\n", [("x", "a", ""), (M, "b", "")]),
    ("comments and keep-alives", b": test\n\n:\n\ndata: a\n:x\n\n", [(M, "a", "")]),
    ("data without a value", b"data\n\ndata\ndata\n\ndata:", [(M, "", ""), (M, "\n", "")]),
    (
        "one space after the colon",
        b"data:test\n\ndata:  test\n\n",
        [(M, "test", ""), (M, " test", "")],
    ),
    ("unknown fields", b"foo: 1\nretry: 3000\ndata: a\n\n", [(M, "a", "")]),
    ("an event without data is none", b"event: ping\n\ndata: a\n\n", [(M, "a", "")]),
    ("CRLF", b"data: a\r\ndata: b\r\n\r\n", [(M, "a\nb", "")]),
    ("CR", b"data: a\rdata: b\r\r", [(M, "a\nb", "")]),
    (
        "all line ends mixed",
        b"data: a\r\ndata: b\rdata: c\n\r\ndata: d\r\n\n",
        [(M, "a\nb\nc", ""), (M, "d", "")],
    ),
    ("a byte order mark", b"\xef\xbb\xbfdata: a\n\n", [(M, "a", "")]),
    (
        "a line end of another alphabet",
        "data: a\u2028b\x85c\n\n".encode(),
        [(M, "a\u2028b\x85c", "")],
    ),
    ("a colon in the data", b'data: {"a": 1}\n\n', [(M, '{"a": 1}', "")]),
    ("a broken-off event is none", b"data: a\n\ndata: b\n", [(M, "a", "")]),
    ("no id with a null", b"id: 1\x002\ndata: a\n\n", [(M, "a", "")]),
]


def _parse(*chunks: bytes) -> list[ServerSentEvent]:
    parser = Parser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


@pytest.mark.parametrize(("stream", "expected"), [row[1:] for row in CASES], ids=[row[0] for row in CASES])
def test_a_stream_is_read_by_the_standard(stream: bytes, expected: list[tuple[str, str, str]]) -> None:
    """Whole, and byte by byte."""
    events = [ServerSentEvent(*each) for each in expected]
    assert _parse(stream) == events
    assert _parse(*(bytes([byte]) for byte in stream)) == events


texts = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=8)
lines = st.one_of(
    texts.map(lambda text: f"data: {text}"),
    texts.map(lambda text: f": {text}"),
    st.just(""),
    st.just(""),
    texts.map(lambda text: f"event: {text}"),
)


@given(st.lists(lines, max_size=12), st.sampled_from([b"\n", b"\r\n", b"\r"]), st.data())
def test_chunks_and_line_ends_make_no_difference(written: list[str], end: bytes, data: st.DataObject) -> None:
    """Wherever the bytes are cut, also within a character or a line end."""
    whole = _parse(b"".join(line.encode() + b"\n" for line in written))
    stream = b"".join(line.encode() + end for line in written)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    edges = [0, *cuts, len(stream)]
    assert _parse(*(stream[a:b] for a, b in pairwise(edges))) == whole


def test_an_event_is_there_as_soon_as_its_last_line_has_ended() -> None:
    """A CR may or may not be followed by an LF: nobody waits for that."""
    parser = Parser()
    assert parser.feed(b"data: a\r\n\r") == [ServerSentEvent("message", "a", "")]
    assert parser.feed(b"\ndata: b\r\r") == [ServerSentEvent(M, "b", "")]


@pytest.mark.parametrize(
    ("stream", "unfinished"),
    [(b"", False), (b"data: a\n\n", False), (b"data: a\n", True), (b"data: a\n\nda", True), (b":x\n", False)],
)
def test_a_stream_that_ends_in_the_middle_says_so(stream: bytes, unfinished: bool) -> None:
    """What was left is no event, and it is told that there was something."""
    parser = Parser()
    parser.feed(stream)
    assert parser.close() is unfinished
