"""The API's refusals: one exception, and one constructor for each documented code.

Every refusal is answered as `{"error": {"code", "message", "status"}}`. Clients may rely on codes and
statuses; the messages are those of the real server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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


def auth_required(message: str = "Authentication required") -> ApiError:
    """No credential was sent."""
    return ApiError(401, "auth_required", message)


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


def forbidden(message: str) -> ApiError:
    """The credential is good, and not for this."""
    return ApiError(403, "forbidden", message)


def token_invalid() -> ApiError:
    """No such token verifies an address."""
    message = "Invalid or expired verification token."
    return ApiError(400, "email_verification_token_invalid", message)


def already_verified() -> ApiError:
    """The address has been verified before."""
    return ApiError(400, "email_already_verified", "Email is already verified.")


def sandbox_not_ready(sandbox_id: str, current: str) -> ApiError:
    """The proxy leads to ready sandboxes only."""
    message = f"Sandbox {sandbox_id} is {current}, not ready for this operation."
    return ApiError(409, "sandbox_not_ready", message)


def sandbox_unreachable(sandbox_id: str) -> ApiError:
    """The sandbox is ready, and does not answer the proxy yet."""
    return ApiError(502, "sandbox_unreachable", f"Could not connect to sandbox {sandbox_id}.")


def template_not_allowed(tier: str, template: str, allowed: Iterable[str]) -> ApiError:
    """The plan does not have that template."""
    message = (
        f"Template '{template}' is not available on the '{tier}' tier. "
        f"Allowed templates: {', '.join(allowed) or 'none'}. Upgrade your plan to access this template."
    )
    return ApiError(403, "template_not_allowed", message)


def compute_quota_exceeded(used: float, limit: float, extra: float) -> ApiError:
    """No compute is left; all in compute-unit hours."""
    message = (
        f"Compute credits exhausted. Monthly used: {used:.1f} / {limit:.1f} vCPU-hours, "
        f"extra remaining: {extra:.1f} vCPU-hours. "
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


def storage_quota_exceeded(used: int, wanted: int, quota: int) -> ApiError:
    """The plan has too little storage left; all in GiB."""
    message = (
        f"Storage quota exceeded. Current used: {used} GiB, requested: {wanted} GiB, "
        f"total quota: {quota} GiB (available: {quota - used} GiB). "
        "Delete existing persistent sandboxes to free space, or upgrade your plan."
    )
    return ApiError(402, "storage_quota_exceeded", message)


def duration_exceeded(tier: str, longest: int) -> ApiError:
    """The plan's sandboxes stop themselves after `longest` seconds at the latest."""
    hours, minutes = longest // 3600, longest % 3600 // 60
    written = f"{hours}h{minutes}m" if minutes else f"{hours}h"
    message = (
        f"Requested sandbox duration exceeds the '{tier}' tier maximum of {written}. "
        "Reduce auto_stop_interval or upgrade your plan."
    )
    return ApiError(400, "sandbox_duration_exceeded", message)


def user_cap_exceeded(users: int, cap: int) -> ApiError:
    """The whole server has as many accounts as it may."""
    message = f"User registration is temporarily unavailable. Registered users: {users} / {cap}."
    return ApiError(503, "user_registration_cap_exceeded", message)


def sandbox_cap_exceeded(sandboxes: int, cap: int) -> ApiError:
    """The whole server has as many sandboxes as it may."""
    message = f"Sandbox creation is temporarily unavailable. Total sandboxes: {sandboxes} / {cap}."
    return ApiError(503, "sandbox_cap_exceeded", message)


def storage_cap_exceeded(used: int, wanted: int, cap: int) -> ApiError:
    """The whole server has too little storage left; all in GiB."""
    message = (
        "Persistent sandbox creation is temporarily unavailable. "
        f"Allocated storage: {used} GiB, requested: {wanted} GiB, limit: {cap} GiB."
    )
    return ApiError(503, "global_storage_cap_exceeded", message)


CREATE_REFUSALS: Mapping[int, Callable[[str, str, int], ApiError]] = MappingProxyType(
    {
        400: lambda _template, _name, _running: duration_exceeded("free", 7200),
        402: lambda _template, _name, _running: compute_quota_exceeded(10, 10, 0),
        403: lambda template, _name, _running: template_not_allowed("free", template, ["aio-sandbox-tiny"]),
        409: lambda _template, name, _running: name_conflict(name),
        429: lambda _template, _name, running: concurrent_limit_exceeded(running, running),
        500: lambda _template, _name, _running: internal_error(),
        503: lambda _template, _name, running: sandbox_cap_exceeded(running, running),
    }
)
"""Statuses with which a profile can refuse creates (`create=429:5%`), each with the refusal of a create of a
template and a name beside so many running sandboxes."""
