"""The API's JSON, read into values. What cannot be read raises `BadOutput`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from treadstone_user.model import Sandbox, SandboxPage, Template
from treadstone_user.quota import Allowance
from treadstone_user.transports.base import ApiError, BadOutput, api_error, redact

_SAID_LIMIT = 300


def _field(data: Mapping[str, Any], name: str, kind: type, where: str) -> Any:
    value = data.get(name)
    if not isinstance(value, kind):
        raise BadOutput(f"{where}: {name!r} is missing or not a {kind.__name__}")
    return value


def _object(data: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(data, dict):
        raise BadOutput(f"{where}: not a JSON object")
    return data


def _optional_text(data: Mapping[str, Any], name: str) -> str | None:
    value = data.get(name)
    return value if isinstance(value, str) else None


def read_sandbox(data: Any) -> Sandbox:
    """A sandbox from the API's JSON. Raises `BadOutput` where id, template or status lack."""
    data = _object(data, "sandbox")
    labels = data.get("labels")
    return Sandbox(
        id=_field(data, "id", str, "sandbox"),
        template=_field(data, "template", str, "sandbox"),
        status=_field(data, "status", str, "sandbox"),
        persist=data.get("persist") is True,
        storage_size=_optional_text(data, "storage_size"),
        labels=dict(labels) if isinstance(labels, dict) else {},
        created_at=_optional_text(data, "created_at"),
        started_at=_optional_text(data, "started_at"),
        proxy=_read_proxy(data.get("urls")),
    )


def _read_proxy(urls: Any) -> str | None:
    return _optional_text(urls, "proxy") if isinstance(urls, dict) else None


def read_page(data: Any) -> SandboxPage:
    """A page of the list from the API's JSON. Raises `BadOutput`."""
    data = _object(data, "list of sandboxes")
    items = _field(data, "items", list, "list of sandboxes")
    total = _field(data, "total", int, "list of sandboxes")
    return SandboxPage(items=tuple(read_sandbox(item) for item in items), total=total)


def read_templates(data: Any) -> tuple[Template, ...]:
    """The templates from the API's JSON. Raises `BadOutput`."""
    items = _field(_object(data, "templates"), "items", list, "templates")
    return tuple(_read_template(_object(item, "template")) for item in items)


def _read_template(data: Mapping[str, Any]) -> Template:
    resources = data.get("resource_spec")
    resources = resources if isinstance(resources, dict) else {}
    sizes = data.get("allowed_storage_sizes")
    return Template(
        name=_field(data, "name", str, "template"),
        cpu=str(resources.get("cpu", "?")),
        memory=str(resources.get("memory", "?")),
        storage_sizes=tuple(map(str, sizes)) if isinstance(sizes, list) else (),
    )


def read_account(data: Any) -> str:
    """The e-mail address from the API's JSON of the current user. Raises `BadOutput`."""
    return str(_field(_object(data, "user"), "email", str, "user"))


def read_health(data: Any) -> None:
    """Take in the API's JSON on its health. Raises `BadOutput` where it is none."""
    _field(_object(data, "health"), "status", str, "health")


def read_usage(data: Any) -> Allowance:
    """What a plan allows, from the API's JSON of an account's usage. Raises `BadOutput`."""
    data = _object(data, "usage")
    limits, compute, storage = (
        _field(data, part, dict, "usage") for part in ("limits", "compute", "storage")
    )
    templates = limits.get("allowed_templates")
    return Allowance(
        tier=_field(data, "tier", str, "usage"),
        max_running=_field(limits, "max_concurrent_running", int, "usage.limits"),
        running=_field(limits, "current_running", int, "usage.limits"),
        templates=tuple(map(str, templates)) if isinstance(templates, list) else (),
        max_duration_sec=_field(limits, "max_sandbox_duration_seconds", int, "usage.limits"),
        storage_left_gib=_number(storage, "available_gib", "usage.storage"),
        compute_left=_number(compute, "total_remaining", "usage.compute"),
    )


def _number(data: Mapping[str, Any], name: str, where: str) -> float:
    value = data.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadOutput(f"{where}: {name!r} is missing or not a number")
    return float(value)


def read_error(status: int, body: bytes) -> ApiError:
    """The error that a status of 400 and above means, with the message of the API's envelope.

    A body that is none, such as a proxy's page, is told as it stands, cut short.
    """
    try:
        content = json.loads(body)
        inner = content.get("error", content)
        message = str(inner.get("message", inner)) if isinstance(inner, dict) else str(inner)
    except (ValueError, AttributeError):
        message = said(body)
    return api_error(status, redact(message[:_SAID_LIMIT]))


def said(body: bytes) -> str:
    """The beginning of a body that cannot be read, for an error's text."""
    return redact(body[:_SAID_LIMIT].decode("utf-8", errors="replace").strip() or "nothing")
