"""Removes what runs left behind: of one run, of all, or of those that are old."""

from __future__ import annotations

import os
import platform
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil

from treadstone_user.access import Accesses
from treadstone_user.cleanup import list_all
from treadstone_user.cleanups import Cleanups
from treadstone_user.eventlog import EventLog, read_events
from treadstone_user.exitcode import ExitCode, worst
from treadstone_user.ledger import Ledger
from treadstone_user.leftovers import count_by_run, started_at
from treadstone_user.model import run_label
from treadstone_user.report import removal, render_cleanup, render_sweep
from treadstone_user.run import RunFolder, read_run
from treadstone_user.spool import gather
from treadstone_user.summary import summarize
from treadstone_user.transports.base import CallError, ConfigError, PreflightError

_AT_ONCE = 5
_SETTLE_SEC = 10.0
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


def read_age(text: str) -> timedelta:
    """An age such as ``90m``, ``2h`` or ``7d``. Raises ValueError where it is none."""
    match = re.fullmatch(r"(\d{1,6})([mhd])", text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not an age such as 90m, 2h or 7d")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def open_run(path: Path) -> Mapping[str, Any]:
    """The run.json of a run that may be swept. Raises `ConfigError` with the reason where it may not."""
    run = read_run(path)
    if path.name != run["run_id"] or not isinstance(run.get("base_url"), str):
        raise ConfigError(f"{path / 'run.json'} belongs to another run: {run['run_id']}")
    if run.get("local_server"):
        raise ConfigError(f"run {path.name} had a local server of its own, and its sandboxes ended with it")
    if still_runs(run):
        raise ConfigError(f"run {path.name} still goes on (process {run['pid']}): end it first")
    _kind(run)
    return run


def still_runs(run: Mapping[str, Any]) -> bool:
    """Whether a run goes on, as far as this machine can tell."""
    pid = run.get("pid")
    if run.get("finished_at") is not None or not isinstance(pid, int) or run.get("host") != platform.node():
        return False
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        began = datetime.fromisoformat(str(run.get("started_at")))
        return process.create_time() <= began.timestamp() + 1  # else the number is another process's by now
    except psutil.AccessDenied:
        return True
    except (psutil.Error, ValueError, OverflowError):
        return False


def sweep_run(
    path: Path, run: Mapping[str, Any], accesses: Accesses, *, say: Callable[[str], None]
) -> ExitCode:
    """Finish a run's clean-up and bring its artifacts up to date. Can be repeated."""
    folder = RunFolder(path, run=run)
    known = list(read_events(folder.events_path)) if folder.events_path.exists() else []
    ledger = Ledger(known)
    log = EventLog(folder.events_path, worker=f"sweep-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}")
    log.subscribe(ledger.add)
    for event in gather(folder.spools, known):
        log.take_over(event)
    try:
        outcome = _remove(folder.run_id, accesses, log, ledger, persist=_kind(run), say=say)
    finally:
        log.close()
    folder.write_run(cleanup=outcome)
    folder.write_summary(summarize(read_events(folder.events_path), folder.run))
    remedy = removal(folder.run_id, folder.path.parent, local=False)
    say(render_cleanup(outcome, label=folder.label, remedy=remedy))
    return ExitCode.OK if outcome["verified"] else ExitCode.LEFT_BEHIND


def _remove(
    run_id: str,
    accesses: Accesses,
    log: EventLog,
    ledger: Ledger,
    *,
    persist: bool | None,
    say: Callable[[str], None],
) -> dict[str, Any]:
    cleanup = Cleanups(
        transports={access.account: access.transport for access in accesses},
        run_id=run_id,
        persist=persist,
        at_once=_AT_ONCE,
        log=log,
        report=lambda step: None,
        ledger=ledger,
        say=say,
        not_before=time.monotonic() + _settling_sec(ledger, say),
    )
    return cleanup.run() | {"unanswered_creates": ledger.unanswered}


def _settling_sec(ledger: Ledger, say: Callable[[str], None]) -> float:
    """For how long a killed run's create may still make a sandbox, on its way through proxies and queues."""
    try:
        last = datetime.fromisoformat(ledger.unanswered_at or "")
    except ValueError:
        return 0.0
    left = _SETTLE_SEC - (datetime.now(UTC) - last).total_seconds()
    if left > 0:
        say(f"{ledger.unanswered} creates without an answer may still make sandboxes: {left:.0f} s for these")
    return min(max(left, 0.0), _SETTLE_SEC)


@dataclass(frozen=True, slots=True)
class Leftover:
    """What one run has on the server.

    folder: where its results lie, None where they are not on this machine.
    """

    run_id: str
    sandboxes: int
    folder: Path | None
    goes_on: bool


def find_leftovers(accesses: Accesses, results: Path, base_url: str) -> list[Leftover]:
    """All runs that have sandboxes on the server, oldest first; only labels that are ours count.

    Raises `PreflightError` where the list cannot be read.
    """
    try:
        there = [one for access in accesses for one in list_all(access.transport).sandboxes.values()]
    except CallError as error:
        raise PreflightError(f"the list of sandboxes cannot be read: {error.cause}: {error}") from error
    counts = count_by_run(there)
    return [_leftover(run_id, count, results, base_url) for run_id, count in counts.items()]


def _leftover(run_id: str, count: int, results: Path, base_url: str) -> Leftover:
    path = results / run_id
    try:
        run = read_run(path)
        goes_on = run["run_id"] == run_id and still_runs(run)  # however its server's address was written
        if not goes_on:
            open_run(path)  # one that cannot be swept by its folder is swept by its label
    except ConfigError:
        return Leftover(run_id, count, None, goes_on=False)
    return Leftover(run_id, count, path if run["base_url"] == base_url else None, goes_on)


def sweep_server(
    accesses: Accesses,
    *,
    base_url: str,
    whose: str,
    results: Path,
    older_than: timedelta | None,
    ask: Callable[[str], bool],
    now: datetime,
    say: Callable[[str], None],
) -> ExitCode:
    """Remove what all runs left on a server, or those that began long ago.

    whose: the accounts that are looked at, for people.
    ask: whether to go on; it is asked where more than one run's sandboxes would be removed, or those of
        a run without results here, which may still go on elsewhere.
    Raises `PreflightError` where the server cannot be asked.
    """
    found = find_leftovers(accesses, results, base_url)
    chosen = [one for one in found if not one.goes_on and _is_older(one, older_than, now)]
    if found:
        say(render_sweep([(one.run_id, one.sandboxes, _note(one, one in chosen)) for one in found]))
    if not chosen:
        say(f"nothing to remove on {base_url}, for {whose}")
        return ExitCode.OK
    total = sum(one.sandboxes for one in chosen)
    certain = len(chosen) == 1 and chosen[0].folder is not None
    if not certain and not ask(f"remove {total} sandboxes of {len(chosen)} runs on {base_url}?"):
        say("nothing was removed")
        return ExitCode.LEFT_BEHIND
    return worst([sweep_leftover(one, accesses, say) for one in chosen])


def stores_of_unfinished(results: Path, base_url: str) -> list[str]:
    """The stores of accounts of the runs here that are not known to have left nothing on a server."""
    found: dict[str, None] = {}
    for path in sorted(results.glob("*/run.json")):
        try:
            run = read_run(path.parent)
        except ConfigError:
            continue
        scenario, cleanup = run.get("scenario"), run.get("cleanup")
        store = scenario.get("accounts") if isinstance(scenario, dict) else None
        is_clean = isinstance(cleanup, dict) and cleanup.get("verified") is True
        if isinstance(store, str) and run["base_url"] == base_url and not is_clean:
            found[store] = None
    return list(found)


def _is_older(leftover: Leftover, than: timedelta | None, now: datetime) -> bool:
    began = started_at(leftover.run_id)
    return than is None or (began is not None and now - began > than)


def _note(leftover: Leftover, chosen: bool) -> str:
    if leftover.goes_on:
        return "still goes on: left alone"
    if not chosen:
        return "too young: left alone"
    return "" if leftover.folder else "no results of it here: it may go on elsewhere"


def sweep_leftover(leftover: Leftover, accesses: Accesses, say: Callable[[str], None]) -> ExitCode:
    """Remove what one run left: by its folder, or where there is none by its label alone."""
    say(f"run {leftover.run_id}:")
    if leftover.folder is not None:
        return sweep_run(leftover.folder, open_run(leftover.folder), accesses, say=say)
    log, ledger = EventLog(Path(os.devnull), worker="sweep"), Ledger()
    log.subscribe(ledger.add)
    try:
        outcome = _remove(leftover.run_id, accesses, log, ledger, persist=None, say=say)
    finally:
        log.close()
    say(render_cleanup(outcome, label=run_label(leftover.run_id), remedy="run the same command again"))
    return ExitCode.OK if outcome["verified"] else ExitCode.LEFT_BEHIND


def _kind(run: Mapping[str, Any]) -> bool | None:
    """The one `persist` of all rows of the run's scenario, None where there are both."""
    try:
        rows: Sequence[Mapping[str, Any]] = run["scenario"]["matrix"]
        kinds = {bool(row["persist"]) for row in rows}
    except (KeyError, TypeError) as error:
        raise ConfigError(f"the run.json of {run['run_id']} holds no scenario") from error
    return kinds.pop() if len(kinds) == 1 else None


def ask_on_terminal(question: str) -> bool:
    """Ask a person. Raises `ConfigError` where none is there."""
    if not sys.stdin.isatty():
        raise ConfigError(f"{question} Nobody is here to answer: say --yes")
    try:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False
