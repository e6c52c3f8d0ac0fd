"""``treadstone.config.yaml``: the server and the CLI version of a deployment, never a credential."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from treadstone_user.fields import Fields
from treadstone_user.strictyaml import load
from treadstone_user.transports.base import ConfigError

_KEYS = ("base_url", "binary_version")
_CREDENTIAL_HINT = "no credential belongs in this file; set the environment variable TREADSTONE_API_KEY"


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The settings of a file; None where it says nothing."""

    base_url: str | None = None
    binary_version: str | None = None


def load_config(path: Path, *, required: bool) -> ConfigFile:
    """Read the file; one that is missing is empty unless `required`.

    `ConfigError` tells all that is wrong with it, one problem a line.
    """
    document = load(path)
    if document.missing and not required:
        return ConfigFile()
    problems = list(document.problems)
    values = dict(document.mapping or {})
    if "api_key" in values:
        problems.append(f"api_key: {_CREDENTIAL_HINT}")
        del values["api_key"]
    fields = Fields(values, known=_KEYS, problems=problems)
    config = ConfigFile(
        base_url=fields.text("base_url") or None,
        binary_version=fields.text("binary_version") or None,
    )
    if problems:
        raise ConfigError("\n".join(f"{path}: {problem}" for problem in problems))
    return config
