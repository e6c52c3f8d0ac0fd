"""How a run begins: its folder, a server that has passed preflight, run.json, the session."""

from __future__ import annotations

import logging
import os
import platform
from argparse import Namespace
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import locust

from treadstone_user import __version__
from treadstone_user.crew import Crew
from treadstone_user.eventlog import EventLog, utc_now
from treadstone_user.exitcode import ExitCode
from treadstone_user.fillin import Rows
from treadstone_user.load import Load, LoadRules
from treadstone_user.messages import Assignment
from treadstone_user.orders import Orders
from treadstone_user.plan import FixedPlan, Plan, SteadyPlan, TurnPlan
from treadstone_user.relay import MasterRelay
from treadstone_user.report import render_scenario, render_steady
from treadstone_user.run import RunFolder
from treadstone_user.scenario import Scenario
from treadstone_user.sections import Job
from treadstone_user.session import Session
from treadstone_user.settings import Settings
from treadstone_user.steps import Report
from treadstone_user.stock import take_stock
from treadstone_user.target import Target, open_target
from treadstone_user.worker import machine

_log = logging.getLogger("treadstone")
# Locust's logger for tables: plain text, on the console and on the web UI's log page.
_tables = logging.getLogger("locust.stats_logger")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that may start: its folder, and a target that has passed preflight."""

    folder: RunFolder
    target: Target

    def discard(self) -> None:
        """Take it all back."""
        self.target.close()
        self.folder.discard()


def prepare(settings: Settings) -> Prepared:
    """Claim a folder and open the target. Raises `TreadstoneError`; then nothing is left."""
    folder = RunFolder.claim(settings.results_dir)
    try:
        truth = folder.truth_path
        target = open_target(settings, truth=truth, environment=os.environ, say=_log.info)
    except BaseException:
        folder.discard()
        raise
    return Prepared(folder, target)


@dataclass(frozen=True, slots=True)
class Opened:
    """A run that has begun.

    load: who makes its sandboxes in this process; None where workers do.
    crew: the workers, where there are any.
    """

    session: Session
    load: Load | None
    crew: Crew | None


def open_session(
    settings: Settings,
    prepared: Prepared,
    *,
    options: Namespace,
    jobs: frozenset[Job],
    report: Report,
    relay: MasterRelay | None,
) -> Opened:
    """Write run.json, say what will run, and begin.

    jobs: what users do.

    relay: the way to the workers that make the load, None where this process does.
    Raises `TreadstoneError`, OSError; then nothing is left.
    """
    with ExitStack() as undo:
        undo.callback(prepared.discard)
        opened = _open(settings, prepared, options, jobs, report, relay)
        undo.pop_all()
        return opened


def _open(
    settings: Settings,
    prepared: Prepared,
    options: Namespace,
    jobs: frozenset[Job],
    report: Report,
    relay: MasterRelay | None,
) -> Opened:
    scenario, folder, target = settings.scenario, prepared.folder, prepared.target
    local = target.server is not None
    orders = Orders(
        scenario=scenario,
        steady=settings.steady,
        cleanup=settings.cleanup,
        local=local,
        strict=settings.strict,
        jobs=jobs,
    )
    stock = take_stock(target.accesses, scenario.accounts, jobs)
    turns = TurnPlan(_rows_to_use(scenario) if Job.STREAM in jobs else None)
    folder.write_run(**_describe(settings, prepared, orders, options))
    plan: Plan
    if settings.steady:
        outline = render_steady(scenario, users=options.num_users)
        plan = SteadyPlan(scenario.matrix[0], at_once=settings.at_once)
    else:
        outline = render_scenario(scenario, jobs)
        plan = FixedPlan(target.tasks if Job.LIFECYCLE in jobs else ())
    _tables.info("%s\nrun %s, label %s", outline, folder.run_id, folder.label)
    if scenario.cleanup_after_run is not None:
        _log.info("cleanup.after_run has no effect: a run always cleans up, unless --no-cleanup")
    if not settings.cleanup and local:
        _log.warning("--no-cleanup with --local: what is left ends with the local server")
    log = EventLog(folder.events_path, worker="local" if relay is None else "master")
    ask_later = target.accesses.cli is not None and not orders.steady
    load = crew = None
    if relay is None:
        load = Load(
            accesses=target.accesses,
            plan=plan,
            turns=turns,
            stock=stock,
            rules=LoadRules(scenario, folder.label, steady=settings.steady, ask_later=ask_later),
            log=log,
            report=report,
            on_hopeless=lambda reason: session.fail(reason, ExitCode.INCOMPLETE),
            say=_log.info,
        )
    else:
        crew = Crew(
            run_id=folder.run_id,
            plan=plan,
            turns=turns,
            log=log,
            budget=scenario.concurrency,
            assignment=lambda worker: _assignment(worker, settings, prepared, jobs, log),
            spools=folder.spools,
            send=relay.send,
            present=relay.present,
            on_useless=lambda: session.fail("no worker can take part: the run ends", _code(session)),
            say=_log.info,
        )
    hands = load or crew
    assert hands is not None, "one of the two makes the load"
    session = Session(
        folder=folder,
        orders=orders,
        accesses=target.accesses,
        ends_with=_ends_with(plan, turns, jobs, scenario, timed=options.run_time is not None),
        log=log,
        hands=hands,
        ask_later=ask_later,
        report=report,
        say=_log.info,
        show=_tables.info,
        at_end=target.close,
    )
    return Opened(session, load, crew)


def _rows_to_use(scenario: Scenario) -> int | None:
    """How many turns there are, where each row of a file is used once; None for turns without end."""
    data = scenario.stream.data if scenario.stream is not None else None
    return len(Rows.load(data)) if data is not None and data.on_end == "stop" else None


def _ends_with(
    plan: Plan, turns: Plan, jobs: frozenset[Job], scenario: Scenario, *, timed: bool
) -> list[Plan]:
    """Whose end is the run's. Beside other work, lifecycles do not end a run that has a time (``-t``)."""
    only_lifecycles = jobs == {Job.LIFECYCLE}
    if timed and not only_lifecycles:
        return []
    ends = [plan] if Job.LIFECYCLE in jobs else []
    if Job.STREAM in jobs and Job.QUERY not in jobs and _rows_to_use(scenario) is not None:
        ends.append(turns)
    return ends


def _code(session: Session) -> ExitCode:
    """Of a run without workers: a mistake of the user's, unless some of it was done."""
    return ExitCode.INCOMPLETE if session.has_begun else ExitCode.MISTAKE


def _assignment(
    worker: str, settings: Settings, prepared: Prepared, jobs: frozenset[Job], log: EventLog
) -> Assignment:
    target = prepared.target
    cli = target.accesses.cli
    return Assignment(
        run_id=prepared.folder.run_id,
        worker=worker,
        t_ms=log.t_ms,
        scenario=settings.scenario.snapshot(),
        steady=settings.steady,
        jobs=[str(job) for job in jobs],
        local=target.server is not None,
        base_url=target.base_url,
        transport=target.accesses.first.transport.name,
        machine=machine(),
        warm_cli=cli.warm if cli else None,
        cli_startup_sec=cli.startup_sec if cli else None,
    )


def _describe(settings: Settings, prepared: Prepared, orders: Orders, options: Namespace) -> dict[str, Any]:
    """What run.json says when a run starts."""
    folder, target, binary = prepared.folder, prepared.target, settings.binary
    cli = target.accesses.cli
    return {
        "run_id": folder.run_id,
        "run_label": folder.label,
        "scenario_file": settings.scenario_file,
        "scenario": settings.scenario.snapshot(),
        "planned": orders.planned,
        "jobs": sorted(orders.jobs),
        "accounts": len(target.accesses),
        "foretold": dict(target.foretold),
        "base_url": target.base_url,
        "local_server": orders.local,
        "transport": target.accesses.first.transport.name,
        "treadstone_version": binary.version if binary else None,
        "treadstone_binary": str(binary.path) if binary else None,
        "warm_cli": cli.warm if cli else None,
        "cli_startup_ms": round(cli.startup_sec * 1000) if cli else None,
        "locust_version": locust.__version__,
        "plugin_version": __version__,
        "machine": f"{platform.machine()}-{platform.system().lower()}",
        "host": platform.node(),
        "pid": os.getpid(),
        "options": {
            "users": options.num_users,
            "spawn_rate": options.spawn_rate,
            "run_time_sec": options.run_time,
            "local_profile": settings.local_profile,
            "cleanup": settings.cleanup,
        },
        "started_at": utc_now(),
        "finished_at": None,
    }
