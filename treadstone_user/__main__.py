"""Commands beside Locust: ``sweep RUN_ID`` removes what a run left, ``options`` lists our options."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from locust.argument_parser import LocustArgumentParser

from treadstone_user.binary import INSTALLER_URL, find_binary
from treadstone_user.cleanup import Cleanup
from treadstone_user.eventlog import EventLog, read_events
from treadstone_user.exitcode import ExitCode
from treadstone_user.ledger import Ledger
from treadstone_user.options import add_options
from treadstone_user.preflight import check
from treadstone_user.report import removal, render_cleanup
from treadstone_user.run import RunFolder, read_run
from treadstone_user.settings import CACHE
from treadstone_user.summary import summarize
from treadstone_user.target import connect_cli
from treadstone_user.transports.base import ConfigError, Transport, TreadstoneError
from treadstone_user.transports.credentials import find_credential
from treadstone_user.transports.http import HttpTransport


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m treadstone_user", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    sweep_parser = commands.add_parser("sweep", help="remove the sandboxes that a run left behind")
    sweep_parser.add_argument("run_id", metavar="RUN_ID", help="the name of the run's folder")
    sweep_parser.add_argument("--results-dir", type=Path, default=Path("results"), metavar="DIR")
    sweep_parser.add_argument("--binary", metavar="PATH", default=os.environ.get("TREADSTONE_BINARY"))
    commands.add_parser("options", help="print the options that the plugin adds to Locust's own")
    options = parser.parse_args(arguments)
    if options.command == "options":
        print_options()
        return ExitCode.OK
    try:
        return sweep(options.results_dir / options.run_id, binary=options.binary)
    except TreadstoneError as error:
        sys.stderr.write(f"error: {error}\n")
        return ExitCode.MISTAKE
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; run the same command again to go on\n")
        return ExitCode.LEFT_BEHIND


def print_options() -> None:
    """Print the plugin's options: `locust --help` speaks before it has read a locustfile."""
    parser = LocustArgumentParser(prog="locust", add_help=False, add_config_file_help=False)
    add_options(parser)
    parser.print_help()


def sweep(path: Path, *, binary: str | None) -> int:
    """Finish a run's clean-up, and bring its artifacts up to date. Can be repeated.

    Raises `TreadstoneError` where there is nothing to be done or no server to do it; then
    nothing is written.
    """
    run = read_run(path)
    persist, base_url = _kind(run), run.get("base_url")
    if path.name != run["run_id"] or not isinstance(base_url, str):
        raise ConfigError(f"{path / 'run.json'} belongs to another run: {run['run_id']}")
    if run.get("local_server"):
        raise ConfigError(f"run {path.name} had a local server of its own, and its sandboxes ended with it")
    if run.get("finished_at") is None and _still_runs(run):
        raise ConfigError(f"run {path.name} still goes on (process {run['pid']}): end it first")
    transport = _transport(run, base_url, binary)
    try:
        check(transport, base_url=base_url, matrix=(), say=lambda line: None)
        return _sweep(RunFolder(path, run=run), transport, persist)
    finally:
        transport.close()


def _sweep(folder: RunFolder, transport: Transport, persist: bool | None) -> int:
    log, ledger = EventLog(folder.events_path, worker="sweep"), Ledger()
    for event in read_events(folder.events_path):
        ledger.add(event)
    cleanup = Cleanup(
        transport=transport,
        run_id=folder.run_id,
        persist=persist,
        at_once=5,
        log=log,
        report=lambda step: None,
        about=ledger.about,
        expected=ledger.expected,
        say=print,
    )
    outcome = cleanup.run().describe()
    log.close()
    folder.write_run(cleanup=outcome)
    folder.write_summary(summarize(read_events(folder.events_path), folder.run))
    remedy = removal(folder.run_id, folder.path.parent, local=False)
    print(render_cleanup(outcome, label=folder.label, remedy=remedy))
    return ExitCode.OK if outcome["verified"] else ExitCode.LEFT_BEHIND


def _transport(run: Mapping[str, Any], base_url: str, binary: str | None) -> Transport:
    """What the run itself used: HTTP needs no CLI."""
    if run.get("transport") == HttpTransport.name and binary is None:
        credential = find_credential(os.environ, base_url)
        return HttpTransport(base_url=base_url, credential=credential, at_once=5)
    found = find_binary(
        explicit=binary,
        version="latest",
        cache=CACHE,
        installer_url=INSTALLER_URL,
        env=os.environ,
        announce=print,
    )
    return connect_cli(found, base_url=base_url, environment=os.environ, say=print)


def _still_runs(run: Mapping[str, Any]) -> bool:
    """Whether the process of a run is still there, as far as this machine can tell."""
    pid = run.get("pid")
    if not isinstance(pid, int) or run.get("host") != platform.node():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _kind(run: Mapping[str, Any]) -> bool | None:
    """The one `persist` of all rows of the run's scenario, None where there are both."""
    try:
        kinds = {bool(row["persist"]) for row in run["scenario"]["matrix"]}
    except (KeyError, TypeError) as error:
        raise ConfigError(f"the run.json of {run['run_id']} holds no scenario") from error
    return kinds.pop() if len(kinds) == 1 else None


if __name__ == "__main__":
    sys.exit(main())
