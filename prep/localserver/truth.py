"""The records that the local server keeps for whoever checks a load test: the truth, and the requests."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prep.localserver.sandbox import Sandbox


class JsonLines:
    """A file of one JSON object a line, each flushed before anything else is done; None writes nothing.

    Raises:
        OSError: if the file cannot be opened for writing.
    """

    def __init__(self, path: Path | None) -> None:
        self._file = None if path is None else path.open("w", encoding="utf-8")

    def write(self, record: dict[str, Any]) -> None:
        """Add a line."""
        if self._file is not None:
            self._file.write(json.dumps(record) + "\n")
            self._file.flush()

    def close(self) -> None:
        """End the file."""
        if self._file is not None:
            self._file.close()


class TruthLog:
    """One line a sandbox of the load test, written when it is gone or when the server ends."""

    def __init__(self, lines: JsonLines) -> None:
        self._lines = lines

    def gone(self, sandbox: Sandbox) -> None:
        """Write down a sandbox that is gone."""
        if sandbox.gone is not None:
            self._write(sandbox, sandbox.gone)

    def finish(self, living: Iterable[Sandbox], now: float) -> None:
        """Write down what is there when the server ends at `now`, in Unix seconds, and close the log."""
        for sandbox in living:
            self._write(sandbox, now)
        self._lines.close()

    def _write(self, sandbox: Sandbox, now: float) -> None:
        if not sandbox.foreign:
            self._lines.write(truth(sandbox, now))


def truth(sandbox: Sandbox, now: float) -> dict[str, Any]:
    """Tell what had become of a sandbox by `now`, in Unix seconds; what had not come by then is null."""
    gone = sandbox.gone if sandbox.gone is not None and sandbox.gone <= now else None
    return {
        "id": sandbox.id,
        "labels": dict(sandbox.spec.labels),
        "created": moment(sandbox.created),
        "ready": moment(sandbox.first_ready(now)),
        "error": moment(sandbox.first_error(now)),
        "reachable": moment(sandbox.first_reachable(now)),
        "first_exec": moment(sandbox.first_exec),
        "delete_requested": moment(sandbox.delete_requested),
        "gone": moment(gone),
    }


def moment(seconds: float | None) -> str | None:
    """Write Unix seconds as UTC with milliseconds and `Z`."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
