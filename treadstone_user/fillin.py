"""Rows of a file in the texts of a scenario: `$field` stands for the row's field."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

from treadstone_user.datafile import load_rows
from treadstone_user.sections import DataSource

Row = Mapping[str, Any]


class Rows:
    """The rows of a file, in the order that the scenario says; each round of a random order is another."""

    def __init__(self, rows: Sequence[Row], *, order: str = "sequential", seed: int = 1) -> None:
        self._rows = rows
        self._random = order == "random"
        self._seed = seed
        self._round, self._places = -1, list(range(len(rows)))

    @classmethod
    def load(cls, source: DataSource) -> Rows:
        """Read the rows. Raises `TreadstoneError`."""
        return cls(load_rows(Path(source.file)), order=source.order, seed=source.seed)

    def __len__(self) -> int:
        return len(self._rows)

    def of(self, turn: int) -> Row:
        """The row of a turn, the first of which is 0."""
        round_, place = divmod(turn, len(self._rows))
        if self._random and round_ != self._round:
            self._round, self._places = round_, list(range(len(self._rows)))
            random.Random(f"{self._seed}/{round_}").shuffle(self._places)
        return self._rows[self._places[place]]


def fill_in(value: Any, row: Row) -> Any:
    """A text, or a JSON value with texts in it, with the row's fields in place of `$field`.

    What names no field of the row stays as it is, `$$` too: commands have dollars of their own. A field
    that is no text comes as JSON.
    """
    if isinstance(value, str):

        def field(found: re.Match[str]) -> str:
            name = found["named"] or found["braced"]
            return _text(row[name]) if name in row else found[0]

        # Not by safe_substitute, which makes one dollar of two.
        return Template.pattern.sub(field, value)
    if isinstance(value, Mapping):
        return {key: fill_in(inner, row) for key, inner in value.items()}
    if isinstance(value, list):
        return [fill_in(inner, row) for inner in value]
    return value


def _text(field: Any) -> str:
    return field if isinstance(field, str) else json.dumps(field, ensure_ascii=False)
