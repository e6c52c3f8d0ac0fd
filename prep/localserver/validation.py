"""Reading requests: JSON bodies and query parameters, with the messages of the real server.

All problems of a request are told at once, each as `WHERE: WHAT`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from prep.localserver.accounts import Scope, is_email
from prep.localserver.catalogue import DEFAULT_STORAGE_SIZE
from prep.localserver.errors import invalid
from prep.localserver.sandbox import SandboxSpec

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,53}[a-z0-9])?")
_STORAGE_SIZE = re.compile(r"[0-9]+(?:Gi|Ti)")
_NAME_RULE = (
    "Value error, Sandbox name must be 1-55 characters of lowercase letters, numbers, or hyphens, "
    "and must start and end with a letter or number."
)
_AUTO_STOP_RULE = "Value error, auto_stop_interval must be 0 (never) or at least 1 minute."
_AUTO_DELETE_RULE = "Value error, auto_delete_interval must be -1 or at least 1 minute."
_STORAGE_RULE = (
    "Value error, storage_size must match format '<number>Gi' or '<number>Ti' (e.g. 5Gi, 10Gi, 20Gi, 1Ti)."
)
_STORAGE_WITHOUT_PERSIST = "Value error, storage_size is only allowed when persist=true."
_LABEL_RULE = "Each label filter must use key:value format."
_MAX_KEY_LIFETIME = 31_536_000
_DATA_PLANE_MODES = ("none", "all", "selected")
_KINDS = {
    str: "Input should be a valid string",
    int: "Input should be a valid integer",
    bool: "Input should be a valid boolean",
    dict: "Input should be a valid dictionary",
}
_REQUIRED = object()


class Body:
    """A JSON object on its way in: gives its fields and gathers what is wrong with them.

    Raises:
        ApiError: 422 if the text is no JSON object.
    """

    def __init__(self, text: bytes) -> None:
        self._fields = _json_object(text)
        self._problems: list[str] = []

    def field(self, name: str, kind: type, default: Any = _REQUIRED) -> Any:
        """Give a field of a kind, or `default` where it is absent; one whose default is None may be null."""
        value = self._fields.get(name, default)
        if value is _REQUIRED:
            self.problem(name, "Field required")
            return kind()
        if value is None and default is None:
            return None
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            self.problem(name, _KINDS[kind])
            return kind() if default is _REQUIRED else default
        return value

    def problem(self, where: str, what: str) -> None:
        """Note that something is wrong with a field, or with the whole body where that is empty."""
        self._problems.append(f"body -> {where}: {what}" if where else f"body: {what}")

    def check(self) -> None:
        """Raise what was noted, if anything.

        Raises:
            ApiError: 422 with all problems.
        """
        if self._problems:
            raise invalid(*self._problems)


def _json_object(text: bytes) -> dict[str, Any]:
    if not text:
        raise invalid("body: Field required")
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise invalid(f"body -> {error.pos}: JSON decode error") from error
    except (ValueError, RecursionError) as error:  # not UTF-8, a number too long, or nested too deep
        raise invalid("body -> 0: JSON decode error") from error
    if not isinstance(value, dict):
        raise invalid("body: Input should be a valid dictionary or object to extract fields from")
    return value


def read_create(text: bytes) -> SandboxSpec:
    """Read the body of a create; fields that the API does not know are passed over, as it does.

    Raises:
        ApiError: 422 with all problems.
    """
    body = Body(text)
    template = body.field("template", str)
    name = body.field("name", str, None)
    labels = body.field("labels", dict, {})
    auto_stop = body.field("auto_stop_interval", int, 60)
    auto_delete = body.field("auto_delete_interval", int, -1)
    persist = body.field("persist", bool, False)
    storage_size = body.field("storage_size", str, None)
    if name is not None and not _NAME.fullmatch(name):
        body.problem("name", _NAME_RULE)
    for key, value in labels.items():
        if not isinstance(value, str):
            body.problem(f"labels -> {key}", _KINDS[str])
    if auto_stop < 0:
        body.problem("auto_stop_interval", _AUTO_STOP_RULE)
    if auto_delete != -1 and auto_delete < 1:
        body.problem("auto_delete_interval", _AUTO_DELETE_RULE)
    if storage_size is not None and not _STORAGE_SIZE.fullmatch(storage_size):
        body.problem("storage_size", _STORAGE_RULE)
    elif storage_size is not None and not persist:
        body.problem("", _STORAGE_WITHOUT_PERSIST)
    body.check()
    return SandboxSpec(
        template=template,
        name=name,
        labels=labels,
        auto_stop_interval=auto_stop,
        auto_delete_interval=auto_delete,
        persist=persist,
        storage_size=(storage_size or DEFAULT_STORAGE_SIZE) if persist else None,
    )


def read_credentials(text: bytes) -> tuple[str, str]:
    """Read an e-mail address and a password.

    Raises:
        ApiError: 422 with all problems.
    """
    body = Body(text)
    email, password = body.field("email", str), body.field("password", str)
    body.check()
    if not is_email(email):
        body.problem("email", "value is not a valid email address: An email address must have an @-sign.")
    body.check()
    return email, password


def read_new_key(text: bytes) -> tuple[str, int | None, Scope]:
    """Read the name, the lifetime in seconds and the scope of a key to be made.

    Raises:
        ApiError: 422 with all problems.
    """
    body = Body(text)
    name = body.field("name", str, "default")
    lifetime = body.field("expires_in", int, None)
    if lifetime is not None and not 1 <= lifetime <= _MAX_KEY_LIFETIME:
        body.problem("expires_in", f"Input should be from 1 to {_MAX_KEY_LIFETIME}")
    scope = _scope(body, body.field("scope", dict, None) or {})
    body.check()
    return name, lifetime, scope


def _scope(body: Body, wanted: Mapping[str, Any]) -> Scope:
    control, data = wanted.get("control_plane", True), wanted.get("data_plane", {})
    if not isinstance(control, bool):
        body.problem("scope -> control_plane", _KINDS[bool])
    if not isinstance(data, dict):
        body.problem("scope -> data_plane", _KINDS[dict])
        data = {}
    mode, ids = data.get("mode", "all"), data.get("sandbox_ids", [])
    where = "scope -> data_plane"
    if mode not in _DATA_PLANE_MODES:
        body.problem(f"{where} -> mode", "Input should be 'none', 'all' or 'selected'")
    if not isinstance(ids, list) or not all(isinstance(one, str) for one in ids):
        body.problem(f"{where} -> sandbox_ids", "Input should be a valid list")
    elif mode == "selected" and not ids:
        body.problem(where, "Value error, sandbox_ids must be provided when data_plane.mode=selected.")
    elif mode != "selected" and ids:
        body.problem(where, "Value error, sandbox_ids is only allowed when data_plane.mode=selected.")
    else:
        return Scope(control_plane=control is True, data_plane=mode, sandbox_ids=tuple(dict.fromkeys(ids)))
    return Scope()


def read_token(text: bytes) -> str:
    """Read the token that verifies an address.

    Raises:
        ApiError: 422 if there is none.
    """
    body = Body(text)
    token: str = body.field("token", str)
    body.check()
    return token


def read_plan_change(text: bytes) -> tuple[str | None, dict[str, Any] | None]:
    """Read the tier and the overrides that a plan shall have, None for what stays.

    Raises:
        ApiError: 422 with all problems, also for neither of the two.
    """
    body = Body(text)
    tier, overrides = body.field("tier", str, None), body.field("overrides", dict, None)
    if tier is None and overrides is None:
        body.problem("", "Value error, At least one of 'tier' or 'overrides' must be provided.")
    body.check()
    return tier, overrides


def read_email(query: Mapping[str, str]) -> str:
    """Read the address that is asked for.

    Raises:
        ApiError: 422 if there is none.
    """
    if "email" not in query:
        raise invalid("query -> email: Field required")
    return query["email"]


def read_page(query: Mapping[str, str], labels: Iterable[str]) -> tuple[int, int, dict[str, str]]:
    """Read a list's limit, offset and label filters.

    Raises:
        ApiError: 422 with all problems.
    """
    limit, offset = read_bounds(query)
    filters = dict(_label_filter(label) for label in labels)
    return limit, offset, filters


def read_bounds(query: Mapping[str, str]) -> tuple[int, int]:
    """Read a list's limit and offset.

    Raises:
        ApiError: 422 with all problems.
    """
    problems: list[str] = []
    limit = _bounded(query, "limit", 100, least=1, most=1000, problems=problems)
    offset = _bounded(query, "offset", 0, least=0, most=2**63, problems=problems)
    if problems:
        raise invalid(*problems)
    return limit, offset


def _bounded(
    query: Mapping[str, str], name: str, default: int, *, least: int, most: int, problems: list[str]
) -> int:
    text = query.get(name, str(default))
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        problems.append(
            f"query -> {name}: Input should be a valid integer, unable to parse string as an integer"
        )
        return default
    value = int(text)
    if value < least:
        problems.append(f"query -> {name}: Input should be greater than or equal to {least}")
    if value > most:
        problems.append(f"query -> {name}: Input should be less than or equal to {most}")
    return value


def _label_filter(text: str) -> tuple[str, str]:
    key, _, value = text.partition(":")
    if not key or not value:
        raise invalid(_LABEL_RULE)
    return key, value
