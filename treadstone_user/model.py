"""The words of a load test: variants, tasks, sandboxes, events.

Values only: nothing here reads a clock, a file, the network or Locust.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

LABEL_KEY = "loadtest"
"""Every sandbox of a run carries the label ``loadtest:run-<run_id>``."""


def run_label_value(run_id: str) -> str:
    """The value of the ``loadtest`` label of a run."""
    return f"run-{run_id}"


def run_label(run_id: str) -> str:
    """The label of a run as the CLI writes it: ``loadtest:run-<run_id>``."""
    return f"{LABEL_KEY}:{run_label_value(run_id)}"


def variant_title(template: str, persist: bool, storage_size: str | None) -> str:
    """A kind of sandbox as tables name it, e.g. ``aio-sandbox-large +5Gi``."""
    return f"{template} +{storage_size}" if persist else template


@dataclass(frozen=True, slots=True)
class Variant:
    """One matrix row: `count` sandboxes of one kind."""

    index: int
    template: str
    count: int
    persist: bool = False
    storage_size: str | None = None

    @property
    def title(self) -> str:
        """The variant as tables name it."""
        return variant_title(self.template, self.persist, self.storage_size)


@dataclass(frozen=True, slots=True)
class Task:
    """One planned sandbox. `number` is unique within a run and starts at 1.

    account: the e-mail address of the account that makes it; None for that of the environment's credential.
    """

    number: int
    variant: Variant
    account: str | None = None


class SandboxStatus(StrEnum):
    """The statuses that the API documents; a server may answer others."""

    CREATING = "creating"
    READY = "ready"
    STOPPED = "stopped"
    COLD = "cold"
    ERROR = "error"
    DELETING = "deleting"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A sandbox as the server describes it; times are the server's, ISO 8601.

    proxy: the URL under which the HTTP service inside it is reached.
    """

    id: str
    template: str
    status: str
    persist: bool = False
    storage_size: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    created_at: str | None = None
    started_at: str | None = None
    proxy: str | None = None

    @property
    def server_ready_ms(self) -> float | None:
        """From created to ready by the server's own clock, in ms; None where it does not tell."""
        if self.created_at is None or self.started_at is None:
            return None
        try:
            took = datetime.fromisoformat(self.started_at) - datetime.fromisoformat(self.created_at)
        except (ValueError, TypeError):  # no times, or only one of them has a zone
            return None
        return took / timedelta(milliseconds=1)

    def belongs_to(self, run_id: str) -> bool:
        """Whether the sandbox carries the label of this run."""
        return self.labels.get(LABEL_KEY) == run_label_value(run_id)


@dataclass(frozen=True, slots=True)
class SandboxPage:
    """One page of the account's list; `total` counts all pages."""

    items: tuple[Sandbox, ...]
    total: int


@dataclass(frozen=True, slots=True)
class Template:
    """What a template gives a sandbox; `storage_sizes` are those it allows."""

    name: str
    cpu: str
    memory: str
    storage_sizes: tuple[str, ...]


class EventKind(StrEnum):
    """What a line of ``events.jsonl`` announces."""

    CREATE_SUBMITTED = "create_submitted"
    CREATE_OK = "create_ok"
    CREATE_ERR = "create_err"
    READY = "ready"
    FAILED_STATUS = "failed_status"
    POLL_TIMEOUT = "poll_timeout"
    INTERRUPTED = "interrupted"
    LOST = "lost"
    """Its worker died: the end of a task that it had in hand."""
    SERVER_TIMES = "server_times"
    POLL_ERR = "poll_err"
    DELETE_OK = "delete_ok"
    DELETE_ERR = "delete_err"
    GONE = "gone"
    """A deleted sandbox stands in the list no more."""
    EXEC_OK = "exec_ok"
    """The first command in a sandbox has answered."""
    EXEC_ERR = "exec_err"
    QUERY_OK = "query_ok"
    QUERY_ERR = "query_err"
    STREAM_OK = "stream_ok"
    STREAM_ERR = "stream_err"


TASK_ENDS = frozenset(
    {
        EventKind.CREATE_ERR,
        EventKind.READY,
        EventKind.FAILED_STATUS,
        EventKind.POLL_TIMEOUT,
        EventKind.INTERRUPTED,
        EventKind.LOST,
    }
)
"""Each submitted task ends in exactly one of these."""

Event = Mapping[str, Any]
"""A decoded line of ``events.jsonl``."""
