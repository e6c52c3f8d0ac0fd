"""``events.jsonl``: what is about to happen or has happened, a JSON object a line.

A line stands in the file before the thing that it announces is done, so that a run that is
killed still tells which sandboxes it may have made.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from treadstone_user.model import Event, EventKind, Task
from treadstone_user.transports.base import ConfigError

Listener = Callable[[Event], None]


def utc_now() -> str:
    """The wall clock as every artifact writes it: UTC, ISO 8601, milliseconds, ``Z``."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def describe_task(task: Task) -> dict[str, Any]:
    """The fields by which events name a task and its variant."""
    variant = task.variant
    return {
        "task": task.number,
        "profile_idx": variant.index,
        "template": variant.template,
        "persist": variant.persist,
        "storage_size": variant.storage_size,
        **({} if task.account is None else {"account": task.account}),
    }


class EventLog:
    """Appends events to a file, each flushed to the system at once, and tells listeners.

    `ts` is the wall clock, for people; `t_ms` is the monotonic one since the run began, for
    durations.

    worker: the name of this process, the same in all its events.
    began: when the run began (monotonic s); None for now.
    on_broken: told once, when an event could not be written (a full disk); from then on
        nothing more is, and `broken` is True. Listeners hear of all events all the same.
    Raises `ConfigError` where the file cannot be opened.
    """

    def __init__(
        self,
        path: Path,
        *,
        worker: str,
        began: float | None = None,
        on_broken: Callable[[OSError], None] | None = None,
    ) -> None:
        self.broken = False
        self.on_broken = on_broken
        try:
            self._open(path)
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror}") from error
        self._worker = worker
        self._seq = 0
        self._began = time.monotonic() if began is None else began
        self._listeners: list[Listener] = []

    def _open(self, path: Path) -> None:
        torn = _is_torn(path)
        # Half a character, which JSON can escape and UTF-8 cannot hold, stays escaped.
        self._file = path.open("a", encoding="utf-8", errors="backslashreplace")
        if torn:
            self._file.write("\n")

    def subscribe(self, listener: Listener) -> None:
        """Have `listener` called with each event once it is written."""
        self._listeners.append(listener)

    @property
    def t_ms(self) -> float:
        """Milliseconds since the run began."""
        return round((time.monotonic() - self._began) * 1000, 1)

    def write(self, kind: EventKind, **fields: Any) -> None:
        """Write an event. Milliseconds are rounded to a tenth."""
        self._seq += 1
        head = {"ts": utc_now(), "t_ms": self.t_ms, "event": str(kind), "worker": self._worker}
        rounded = {name: round(v, 1) if isinstance(v, float) else v for name, v in fields.items()}
        self.take_over({**head, "seq": self._seq, **rounded})

    def take_over(self, event: Event) -> None:
        """Write an event that another process has made, as it is."""
        self._append(json.dumps(event, ensure_ascii=False) + "\n")
        for listener in self._listeners:
            listener(event)

    def _append(self, line: str) -> None:
        if self.broken:
            return
        try:
            self._file.write(line)
            self._file.flush()
        except OSError as error:
            self.broken = True
            if self.on_broken is not None:
                self.on_broken(error)

    def close(self) -> None:
        """Close the file; nothing may be written afterwards."""
        with suppress(OSError):  # what a full disk did not take is told already
            self._file.close()


def _is_torn(path: Path) -> bool:
    """Whether a file's last line was cut off, as a killed run leaves it."""
    if not path.exists() or path.stat().st_size == 0:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() != b"\n"


_NEEDS: dict[EventKind, tuple[str, ...]] = {
    EventKind.CREATE_SUBMITTED: ("template",),
    EventKind.CREATE_OK: ("template", "sandbox_id"),
    EventKind.READY: ("sandbox_id", "ready_latency_ms"),
    EventKind.FAILED_STATUS: ("last_status",),
    EventKind.LOST: ("submitted",),
    EventKind.SERVER_TIMES: ("sandbox_id",),
    EventKind.DELETE_OK: ("sandbox_id",),
    EventKind.DELETE_ERR: ("sandbox_id",),
    EventKind.GONE: ("sandbox_id",),
    EventKind.EXEC_OK: ("sandbox_id", "first_answer_ms"),
    EventKind.QUERY_OK: ("query", "latency_ms"),
    EventKind.QUERY_ERR: ("query",),
    EventKind.STREAM_OK: ("path", "total_ms"),
    EventKind.STREAM_ERR: ("path",),
}
"""The fields without which a line does not say what it announces."""

_TEXTS = {"ts", "worker", "sandbox_id", "template", "storage_size", "error_kind", "error", "last_status"}
_TEXTS |= {"created_at", "started_at", "lost_worker", "account", "query", "path", "ended"}
_WHOLES = {"seq", "task", "profile_idx", "http_status", "polls", "tries", "exit_code"}
_WHOLES |= {"turn", "outputs", "characters", "tokens"}
_FLAGS = {"persist", "submitted", "tokens_counted"}


def read_events(path: Path) -> Iterator[Event]:
    """The events of a file. A torn line, as a killed run leaves it, or a damaged one is passed over."""
    with path.open(encoding="utf-8", errors="replace", newline="\n") as lines:
        for line in lines:
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(event, dict) and is_event(event):
                yield event


def is_event(line: Mapping[str, Any]) -> bool:
    """Whether a line says what it announces: a known kind, with the fields that it needs, of their types."""
    try:
        kind = EventKind(line.get("event", ""))
    except ValueError:
        return False
    if any(line.get(name) is None for name in _NEEDS.get(kind, ())):
        return False
    if line.get("template") is not None and line.get("persist") is None:
        return False
    return all(value is None or _fits(name, value) for name, value in line.items())


def _fits(name: str, value: object) -> bool:
    if name in _TEXTS:
        return isinstance(value, str)
    if name in _FLAGS:
        return isinstance(value, bool)
    if name in _WHOLES:
        return isinstance(value, int) and not isinstance(value, bool)
    if name.endswith("_ms"):
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return True
