"""Which server a run speaks to, and whether it may: the rules, apart from any option parser."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from treadstone_user.binary import Binary
from treadstone_user.model import Variant
from treadstone_user.scenario import UNBOUNDED, Scenario
from treadstone_user.transports.base import ConfigError
from treadstone_user.transports.credentials import read_cli_config

SCENARIOS = Path("scenarios")
_OWN_SCENARIOS = Path(__file__).resolve().parent.parent / "scenarios"
CONFIG = Path("treadstone.config.yaml")
CACHE = Path(".bin")
"""Where an installed CLI is kept."""

CLI_DEFAULT_BASE_URL = "https://api.treadstone-ai.dev"
"""Where the CLI goes when nobody tells it."""

REMOTE_LIMIT = 20
"""More sandboxes than this on another machine want approval."""


def scenarios_folder() -> Path:
    """Where scenario names are looked up: here, else in the project itself."""
    return SCENARIOS if SCENARIOS.is_dir() else _OWN_SCENARIOS


@dataclass(frozen=True, slots=True)
class BaseUrl:
    """A server's address and who named it; `named` is False for the CLI's own default."""

    url: str
    source: str
    named: bool = True

    @property
    def on_this_machine(self) -> bool:
        """Whether the address is a loopback one."""
        host = urlsplit(self.url).hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"


def read_base_url(text: str, source: str) -> BaseUrl:
    """Check an address and write it as the CLI does, without a slash at the end.

    Raises `ConfigError` where it is no http or https address, or holds a password.
    """
    text = text.strip()
    try:
        parts = urlsplit(text)
        port_is_number = parts.port is None or parts.port >= 0
    except ValueError:
        parts, port_is_number = urlsplit(""), False
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_number:
        _, at, behind = text.rpartition("@")
        shown = f"…@{behind}" if at else text  # what stands before it may be a password
        raise ConfigError(f"{source}: {shown!r} is not an address like https://treadstone.example.com")
    if parts.username or parts.password:
        raise ConfigError(f"{source}: leave user and password out of the address")
    if "?" in text or "#" in text:
        raise ConfigError(f"{source}: {text!r} has a query or a fragment, which a base URL cannot have")
    return BaseUrl(text.rstrip("/"), source)


def resolve_base_url(
    *, option: str | None, host: str | None, environment: Mapping[str, str], configured: str | None
) -> BaseUrl:
    """The server's address, from the first of these that says something.

    option: ``--base-url``, which may itself stem from ``TREADSTONE_BASE_URL``.
    host: Locust's ``--host``, which says the same; a variable does not overrule it.
    configured: ``base_url`` in ``treadstone.config.yaml``.

    After these, what the CLI would use by itself: its config.toml, then its default.
    Raises `ConfigError`, also where ``--base-url`` and ``--host`` disagree.
    """
    variable = environment.get("TREADSTONE_BASE_URL")
    from_variable = option is not None and option == variable
    if host and (not option or from_variable):
        return read_base_url(host, "--host")
    if option:
        found = read_base_url(option, "TREADSTONE_BASE_URL" if from_variable else "--base-url")
        if host and read_base_url(host, "--host").url != found.url:
            raise ConfigError(f"--base-url {option} and --host {host} disagree: give only one of them")
        return found
    if configured:
        return read_base_url(configured, "treadstone.config.yaml")
    own = read_cli_config(environment).get("base_url")
    if own:
        return read_base_url(str(own), "the CLI's config.toml")
    return BaseUrl(CLI_DEFAULT_BASE_URL, "the CLI's default", named=False)


def check_remote(base_url: BaseUrl, *, sandboxes: int, approved: bool) -> None:
    """Raise `ConfigError` where a run may not go to another machine as it stands.

    sandboxes: how many the run may have there at once.
    """
    if base_url.on_this_machine:
        return
    if not base_url.named:
        raise ConfigError(
            f"no server was named, and {base_url.url} (the CLI's default) is not taken unasked: "
            "say --base-url URL, or try --local"
        )
    if sandboxes > REMOTE_LIMIT and not approved:
        raise ConfigError(
            f"{sandboxes} sandboxes on {base_url.url}, which is not this machine: more than "
            f"{REMOTE_LIMIT} there want approval. If you have it, say --approve-remote"
        )


def steady_scenario(template: str) -> Scenario:
    """A load without a scenario file: one lifecycle after the other on one template.

    The users bound what is in flight, so `concurrency` does not.
    """
    return Scenario(
        name="steady",
        description=f"steady load on {template}",
        matrix=(Variant(0, template, 1),),
        concurrency=UNBOUNDED,
        poll_interval_sec=1,
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """All that was decided before the first run; nothing changes it afterwards.

    Locust's web form can overwrite any parsed option, so no run reads those again.

    scenario_option: what the command line says of the scenario. template: of a steady load.
    approved: whether more than a few sandboxes on another machine are.
    base_url: None with ``--local``, where each run has a server of its own.
    binary: None with the HTTP transport, which needs none.
    warm_cli: None for "where it is possible".
    strict: whether measuring its own client makes a run fail.
    at_once: the most lifecycles in flight of a steady load, None for no limit.
    """

    scenario: Scenario
    scenario_file: str | None
    scenario_option: str | None
    template: str
    approved: bool
    base_url: BaseUrl | None
    local_profile: str | None
    binary: Binary | None
    warm_cli: bool | None
    results_dir: Path
    cleanup: bool
    strict: bool
    at_once: int | None

    @property
    def steady(self) -> bool:
        """Whether there is no scenario file, and so no total."""
        return self.scenario_file is None
