"""The fields of a settings file: each read by its type and rule, all problems collected."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any

from treadstone_user.strictyaml import MAX_NUMBER_LENGTH, MAX_SHOWN, UNREADABLE, join, shown

MAX_NUMBER = 2**31 - 1
"""The largest number a field takes: what a 32-bit integer of an API holds."""


def number(value: object) -> int | float | None:
    """A number, or text that reads as one (``"15"``, ``1e3``); None for all else, and for true."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if not isinstance(value, str):
        return value
    if not value.isascii() or len(value) > MAX_NUMBER_LENGTH:
        return None
    for convert in (int, float):
        try:
            return convert(value)
        except ValueError:
            continue
    return None


class Fields:
    """The keys of one mapping, read one after the other.

    What is wrong goes to `problems`, and a harmless value is returned in its place, so that
    all problems are found before anybody gives up.
    """

    def __init__(
        self, values: Mapping[str, Any], *, path: str = "", known: Sequence[str], problems: list[str]
    ) -> None:
        self._values = values
        self._path = path
        self._problems = problems
        for key in values:
            if key not in known:
                self.wrong(key, f"unknown key; {_instead(key, known)}")

    def wrong(self, key: str, problem: str) -> None:
        """Note a problem of a key, unless the reader has already told one."""
        if self.raw(key) is UNREADABLE:
            return
        self._problems.append(f"{join(self._path, key)}: {problem}")

    def has(self, key: str) -> bool:
        """Whether the key was given, be it null."""
        return key in self._values

    def raw(self, key: str) -> Any:
        """The value as it was read, None when absent."""
        return self._values.get(key)

    def text(self, key: str, *, required: bool = False, lines: bool = False) -> str:
        """Printable text, of several lines only where `lines`; empty when absent or null."""
        value = self.raw(key)
        if value is None and not required:
            return ""
        if key not in self._values:
            self.wrong(key, "is required")
        elif not isinstance(value, str):
            hint = "" if isinstance(value, list | dict | None) else " (put it in quotes)"
            self.wrong(key, f"must be text, not {shown(value)}{hint}")
        elif required and not value.strip():
            self.wrong(key, "must not be empty")
        elif not _is_printable(value, lines=lines):
            self.wrong(key, f"must be printable text, not {shown(value)}")
        else:
            return value.strip()
        return ""

    def whole(self, key: str, *, rule: str, allows: Callable[[int], bool], default: int | None = None) -> int:
        """A whole number that `allows` accepts and `rule` describes; required without a default."""
        if key not in self._values and default is not None:
            return default
        value = number(self.raw(key))
        if key not in self._values:
            self.wrong(key, "is required")
        elif not isinstance(value, int) or not allows(value):
            self.wrong(key, f"must be {rule}, not {shown(self.raw(key))}")
        elif value > MAX_NUMBER:
            self.wrong(key, f"must be at most {MAX_NUMBER}, not {shown(self.raw(key))}")
        else:
            return value
        return default or 0

    def seconds(self, key: str, *, default: float) -> float:
        """A time span in seconds, whole or not, more than 0."""
        if key not in self._values:
            return default
        value = number(self.raw(key))
        if value is None or not isfinite(value) or value <= 0:
            self.wrong(key, f"must be a number of seconds above 0, not {shown(self.raw(key))}")
        elif value > MAX_NUMBER:
            self.wrong(key, f"must be at most {MAX_NUMBER} seconds, not {shown(self.raw(key))}")
        else:
            return value
        return default

    def flag(self, key: str, *, default: bool) -> bool:
        """True or false."""
        value = self._values.get(key, default)
        if isinstance(value, bool):
            return value
        self.wrong(key, f"must be true or false, not {shown(value)}")
        return default


def _instead(key: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(key[:MAX_SHOWN].lower(), known, n=1)
    return f"did you mean {near[0]}?" if near else f"known here: {', '.join(known)}"


def _is_printable(text: str, *, lines: bool) -> bool:
    """No control characters, which confuse terminals and arguments, and no half characters."""
    allowed = "\n\t" if lines else ""
    return all(char in allowed or unicodedata.category(char) not in ("Cc", "Cs") for char in text)
