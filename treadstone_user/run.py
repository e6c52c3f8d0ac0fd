"""A run's identity and folder: ``results/<run_id>/`` with ``run.json`` and ``summary.json``."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from treadstone_user.model import run_label
from treadstone_user.transports.base import ConfigError


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file whole or not at all: readers see the old one or the new one. Raises OSError."""
    temporary = path.with_name(path.name + ".tmp")
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    # Half a character, which JSON can escape and UTF-8 cannot hold, stays escaped.
    try:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


class RunFolder:
    """The folder of one run. It is made by `claim` and taken back by `discard`."""

    def __init__(self, path: Path, *, run: Mapping[str, Any] | None = None) -> None:
        self.path = path
        self.run_id = path.name
        self.label = run_label(self.run_id)
        self.events_path = path / "events.jsonl"
        self.truth_path = path / "truth.jsonl"
        self.spools = path / "spool"
        """Where workers on this machine keep the events that are not in `events_path` yet."""
        self._run = dict(run or {})

    @classmethod
    def claim(cls, results: Path, *, now: datetime | None = None) -> RunFolder:
        """Make the folder of a new run, named after the time in UTC and made unique by a suffix.

        Raises `ConfigError` where the folder cannot be made.
        """
        stem = (now or datetime.now(UTC)).strftime("%Y%m%d-%H%M%S")
        for suffix in ["", *(f"-{number}" for number in range(2, 1000))]:
            path = results / f"{stem}{suffix}"
            try:
                results.mkdir(parents=True, exist_ok=True)
                path.mkdir(mode=0o700)
            except FileExistsError:
                if not results.is_dir():
                    raise ConfigError(f"--results-dir {results} is a file, not a folder") from None
                continue
            except OSError as error:
                raise ConfigError(f"cannot make a folder in {results}: {error.strerror}") from error
            return cls(path)
        raise ConfigError(f"too many runs named {stem} in {results}")

    def discard(self) -> None:
        """Remove the folder of a run that never started. What else lies in it is removed, too."""
        shutil.rmtree(self.path, ignore_errors=True)

    def write_run(self, **fields: Any) -> None:
        """Add fields to ``run.json`` and write it."""
        self._run |= fields
        write_json(self.path / "run.json", self._run)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write ``summary.json``."""
        write_json(self.path / "summary.json", summary)

    @property
    def run(self) -> Mapping[str, Any]:
        """The present content of ``run.json``."""
        return self._run


def read_run(path: Path) -> Mapping[str, Any]:
    """The ``run.json`` in a run's folder. Raises `ConfigError` where there is none to read."""
    try:
        content = json.loads((path / "run.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        known = ", ".join(sorted(p.parent.name for p in path.parent.glob("*/run.json"))[-5:])
        raise ConfigError(f"no run.json in {path}; the latest runs there: {known or 'none'}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {path / 'run.json'}: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("run_id"), str):
        raise ConfigError(f"{path / 'run.json'} does not describe a run")
    return content
