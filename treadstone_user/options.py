"""The plugin's options on Locust's command line, and what they come to."""

from __future__ import annotations

import argparse
from argparse import BooleanOptionalAction, Namespace
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from locust.argument_parser import LocustArgumentParser

from treadstone_user.binary import INSTALLER_URL, Binary, find_binary
from treadstone_user.configfile import ConfigFile, load_config
from treadstone_user.scenario import Scenario, find_scenario, load_scenario, scenario_names
from treadstone_user.settings import (
    CACHE,
    CONFIG,
    REMOTE_LIMIT,
    BaseUrl,
    Settings,
    check_remote,
    resolve_base_url,
    scenarios_folder,
    steady_scenario,
)
from treadstone_user.strictyaml import shown
from treadstone_user.transports.base import ConfigError
from treadstone_user.worker import Means

TEMPLATE = "aio-sandbox-tiny"

NO_SCENARIO = "none: a steady load"
"""What the web form offers beside the scenarios' names."""


class _FormChoices(list[str]):
    """What the web form offers: names, and what the command line says, which may be any file.

    argparse asks of each value that it reads whether it is a choice. All are, and the form must
    offer them: its select would show the first choice instead, and start another run than it says.
    """

    def __contains__(self, value: object) -> bool:
        if not super().__contains__(value):
            self.append(str(value))
        return True


def add_options(parser: LocustArgumentParser) -> None:
    """Add the group "Treadstone" to Locust's options, each with its environment variable."""
    group = parser.add_argument_group("Treadstone", "Load-test a Treadstone deployment through its CLI")

    def add(name: str, variable: str, text: str, **more: Any) -> argparse.Action:
        action: argparse.Action = group.add_argument(name, env_var=variable, help=text, **more)
        # A group refuses this as an argument. The form must name no path, program or server.
        action.include_in_web_ui = False  # type: ignore[attr-defined]
        return action

    def add_flag(name: str, variable: str, text: str) -> None:
        add(name, variable, text, action="store_true", default=False)

    scenario = add(
        "--scenario",
        "TREADSTONE_SCENARIO",
        "Scenario file, or the name of one in scenarios/",
        metavar="FILE",
        choices=_FormChoices([NO_SCENARIO, *scenario_names(scenarios_folder())]),
    )
    scenario.include_in_web_ui = True  # type: ignore[attr-defined]
    add(
        "--base-url",
        "TREADSTONE_BASE_URL",
        "The server; --host says the same. Else base_url of the config file, else what the CLI would use",
        metavar="URL",
    )
    add(
        "--transport",
        "TREADSTONE_TRANSPORT",
        "How calls reach the server: through the CLI (default), or by its requests over HTTP",
        choices=("cli", "http"),
        default="cli",
    )
    add(
        "--warm-cli",
        "TREADSTONE_WARM_CLI",
        "Import the CLI once and fork it for each call (default: where it is a Python console script)",
        action=BooleanOptionalAction,
        default=None,
    )
    add("--binary", "TREADSTONE_BINARY", "The CLI; found or installed if not given", metavar="PATH")
    add("--binary-version", "TREADSTONE_BINARY_VERSION", "Its version; else of the config file, else latest")
    add(
        "--treadstone-config",
        "TREADSTONE_CONFIG",
        f"Config file with base_url and binary_version (default: {CONFIG}, if there is one)",
        metavar="FILE",
    )
    add(
        "--installer-url",
        "TREADSTONE_INSTALLER_URL",
        f"Where the CLI's installer is fetched if no CLI is there (default: {INSTALLER_URL})",
        metavar="URL",
        default=INSTALLER_URL,
    )
    add(
        "--results-dir",
        "TREADSTONE_RESULTS_DIR",
        "Where each run gets a folder (default: results)",
        metavar="DIR",
        default="results",
    )
    add("--template", "TREADSTONE_TEMPLATE", f"Template of a steady load (default: {TEMPLATE})")
    add_flag("--no-cleanup", "TREADSTONE_NO_CLEANUP", "Leave the run's sandboxes where they are")
    add_flag("--strict", "TREADSTONE_STRICT", "End with exit code 6 where the client measured itself")
    add_flag("--dry-run", "TREADSTONE_DRY_RUN", "Print what would be created, and end")
    add_flag("--local", "TREADSTONE_LOCAL", "Start a local server for each run and use it")
    add(
        "--local-profile",
        "TREADSTONE_LOCAL_PROFILE",
        "How that server behaves, such as 'ready=lognormal(2.0,0.4) error=2%%'",
        metavar="PROFILE",
    )
    add_flag(
        "--approve-remote", "TREADSTONE_APPROVE_REMOTE", "Allow more than 20 sandboxes on another machine"
    )


def read_scenario(options: Namespace) -> tuple[Scenario, str | None]:
    """The scenario and its file, None for a steady load. Raises `TreadstoneError`."""
    if not options.scenario:
        return steady_scenario(options.template or TEMPLATE), None
    if options.template:
        raise ConfigError("--template is for a steady load; with --scenario, the file names the templates")
    path = find_scenario(options.scenario, folder=scenarios_folder())
    return load_scenario(path), str(path)


def choose_scenario(settings: Settings, chosen: str | None, *, options: Namespace) -> Settings:
    """The settings of a run for which the web form has chosen a scenario.

    chosen: a name in scenarios/, `NO_SCENARIO`, or what the command line says. Locust hands over
        whatever a request says, so anything else is refused, a path above all.
    Raises `TreadstoneError`.
    """
    if chosen == settings.scenario_option:
        return settings
    if chosen in (NO_SCENARIO, "", None):
        scenario, file = steady_scenario(settings.template), None
    else:
        names = scenario_names(scenarios_folder())
        if chosen not in names:
            raise ConfigError(f"no scenario {shown(chosen)} in scenarios/; there are: {', '.join(names)}")
        path = find_scenario(chosen, folder=scenarios_folder())
        scenario, file = load_scenario(path), str(path)
    settings = replace(settings, scenario=scenario, scenario_file=file)
    if settings.base_url is not None:
        sandboxes = options.num_users or 1 if settings.steady else scenario.total
        check_remote(settings.base_url, sandboxes=sandboxes, approved=settings.approved)
    return settings


def read_settings(
    options: Namespace, *, environment: Mapping[str, str], say: Callable[[str], None]
) -> Settings:
    """Decide everything that is the same for all runs of this process. Raises `TreadstoneError`."""
    scenario, scenario_file = read_scenario(options)
    config = load_config(
        Path(options.treadstone_config or CONFIG), required=options.treadstone_config is not None
    )
    base_url = _base_url(options, environment, config)
    at_once = None
    if base_url is not None:
        sandboxes = scenario.total if scenario_file else options.num_users or 1
        check_remote(base_url, sandboxes=sandboxes, approved=options.approve_remote)
        if not base_url.on_this_machine and not options.approve_remote:
            at_once = REMOTE_LIMIT
    with_cli = options.transport == "cli"
    return Settings(
        scenario=scenario,
        scenario_file=scenario_file,
        scenario_option=options.scenario,
        template=options.template or TEMPLATE,
        approved=options.approve_remote,
        base_url=base_url,
        local_profile=options.local_profile,
        binary=_find_binary(options, environment, config, say) if with_cli else None,
        warm_cli=options.warm_cli,
        results_dir=Path(options.results_dir),
        cleanup=not options.no_cleanup,
        strict=options.strict,
        at_once=at_once,
    )


def read_means(options: Namespace, *, environment: Mapping[str, str], say: Callable[[str], None]) -> Means:
    """What a worker decides for itself; the rest comes from its master. Raises `TreadstoneError`."""
    config = load_config(
        Path(options.treadstone_config or CONFIG), required=options.treadstone_config is not None
    )
    frozen = Namespace(**vars(options))  # the master's options overwrite a worker's
    return Means(
        find_binary=lambda: _find_binary(frozen, environment, config, say),
        warm_cli=options.warm_cli,
        results=Path(options.results_dir),
        environment=dict(environment),
    )


def _find_binary(
    options: Namespace, environment: Mapping[str, str], config: ConfigFile, say: Callable[[str], None]
) -> Binary:
    return find_binary(
        explicit=options.binary,
        version=options.binary_version or config.binary_version or "latest",
        cache=CACHE,
        installer_url=options.installer_url,
        env=environment,
        announce=say,
    )


def _base_url(options: Namespace, environment: Mapping[str, str], config: ConfigFile) -> BaseUrl | None:
    """The server, None for a local one."""
    if not options.local:
        if options.local_profile:
            raise ConfigError("--local-profile is for the server of --local: add --local")
        return resolve_base_url(
            option=options.base_url, host=options.host, environment=environment, configured=config.base_url
        )
    if options.host or (options.base_url and options.base_url != environment.get("TREADSTONE_BASE_URL")):
        raise ConfigError("--local starts a server of its own: leave out --base-url and --host")
    return None
