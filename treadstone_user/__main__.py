"""Commands beside Locust: ``sweep`` removes what runs left behind, ``options`` lists our options."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from locust.argument_parser import LocustArgumentParser

from treadstone_user.access import Accesses, connect, read_accounts
from treadstone_user.binary import INSTALLER_URL, find_binary
from treadstone_user.configfile import load_config
from treadstone_user.exitcode import ExitCode, worst
from treadstone_user.leftovers import started_at
from treadstone_user.options import add_options
from treadstone_user.preflight import check
from treadstone_user.run import read_run
from treadstone_user.settings import CACHE, CONFIG, resolve_base_url
from treadstone_user.sweep import (
    ask_on_terminal,
    find_leftovers,
    open_run,
    read_age,
    stores_of_unfinished,
    sweep_leftover,
    sweep_run,
    sweep_server,
)
from treadstone_user.transports.base import ConfigError, PreflightError, TreadstoneError
from treadstone_user.transports.http import HttpTransport


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    options = _parser().parse_args(arguments)
    if options.command == "options":
        print_options()
        return ExitCode.OK
    try:
        return sweep(options)
    except PreflightError as error:  # whether something is left is not known
        sys.stderr.write("".join(f"error: {line}\n" for line in str(error).splitlines()))
        return ExitCode.LEFT_BEHIND
    except TreadstoneError as error:
        sys.stderr.write("".join(f"error: {line}\n" for line in str(error).splitlines()))
        return ExitCode.MISTAKE
    except OSError as error:
        sys.stderr.write(f"error: {error}\n")
        return ExitCode.LEFT_BEHIND
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; run the same command again to go on\n")
        return ExitCode.LEFT_BEHIND


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m treadstone_user", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("options", help="print the options that the plugin adds to Locust's own")
    sweep_parser = commands.add_parser(
        "sweep",
        help="remove the sandboxes that runs left behind",
        description="Removes sandboxes that carry a run's label, and nothing else. Can be repeated.",
    )
    add = sweep_parser.add_argument
    add("run_id", metavar="RUN_ID", nargs="?", help="one run: the name of its folder in the results")
    add("--all", action="store_true", help="every run that has sandboxes on the server")
    add("--older-than", metavar="AGE", help="every run that began longer ago, such as 90m, 2h or 7d")
    add("--yes", action="store_true", help="do not ask before more than one run's sandboxes are removed")
    add("--results-dir", type=Path, default=Path("results"), metavar="DIR")
    add("--base-url", metavar="URL", help="the server, for --all; or for a run whose folder is lost")
    add("--accounts", type=Path, metavar="FILE", help="a store of accounts (default: the run's own, if any)")
    add("--transport", choices=("cli", "http"), help="default: what the run itself used, else cli")
    add("--binary", metavar="PATH", default=os.environ.get("TREADSTONE_BINARY"))
    return parser


def print_options() -> None:
    """Print the plugin's options: `locust --help` speaks before it has read a locustfile."""
    parser = LocustArgumentParser(prog="locust", add_help=False, add_config_file_help=False)
    add_options(parser)
    parser.print_help()


def sweep(options: argparse.Namespace) -> ExitCode:
    """Remove what one run or many left. Raises `TreadstoneError`; then nothing is written."""
    many = options.all or options.older_than is not None
    if bool(options.run_id) == many:
        raise ConfigError("say which: a RUN_ID, or --all, or --older-than AGE")
    if not many:
        path = options.results_dir / options.run_id
        if not (path / "run.json").is_file() or options.base_url:
            return _sweep_by_label(options, path)
        try:
            read_run(path)
        except ConfigError as error:
            hint = f"its label is enough: sweep {options.run_id} --base-url URL"
            raise ConfigError(f"{error}\n{hint}") from error
        run = open_run(path)
        accesses = _connect(
            options, run["base_url"], options.transport or run.get("transport"), _accounts_of(run, options)
        )
        try:
            return sweep_run(path, run, accesses, say=_say)
        finally:
            accesses.close()
    try:
        age = read_age(options.older_than) if options.older_than is not None else None
    except ValueError as error:
        raise ConfigError(f"--older-than: {error}") from None
    config = load_config(Path(CONFIG), required=False)
    base_url = resolve_base_url(
        option=options.base_url or os.environ.get("TREADSTONE_BASE_URL"),
        host=None,
        environment=os.environ,
        configured=config.base_url,
    )
    stores: list[str | None] = [str(options.accounts)]
    if options.accounts is None:
        stores = [None, *stores_of_unfinished(options.results_dir, base_url.url)]
    codes = []
    for store in stores:
        try:
            accesses = _connect(options, base_url.url, options.transport, store)
        except (ConfigError, PreflightError) as error:
            if len(stores) == 1:
                raise
            _say(f"{_whose(store)}: not looked at: {error}")
            codes.append(ExitCode.LEFT_BEHIND)
        else:
            codes.append(_sweep_accounts(accesses, options, base_url.url, _whose(store), age))
    return worst(codes)


def _sweep_accounts(
    accesses: Accesses, options: argparse.Namespace, base_url: str, whose: str, age: timedelta | None
) -> ExitCode:
    try:
        return sweep_server(
            accesses,
            base_url=base_url,
            whose=whose,
            results=options.results_dir,
            older_than=age,
            ask=(lambda question: True) if options.yes else ask_on_terminal,
            now=datetime.now(UTC),
            say=_say,
        )
    finally:
        accesses.close()


def _whose(store: Path | str | None) -> str:
    return "the account of the environment" if store is None else f"the accounts of {store}"


def _accounts_of(run: Mapping[str, Any], options: argparse.Namespace) -> str | None:
    """The store of a run's accounts, as the command line or the run itself names it."""
    named = options.accounts or (run.get("scenario") or {}).get("accounts")
    if named is not None and not Path(named).exists():
        raise ConfigError(f"the run's accounts are not in {named} any more: say --accounts FILE")
    return None if named is None else str(named)


def _sweep_by_label(options: argparse.Namespace, path: Path) -> ExitCode:
    """A run whose folder is lost, or damaged: its label tells its sandboxes."""
    if started_at(options.run_id) is None:
        raise ConfigError(f"{options.run_id} is no run's id, such as 20261201-004226")
    if not options.base_url:
        raise ConfigError(
            f"no run.json in {path}. With the server's address its label is enough: "
            f"sweep {options.run_id} --base-url URL"
        )
    base_url = resolve_base_url(option=options.base_url, host=None, environment={}, configured=None).url
    try:
        accounts = _accounts_of(read_run(path), options)
    except ConfigError:
        accounts = options.accounts and str(options.accounts)
    accesses = _connect(options, base_url, options.transport, accounts)
    try:
        found = find_leftovers(accesses, options.results_dir, base_url)
        one = next((one for one in found if one.run_id == options.run_id), None)
        if one is None:
            _say(f"nothing of run {options.run_id} is on {base_url}, for {_whose(accounts)}")
            return ExitCode.OK
        if one.goes_on:
            raise ConfigError(f"run {options.run_id} still goes on here: end it first")
        return sweep_leftover(one, accesses, _say)
    finally:
        accesses.close()


def _connect(
    options: argparse.Namespace, base_url: str, transport: str | None, accounts: Path | str | None
) -> Accesses:
    """Ways to the server that have been tried out.

    accounts: a store; None for the environment's credential.
    """
    store = None if accounts is None else read_accounts(str(accounts))
    over_http = transport == HttpTransport.name and options.binary is None
    binary = None
    if not over_http:
        binary = find_binary(
            explicit=options.binary,
            version="latest",
            cache=CACHE,
            installer_url=INSTALLER_URL,
            env=os.environ,
            announce=_say,
        )
    found = connect(
        binary=binary,
        warm_cli=None,
        at_once=5,
        base_url=base_url,
        environment=os.environ,
        accounts=store,
        say=_say,
    )
    try:
        check(
            found.first.transport,
            base_url=base_url,
            matrix=(),
            store=store.path if store is not None else None,
            say=lambda line: None,
        )
    except BaseException:
        found.close()
        raise
    return found


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
