"""Rows of data files, and how their fields get into commands and bodies."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadstone_user.datafile import load_rows
from treadstone_user.fillin import Rows, fill_in
from treadstone_user.transports.base import ConfigError

LONG = "x" * 200_000
OTHER_LINES = [{"a": "x\u2028y", "b": "1"}, {"a": "\x85\f", "b": "2"}]

READ: list[tuple[str, str, str, list[dict[str, Any]]]] = [
    ("objects", "a.jsonl", '{"a": 1}\n{"a": "two"}\n', [{"a": 1}, {"a": "two"}]),
    ("a text is the row's text", "a.jsonl", '"hello"\n', [{"text": "hello"}]),
    ("empty lines and no last line end", "a.jsonl", '\n{"a": 1}\n\n{"a": 2}', [{"a": 1}, {"a": 2}]),
    ("a byte order mark", "a.jsonl", '\ufeff{"a": 1}\n', [{"a": 1}]),
    ("line ends of other alphabets", "a.jsonl", '{"a": "x\u2028y"}\n', [{"a": "x\u2028y"}]),
    ("CSV", "a.csv", "a,b\n1,x\n2,y\n", [{"a": "1", "b": "x"}, {"a": "2", "b": "y"}]),
    ("a field of several lines", "a.csv", 'a,b\n"one\ntwo",x\n', [{"a": "one\ntwo", "b": "x"}]),
    ("CSV with line ends of other alphabets", "a.csv", "a,b\nx\u2028y,1\n\x85\f,2\n", OTHER_LINES),
    ("CSV with a long prompt", "a.csv", f"a,b\n{LONG},1\n", [{"a": LONG, "b": "1"}]),
    ("CSV by its name in capitals", "A.CSV", "a,b\n1,x\n", [{"a": "1", "b": "x"}]),
    ("CSV keeps the line ends within a field", "a.csv", 'a,b\r\n"1\r\n2",x\r\n', [{"a": "1\r\n2", "b": "x"}]),
    ("CSV of a spreadsheet", "a.csv", "\ufeffa;b\r\n1;x\r\n", [{"a;b": "1;x"}]),
]


@pytest.mark.parametrize(("name", "text", "rows"), [r[1:] for r in READ], ids=[r[0] for r in READ])
def test_rows_are_read(tmp_path: Path, name: str, text: str, rows: list[dict[str, Any]]) -> None:
    """In the order of the file."""
    path = tmp_path / name
    path.write_bytes(text.encode())
    assert list(load_rows(path)) == rows


WRONG = [
    ("nothing", "a.jsonl", "\n\n", ["it holds no rows"]),
    ("only a header", "a.csv", "a,b\n", ["it holds no rows"]),
    (
        "several problems",
        "a.jsonl",
        '{"a": 1}\n{oops\n[1]\n',
        ["line 2: no JSON", "line 3: must be an object"],
    ),
    ("a field too many", "a.csv", "a,b\n1,2\n1,2,3\n", ["line 3: it has not the 2 fields"]),
    ("a field too few", "a.csv", "a,b\n1\n", ["line 2: it has not the 2 fields"]),
    ("a column twice", "a.csv", "a,a\n1,2\n", ["line 1: the header names a column twice"]),
    ("an open quote", "a.csv", 'a\n"1\n', ["line 1: unexpected end"]),
]


@pytest.mark.parametrize(("name", "text", "told"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, name: str, text: str, told: list[str]) -> None:
    """All of it at once, with the file's name."""
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_rows(path)
    lines = str(caught.value).splitlines()
    assert len(lines) == len(told)
    for line, text_ in zip(lines, told, strict=True):
        assert line.startswith(f"{path}: {text_}")


def test_a_file_that_is_none_is_told(tmp_path: Path) -> None:
    """Not there, a folder, no UTF-8, and many problems are told in part."""
    with pytest.raises(ConfigError, match="there is no data file"):
        load_rows(tmp_path / "none.jsonl")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_rows(tmp_path)
    binary = tmp_path / "b.jsonl"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_rows(binary)
    binary.write_text("x\n" * 100)
    with pytest.raises(ConfigError, match="and 90 more"):
        load_rows(binary)


@given(st.integers(1, 30), st.integers(1, 4), st.sampled_from(["sequential", "random"]), st.integers())
def test_each_round_has_every_row_once(count: int, rounds: int, order: str, seed: int) -> None:
    """Whoever asks for which turn, and in which order: so workers that share the turns overlap nowhere."""
    rows = [{"n": n} for n in range(count)]
    found = [Rows(rows, order=order, seed=seed).of(turn)["n"] for turn in reversed(range(count * rounds))]
    again = [Rows(rows, order=order, seed=seed).of(turn)["n"] for turn in range(count * rounds)]
    assert found == again[::-1]
    assert Counter(found) == dict.fromkeys(range(count), rounds)
    if order == "sequential":
        assert again[:count] == list(range(count))


def test_a_random_order_is_another_in_each_round() -> None:
    """And the same for the same seed."""
    rows = Rows([{"n": n} for n in range(20)], order="random", seed=3)
    first, second = ([rows.of(turn)["n"] for turn in range(start, start + 20)] for start in (0, 20))
    assert first != second != list(range(20))


FILLED = [
    ("echo $a", {"a": "x"}, "echo x"),
    ("echo ${a}b", {"a": "x"}, "echo xb"),
    ("echo $HOME $a $$", {"a": 1}, "echo $HOME 1 $$"),
    ("kill $$; $$a ${b} $c", {"a": "x"}, "kill $$; $$a ${b} $c"),
    ("$a $b $c $d", {"a": None, "b": True, "c": {"x": ["é"]}, "d": 1.5}, 'null true {"x": ["é"]} 1.5'),
    ({"m": [{"content": "$a"}], "n": 3, "s": True}, {"a": "x"}, {"m": [{"content": "x"}], "n": 3, "s": True}),
    (None, {"a": 1}, None),
]


@pytest.mark.parametrize(("value", "row", "filled"), FILLED)
def test_fields_take_their_places(value: Any, row: dict[str, Any], filled: Any) -> None:
    """In all texts of a value; what names no field stays as it is."""
    assert fill_in(value, row) == filled
