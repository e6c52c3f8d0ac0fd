"""The asset store: accounts, keys and sandboxes that were prepared, in one JSON file.

It holds passwords and API keys, so it is for its owner alone (mode 0600). It is written whole or not at all,
and a half-done one is continued by the command that made it.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from treadstone_user.strictyaml import shown
from treadstone_user.transports.base import ConfigError

_MODE = 0o600


@dataclass(frozen=True, slots=True)
class User:
    """An account. user_id: empty until the server has answered. tier, max_running: None where not set."""

    email: str
    password: str = field(repr=False)
    user_id: str = ""
    verified: bool = False
    tier: str | None = None
    max_running: int | None = None


@dataclass(frozen=True, slots=True)
class Key:
    """An account's API key. key_id: empty until the server has answered. expires_at: None for never."""

    email: str
    key_id: str
    key: str = field(repr=False)
    name: str
    expires_at: str | None = None


@dataclass(frozen=True, slots=True)
class PreparedSandbox:
    """A sandbox that was ready. proxy: the URL that leads into it."""

    id: str
    email: str
    template: str
    label: str
    proxy: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """What could not be done. step: by which command; item: an address or an id; kind: as in every report."""

    step: str
    item: str
    kind: str
    status: int | None
    error: str


@dataclass(slots=True)
class Store:
    """Everything that was prepared on one server. `run_id` names the store, and labels its sandboxes."""

    run_id: str
    base_url: str
    users: list[User] = field(default_factory=list)
    api_keys: list[Key] = field(default_factory=list)
    sandboxes: list[PreparedSandbox] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)

    @classmethod
    def new(cls, base_url: str) -> Store:
        """An empty store, named after the time in UTC, and not as runs are: no sweep takes its sandboxes."""
        return cls(f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}", base_url)


_LISTS: dict[str, type] = {
    "users": User,
    "api_keys": Key,
    "sandboxes": PreparedSandbox,
    "failed": Failed,
}
_OPTIONAL = {"tier": str, "max_running": int, "expires_at": str, "proxy": str, "status": int}
_FLAGS = {"verified"}


def load_assets(path: Path) -> Store:
    """Read a store. Raises `ConfigError` with all that is wrong with it, each problem with its path."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"there is no store {path}: python -m prep.users --store {path} makes one"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read as a store: {error}") from error
    problems: list[str] = []
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: must be a JSON object with users, api_keys and sandboxes")
    problems += [f"{key}: unknown key" for key in content if key not in ("run_id", "base_url", *_LISTS)]
    for key in ("run_id", "base_url"):
        if not isinstance(content.get(key), str):
            problems.append(f"{key}: must be text, not {shown(content.get(key))}")
    lists = {name: _read_list(name, kind, content.get(name, []), problems) for name, kind in _LISTS.items()}
    if problems:
        raise ConfigError("\n".join(f"{path}: {problem}" for problem in problems))
    return Store(content["run_id"], content["base_url"], **lists)


def _read_list(name: str, kind: type, rows: Any, problems: list[str]) -> list[Any]:
    if not isinstance(rows, list):
        problems.append(f"{name}: must be a list, not {shown(rows)}")
        return []
    return [_read_row(f"{name}[{index}]", kind, row, problems) for index, row in enumerate(rows)]


def _read_row(path: str, kind: type, row: Any, problems: list[str]) -> Any:
    if not isinstance(row, dict):
        problems.append(f"{path}: must be an object, not {shown(row)}")
        return None
    names = kind.__dataclass_fields__  # type: ignore[attr-defined]
    problems += [f"{path}.{name}: unknown key" for name in row if name not in names]
    for name, told in names.items():
        is_required = told.default is told.default_factory  # both are MISSING
        value = row.get(name)
        if name not in row:
            if is_required:
                problems.append(f"{path}.{name}: is required")
            continue
        wanted = bool if name in _FLAGS else _OPTIONAL.get(name, str)
        right = isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool))
        if not right and not (value is None and name in _OPTIONAL):
            # A wrong value may be a secret that stands in the wrong place: it is not repeated.
            problems.append(f"{path}.{name}: must be {wanted.__name__}, not {type(value).__name__}")
    key = row.get("key") if kind is Key else None
    if isinstance(key, str) and not re.fullmatch(r"[!-~]+", key):
        problems.append(f"{path}.key: must be of printable letters, without blanks")
    known = {name: row[name] for name in names if name in row}
    try:
        return kind(**known)
    except TypeError:  # what is missing is told
        return None


def save_assets(store: Store, path: Path) -> None:
    """Write a store whole or not at all, readable for its owner alone; makes the folder. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"run_id": store.run_id, "base_url": store.base_url} | {
        name: [asdict(row) for row in _rows(store, name)] for name in _LISTS
    }
    temporary = path.with_name(f".{path.name}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE)
    try:
        with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:  # noqa: PTH123
            json.dump(content, file, indent=1, ensure_ascii=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(_MODE)  # whatever a killed command has left there
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _rows(store: Store, name: str) -> Sequence[Any]:
    rows: Sequence[Any] = getattr(store, name)
    return rows
