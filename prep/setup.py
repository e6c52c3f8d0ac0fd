"""Preflight by itself: the CLI, the login, the server's templates, and what a scenario needs.

``python -m prep.setup [--scenario FILE] [--base-url URL]`` sends no request that changes anything. With a
scenario it compares what that creates with what the plans of its accounts allow (running at once, templates,
storage, auto-stop, credit), and where the environment names an admin, with the platform's caps: what would be
refused is told, and the exit code is then 1.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from prep.api import Api
from prep.commandline import find_admin, run_command, say
from treadstone_user.access import Accounts, connect, read_accounts
from treadstone_user.binary import INSTALLER_URL, find_binary
from treadstone_user.configfile import load_config
from treadstone_user.exitcode import ExitCode
from treadstone_user.model import Task
from treadstone_user.preflight import check, survey
from treadstone_user.quota import foretell_platform, spread
from treadstone_user.scenario import Scenario, find_scenario, load_scenario, tasks
from treadstone_user.settings import CACHE, CONFIG, resolve_base_url, scenarios_folder
from treadstone_user.transports.base import CallError

_TIMEOUT_SEC = 30.0


def main(arguments: list[str] | None = None) -> int:
    """Run preflight; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m prep.setup",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--scenario", metavar="FILE", help="a scenario file, or a name in scenarios/")
    parser.add_argument(
        "--accounts", metavar="FILE", help="a store of accounts (default: that of the scenario)"
    )
    parser.add_argument("--base-url", metavar="URL", default=os.environ.get("TREADSTONE_BASE_URL"))
    parser.add_argument("--binary", metavar="PATH", default=os.environ.get("TREADSTONE_BINARY"))
    parser.add_argument("--binary-version", default=os.environ.get("TREADSTONE_BINARY_VERSION"))
    parser.add_argument("--treadstone-config", metavar="FILE", default=os.environ.get("TREADSTONE_CONFIG"))
    parser.add_argument("--installer-url", default=os.environ.get("TREADSTONE_INSTALLER_URL", INSTALLER_URL))
    options = parser.parse_args(arguments)
    return run_command(lambda: _run(options))


def _run(options: argparse.Namespace) -> ExitCode:
    scenario: Scenario | None = None
    if options.scenario:
        scenario = load_scenario(find_scenario(options.scenario, folder=scenarios_folder()))
    named = options.accounts or (scenario.accounts if scenario is not None else None)
    accounts = None if named is None else read_accounts(named)
    path = Path(options.treadstone_config or CONFIG)
    config = load_config(path, required=options.treadstone_config is not None)
    base_url = resolve_base_url(
        option=options.base_url, host=None, environment=os.environ, configured=config.base_url
    )
    say(f"server {base_url.url} (from {base_url.source})")
    return _check(options, scenario, accounts, base_url.url, options.binary_version or config.binary_version)


def _check(
    options: argparse.Namespace,
    scenario: Scenario | None,
    accounts: Accounts | None,
    base_url: str,
    version: str | None,
) -> ExitCode:
    binary = find_binary(
        explicit=options.binary,
        version=version or "latest",
        cache=CACHE,
        installer_url=options.installer_url,
        env=os.environ,
        announce=say,
    )
    accesses = connect(
        binary=binary,
        warm_cli=None,
        at_once=5,
        base_url=base_url,
        environment=os.environ,
        accounts=accounts,
        say=say,
    )
    try:
        matrix = scenario.matrix if scenario is not None else ()
        store = accounts.path if accounts is not None else None
        check(accesses.first.transport, base_url=base_url, matrix=matrix, store=store, say=say)
        allowances = survey({one.account: one.http for one in accesses}, say=say)
    finally:
        accesses.close()
    foretold: list[str] = []
    if scenario is not None and allowances:
        found = spread(tasks(scenario), allowances, auto_stop_interval=scenario.auto_stop_interval)
        allowed = found.tasks[: len(found.tasks) - sum(found.refused.values())]
        foretold = found.sentences() + _ask_platform(base_url, allowed)
    for sentence in foretold:
        say(sentence)
    if foretold:
        say("ready for a run, but for these refusals")
        return ExitCode.REQUESTS_FAILED
    say("ready for a run")
    return ExitCode.OK


def _ask_platform(base_url: str, planned: tuple[Task, ...]) -> list[str]:
    """What the platform's own caps would refuse, as far as an admin of the environment can tell."""
    api = Api(base_url, timeout_sec=_TIMEOUT_SEC)
    try:
        admin = find_admin(api)
        if admin is None:
            return []
        limits = api.object("GET", "/v1/admin/platform-limits", admin)
    except CallError as error:
        return [f"what the platform allows is not known: {error.cause}: {error}"]
    refused = foretell_platform(planned, limits.get("config") or {}, limits.get("usage") or {})
    return [
        f"{count} of {len(planned)} creates will be refused with {refusal.status}: {refusal.reason}"
        for refusal, count in refused
    ]


if __name__ == "__main__":
    sys.exit(main())
