"""The API's refusals: one exception, and one constructor for each documented code.

Every refusal is answered as `{"error": {"code", "message", "status"}}`. Clients may rely on codes and
statuses; the messages are those of the real server where they were recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any


class ApiError(Exception):
    """A refusal with its HTTP status, its stable code and its message."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message

    def envelope(self) -> dict[str, Any]:
        """Give the body that the API answers with."""
        return {"error": {"code": self.code, "message": self.message, "status": self.status}}


def auth_required() -> ApiError:
    """No credential was sent."""
    return ApiError(401, "auth_required", "Authentication required")


def auth_invalid(message: str = "Invalid or expired API key.") -> ApiError:
    """A credential was sent, and it is worth nothing."""
    return ApiError(401, "auth_invalid", message)


def bad_request(message: str) -> ApiError:
    """Well-formed, but not acceptable."""
    return ApiError(400, "bad_request", message)


def invalid(*problems: str) -> ApiError:
    """The input fails validation; all problems are told at once."""
    return ApiError(422, "validation_error", "; ".join(problems))


def conflict(message: str) -> ApiError:
    """Something of that kind exists already."""
    return ApiError(409, "conflict", message)


def not_found(message: str) -> ApiError:
    """No such route or thing."""
    return ApiError(404, "not_found", message)


def internal_error() -> ApiError:
    """Answer for whatever the server did not foresee."""
    return ApiError(500, "internal_error", "An unexpected error occurred.")


def email_verification_required() -> ApiError:
    """Accounts must confirm their address before they may create."""
    return ApiError(
        403, "email_verification_required", "Email verification required before creating sandboxes."
    )


def sandbox_not_found(sandbox_id: str) -> ApiError:
    """No such sandbox, or another account's: the API does not say which."""
    message = f"Sandbox {sandbox_id} does not exist or you don't have access to it."
    return ApiError(404, "sandbox_not_found", message)


def template_not_found(template: str) -> ApiError:
    """No template of that name."""
    return ApiError(404, "template_not_found", f"Template '{template}' not found.")


def name_conflict(name: str) -> ApiError:
    """The account has a sandbox of that name."""
    message = f"A sandbox named '{name}' already exists for the current user."
    return ApiError(409, "sandbox_name_conflict", message)


def invalid_transition(sandbox_id: str, current: str, wanted: str) -> ApiError:
    """The sandbox cannot go from the state it is in to the one asked for."""
    message = f"Cannot transition sandbox {sandbox_id} from {current} to {wanted}."
    return ApiError(409, "invalid_transition", message)


@dataclass(frozen=True)
class Refusal:
    """The documented answer of a refused create; its message may name `template`, `name` and `running`."""

    code: str
    message: str


def forbidden(message: str) -> ApiError:
    """The account, or its key, may not do this."""
    return ApiError(403, "forbidden", message)


def template_not_allowed(tier: str, template: str, allowed: Iterable[str]) -> ApiError:
    """The plan does not offer the template."""
    message = (
        f"Template '{template}' is not available on the '{tier}' tier. "
        f"Allowed templates: {', '.join(allowed)}. Upgrade your plan to access this template."
    )
    return ApiError(403, "template_not_allowed", message)


def compute_quota_exceeded(used: float, limit: float) -> ApiError:
    """The month's compute units are used up."""
    message = (
        f"Compute credits exhausted. Monthly used: {used:.1f} / {limit:.1f} vCPU-hours, "
        "extra remaining: 0.0 vCPU-hours. "
        "Please wait for the next billing cycle or purchase additional credits."
    )
    return ApiError(402, "compute_quota_exceeded", message)


def concurrent_limit_exceeded(running: int, limit: int) -> ApiError:
    """As many sandboxes run as the plan allows."""
    message = (
        f"Concurrent sandbox limit reached. Running: {running} / {limit}. "
        "Stop an existing sandbox before creating a new one."
    )
    return ApiError(429, "concurrent_limit_exceeded", message)


def storage_quota_exceeded(used: int, requested: int, total: int) -> ApiError:
    """The plan has not so much storage left."""
    message = (
        f"Storage quota exceeded. Current used: {used} GiB, requested: {requested} GiB, "
        f"total quota: {total} GiB (available: {total - used} GiB). "
        "Delete existing persistent sandboxes to free space, or upgrade your plan."
    )
    return ApiError(402, "storage_quota_exceeded", message)


def duration_exceeded(tier: str, longest_sec: int) -> ApiError:
    """The sandbox would run for longer than the plan allows."""
    hours, minutes = longest_sec // 3600, longest_sec % 3600 // 60
    longest = f"{hours}h{minutes}m" if minutes else f"{hours}h"
    message = (
        f"Requested sandbox duration exceeds the '{tier}' tier maximum of {longest}. "
        "Reduce auto_stop_interval or upgrade your plan."
    )
    return ApiError(400, "sandbox_duration_exceeded", message)


def platform_full(code: str, what: str, used: int, limit: int) -> ApiError:
    """The platform as a whole is at its cap."""
    return ApiError(503, code, f"Temporarily unavailable. Total {what}: {used} / {limit}.")


def sandbox_not_ready(sandbox_id: str, status: str) -> ApiError:
    """There is nothing in the sandbox to speak to, yet or any more."""
    message = f"Sandbox {sandbox_id} is {status}, not ready for this operation."
    return ApiError(409, "sandbox_not_ready", message)


def sandbox_unreachable(sandbox_id: str) -> ApiError:
    """The sandbox is ready, and the proxy does not reach it."""
    return ApiError(502, "sandbox_unreachable", f"Could not connect to sandbox {sandbox_id}.")


CREATE_REFUSALS: Mapping[int, Refusal] = MappingProxyType(
    {
        400: Refusal(
            "sandbox_duration_exceeded",
            "Requested sandbox duration exceeds the 'free' tier maximum of 2h. "
            "Reduce auto_stop_interval or upgrade your plan.",
        ),
        402: Refusal(
            "compute_quota_exceeded",
            "Compute credits exhausted. Monthly used: 10.0 / 10.0 vCPU-hours, "
            "extra remaining: 0.0 vCPU-hours. "
            "Please wait for the next billing cycle or purchase additional credits.",
        ),
        403: Refusal(
            "template_not_allowed",
            "Template '{template}' is not available on the 'free' tier. Allowed templates: aio-sandbox-tiny. "
            "Upgrade your plan to access this template.",
        ),
        409: Refusal(
            "sandbox_name_conflict", "A sandbox named '{name}' already exists for the current user."
        ),
        429: Refusal(
            "concurrent_limit_exceeded",
            "Concurrent sandbox limit reached. Running: {running} / {running}. "
            "Stop an existing sandbox before creating a new one.",
        ),
        500: Refusal("internal_error", "An unexpected error occurred."),
        503: Refusal(
            "sandbox_cap_exceeded",
            "Sandbox creation is temporarily unavailable. Total sandboxes: {running} / {running}.",
        ),
    }
)
"""Statuses with which a profile can refuse creates (`create=429:5%`)."""


def create_refused(status: int, *, template: str, name: str, running: int) -> ApiError:
    """Build the refusal of a create for one of the statuses in `CREATE_REFUSALS`."""
    refusal = CREATE_REFUSALS[status]
    message = refusal.message.format(template=template, name=name, running=running)
    return ApiError(status, refusal.code, message)
