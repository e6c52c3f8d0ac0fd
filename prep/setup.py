"""Preflight by itself: the CLI, the login, the server's templates, and what a scenario needs.

``python -m prep.setup [--scenario FILE] [--base-url URL]`` sends no request that changes anything.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from treadstone_user.access import connect_cli
from treadstone_user.binary import INSTALLER_URL, find_binary
from treadstone_user.configfile import load_config
from treadstone_user.exitcode import ExitCode
from treadstone_user.model import Variant
from treadstone_user.preflight import check
from treadstone_user.scenario import find_scenario, load_scenario
from treadstone_user.settings import CACHE, CONFIG, resolve_base_url, scenarios_folder
from treadstone_user.transports.base import TreadstoneError


def main(arguments: list[str] | None = None) -> int:
    """Run preflight; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m prep.setup", description=__doc__.split("\n\n")[0])
    parser.add_argument("--scenario", metavar="FILE", help="a scenario file, or a name in scenarios/")
    parser.add_argument("--base-url", metavar="URL", default=os.environ.get("TREADSTONE_BASE_URL"))
    parser.add_argument("--binary", metavar="PATH", default=os.environ.get("TREADSTONE_BINARY"))
    parser.add_argument("--binary-version", default=os.environ.get("TREADSTONE_BINARY_VERSION"))
    parser.add_argument("--treadstone-config", metavar="FILE", default=os.environ.get("TREADSTONE_CONFIG"))
    parser.add_argument("--installer-url", default=os.environ.get("TREADSTONE_INSTALLER_URL", INSTALLER_URL))
    options = parser.parse_args(arguments)
    try:
        _run(options)
    except TreadstoneError as error:
        for line in str(error).splitlines():
            sys.stderr.write(f"error: {line}\n")
        return ExitCode.MISTAKE
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return ExitCode.INCOMPLETE
    return ExitCode.OK


def _run(options: argparse.Namespace) -> None:
    matrix: tuple[Variant, ...] = ()
    if options.scenario:
        matrix = load_scenario(find_scenario(options.scenario, folder=scenarios_folder())).matrix
    path = Path(options.treadstone_config or CONFIG)
    config = load_config(path, required=options.treadstone_config is not None)
    base_url = resolve_base_url(
        option=options.base_url, host=None, environment=os.environ, configured=config.base_url
    )
    _say(f"server {base_url.url} (from {base_url.source})")
    binary = find_binary(
        explicit=options.binary,
        version=options.binary_version or config.binary_version or "latest",
        cache=CACHE,
        installer_url=options.installer_url,
        env=os.environ,
        announce=_say,
    )
    transport = connect_cli(binary, base_url=base_url.url, environment=os.environ, say=_say)
    try:
        check(transport, base_url=base_url.url, matrix=matrix, say=_say)
    finally:
        transport.close()
    _say("ready for a run")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
