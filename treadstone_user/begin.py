"""How a run begins: its folder, a server that has passed preflight, run.json, the session."""

from __future__ import annotations

import logging
import os
import platform
from argparse import Namespace
from dataclasses import dataclass
from typing import Any

import locust

from treadstone_user import __version__
from treadstone_user.eventlog import utc_now
from treadstone_user.plan import FixedPlan, SteadyPlan
from treadstone_user.report import render_scenario, render_steady
from treadstone_user.run import RunFolder
from treadstone_user.scenario import tasks
from treadstone_user.session import Orders, Session
from treadstone_user.settings import Settings
from treadstone_user.steps import Report
from treadstone_user.target import Target, open_target

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


def open_session(settings: Settings, prepared: Prepared, *, options: Namespace, report: Report) -> Session:
    """Write run.json, say what will run, and begin. Raises `TreadstoneError`, OSError; nothing is left."""
    try:
        return _open_session(settings, prepared, options, report)
    except BaseException:
        prepared.discard()
        raise


def _open_session(settings: Settings, prepared: Prepared, options: Namespace, report: Report) -> Session:
    scenario, folder, target = settings.scenario, prepared.folder, prepared.target
    local = target.server is not None
    orders = Orders(scenario=scenario, steady=settings.steady, cleanup=settings.cleanup, local=local)
    folder.write_run(**_describe(settings, prepared, orders, options))
    if settings.steady:
        outline = render_steady(scenario, users=options.num_users)
        plan: FixedPlan | SteadyPlan = SteadyPlan(scenario.matrix[0], at_once=settings.at_once)
    else:
        outline = render_scenario(scenario)
        plan = FixedPlan(tasks(scenario))
    _tables.info("%s\nrun %s, label %s", outline, folder.run_id, folder.label)
    if scenario.cleanup_after_run is not None:
        _log.info("cleanup.after_run has no effect: a run always cleans up, unless --no-cleanup")
    if not settings.cleanup and local:
        _log.warning("--no-cleanup with --local: what is left ends with the local server")
    return Session(
        folder=folder,
        orders=orders,
        transport=target.transport,
        plan=plan,
        report=report,
        say=_log.info,
        show=_tables.info,
        cli=target.cli,
        at_end=target.close,
    )


def _describe(settings: Settings, prepared: Prepared, orders: Orders, options: Namespace) -> dict[str, Any]:
    """What run.json says when a run starts."""
    folder, target, binary = prepared.folder, prepared.target, settings.binary
    cli = target.cli
    return {
        "run_id": folder.run_id,
        "run_label": folder.label,
        "scenario_file": settings.scenario_file,
        "scenario": settings.scenario.snapshot(),
        "planned": orders.planned,
        "base_url": target.base_url,
        "local_server": orders.local,
        "transport": target.transport.name,
        "treadstone_version": binary.version if binary else None,
        "treadstone_binary": str(binary.path) if binary else None,
        "warm_cli": cli.warm if cli else None,
        "cli_startup_ms": round(cli.startup_sec * 1000) if cli else None,
        "locust_version": locust.__version__,
        "plugin_version": __version__,
        "machine": f"{platform.machine()}-{platform.system().lower()}",
        "host": platform.node(),
        "pid": os.getpid(),
        "workers": 1,
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
