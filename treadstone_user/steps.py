"""What a lifecycle and the clean-up share: steps as Locust sees them, and the delete."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from treadstone_user.eventlog import EventLog
from treadstone_user.model import EventKind, variant_title
from treadstone_user.transports.base import CallError, Conflict, NotFound, Transport


@dataclass(frozen=True, slots=True)
class Step:
    """A finished step, for Locust's request event.

    failure: None, or the text that groups failures: kind and status, never an id.
    request_type: the kind of load, 8 characters at most.
    """

    name: str
    response_ms: float
    failure: str | None = None
    request_type: str = "sandbox"


Report = Callable[[Step], None]


def describe_failure(error: CallError) -> dict[str, Any]:
    """The fields by which events tell a failed call."""
    return {
        "http_status": error.status,
        "error_kind": error.kind,
        "error": str(error),
        "latency_ms": error.timing.latency_ms,
        "queue_ms": error.timing.queue_ms,
    }


@dataclass(frozen=True, slots=True)
class Deletion:
    """How a delete went.

    already: it was answered 404 or 409, so the sandbox was gone or on its way.
    error: why it failed; None where it did not.
    """

    already: bool = False
    error: CallError | None = None


def delete_and_record(
    transport: Transport, log: EventLog, report: Report, about: Mapping[str, Any]
) -> Deletion:
    """Delete a sandbox and record how that went.

    404 and 409 both say that it is gone or on its way, which is what was asked for.
    about: the fields by which events name the sandbox.
    """
    name = f"4_delete {variant_title(about['template'], about['persist'], about['storage_size'])}"
    status: int | None = None
    try:
        timing = transport.delete(about["sandbox_id"]).timing
    except CallError as error:
        if not isinstance(error, NotFound | Conflict):
            log.write(EventKind.DELETE_ERR, **about, **describe_failure(error))
            report(Step(name, error.timing.latency_ms, error.cause))
            return Deletion(error=error)
        timing, status = error.timing, error.status
    log.write(EventKind.DELETE_OK, **about, latency_ms=timing.latency_ms, http_status=status)
    report(Step(name, timing.latency_ms))
    return Deletion(already=status is not None)


def record_server_times(transport: Transport, log: EventLog, about: Mapping[str, Any]) -> None:
    """Ask the server when it made a sandbox and when it saw it ready, and record the answer."""
    try:
        sandbox = transport.get(about["sandbox_id"]).value
    except CallError as error:
        log.write(EventKind.SERVER_TIMES, **about, server_ready_ms=None, **describe_failure(error))
        return
    log.write(
        EventKind.SERVER_TIMES,
        **about,
        created_at=sandbox.created_at,
        started_at=sandbox.started_at,
        server_ready_ms=sandbox.server_ready_ms,
    )
