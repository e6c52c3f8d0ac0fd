"""The credential of a call, by the rules of the CLI (treadstone-cli 0.9)."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from treadstone_user.transports.base import ConfigError

_FOLDER = Path(".config") / "treadstone"


@dataclass(frozen=True, slots=True)
class Credential:
    """A request header that says who we are; its value is secret."""

    header: str
    value: str

    def __repr__(self) -> str:
        return f"Credential({self.header})"

    @classmethod
    def of_key(cls, key: str) -> Credential:
        """The credential that an API key is."""
        return cls("Authorization", f"Bearer {key}")

    @property
    def api_key(self) -> str | None:
        """The API key; None for a login session."""
        scheme, _, key = self.value.partition(" ")
        return key if self.header == "Authorization" and scheme == "Bearer" else None


def find_credential(environment: Mapping[str, str], base_url: str) -> Credential | None:
    """The API key of the environment, else of config.toml, else the session saved for `base_url`.

    base_url: without a slash at the end, as sessions are saved.
    Raises `ConfigError` where one of the files cannot be read.
    """
    key = environment.get("TREADSTONE_API_KEY") or read_cli_config(environment).get("api_key")
    if key:
        return Credential.of_key(key)
    token = _read_sessions(environment).get(base_url)
    return Credential("Cookie", f"session={token}") if token else None


def read_cli_config(environment: Mapping[str, str]) -> Mapping[str, Any]:
    """The table ``[default]`` of the CLI's config.toml; empty where there is none.

    Raises `ConfigError` where it cannot be read.
    """
    path = _folder(environment) / "config.toml"
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    section = content.get("default", {})
    return section if isinstance(section, dict) else {}


def _read_sessions(environment: Mapping[str, str]) -> Mapping[str, Any]:
    path = _folder(environment) / "session.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    return content if isinstance(content, dict) else {}


def _folder(environment: Mapping[str, str]) -> Path:
    home = environment.get("HOME")
    return (Path(home) if home else Path.home()) / _FOLDER
