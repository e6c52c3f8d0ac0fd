"""Data files: rows for commands, prompts and bodies, from JSONL or CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from treadstone_user.transports.base import ConfigError

Row = Mapping[str, Any]

_SHOWN_PROBLEMS = 10

csv.field_size_limit(2**31 - 1)  # of its own it takes 131,072 characters, and prompts may be longer


def load_rows(path: Path) -> tuple[Row, ...]:
    """The rows of a file, in its order.

    ``.csv``: a header, and a row a line (RFC 4180). Anything else: JSON Lines, an object a line, or a text,
    which becomes the row's ``text``; empty lines are passed over.

    Raises `ConfigError` with all that is wrong, each problem with its line, and where there is no row.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            text = file.read()
    except FileNotFoundError:
        raise ConfigError(f"there is no data file {path}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    problems: list[str] = []
    rows = tuple(_csv(text, problems) if path.suffix.lower() == ".csv" else _json_lines(text, problems))
    if not rows and not problems:
        problems.append("it holds no rows")
    if problems:
        more = len(problems) - _SHOWN_PROBLEMS
        told = problems[:_SHOWN_PROBLEMS] + ([f"and {more} more"] if more > 0 else [])
        raise ConfigError("\n".join(f"{path}: {problem}" for problem in told))
    return rows


def _json_lines(text: str, problems: list[str]) -> Iterator[Row]:
    # Not splitlines: JSON may hold the line ends of other alphabets as they are.
    for number, line in enumerate(io.StringIO(text, newline=None), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            problems.append(f"line {number}: no JSON: {error}")
            continue
        if isinstance(value, str):
            yield {"text": value}
        elif isinstance(value, dict):
            yield value
        else:
            problems.append(f"line {number}: must be an object or a text, not {type(value).__name__}")


def _csv(text: str, problems: list[str]) -> Iterator[Row]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        names = reader.fieldnames or []
        if len(set(names)) < len(names) or not all(names):
            problems.append("line 1: the header names a column twice, or not at all")
            return
        for row in reader:
            if None in row or None in row.values():
                problems.append(f"line {reader.line_num}: it has not the {len(names)} fields of the header")
            else:
                yield row
    except csv.Error as error:
        problems.append(f"line {reader.line_num}: {error}")
