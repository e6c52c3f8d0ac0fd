"""What load tests have on a server: their sandboxes by run, told by the label that is ours."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from gevent.pool import Pool

from treadstone_user.cleanup import Listing, list_all
from treadstone_user.model import LABEL_KEY, Sandbox, run_label_value
from treadstone_user.scenario import Scenario
from treadstone_user.transports.base import CallError, Transport

_RUN_ID = re.compile(r"\d{8}-\d{6}(-\d{1,3})?")
_NAMED = 3
_AT_ONCE = 10


def started_at(run_id: str) -> datetime | None:
    """When a run began, by its id; None where that is no run's id."""
    if not _RUN_ID.fullmatch(run_id):
        return None
    try:
        return datetime.strptime(run_id[:15], "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None


def count_by_run(sandboxes: Iterable[Sandbox]) -> dict[str, int]:
    """How many sandboxes each run has, oldest run first; a label of another form is no run's.

    Those of an asset store are labelled in another form, so that no sweep takes what was prepared.
    """
    prefix = run_label_value("")
    labels = (sandbox.labels.get(LABEL_KEY, "") for sandbox in sandboxes)
    counts = Counter(label.removeprefix(prefix) for label in labels if label.startswith(prefix))
    return {run_id: count for run_id, count in sorted(counts.items()) if started_at(run_id) is not None}


def _list_or_error(transport: Transport) -> Listing | CallError:
    try:
        return list_all(transport)
    except CallError as error:
        return error


def tell_leftovers(transports: Sequence[Transport], say: Callable[[str], None]) -> None:
    """Say which earlier runs have sandboxes on the server, and how to remove them.

    transports: one for each account that the run uses.
    """
    lists = Pool(_AT_ONCE).map(_list_or_error, transports)
    failed = [error for error in lists if isinstance(error, CallError)]
    if failed:
        say(f"whether earlier runs have left something is not known: {failed[0].cause}: {failed[0]}")
        return
    found = (one.sandboxes.values() for one in lists if isinstance(one, Listing))
    counts = count_by_run(sandbox for sandboxes in found for sandbox in sandboxes)
    if counts:
        named = ", ".join(list(counts)[:_NAMED]) + (", ..." if len(counts) > _NAMED else "")
        say(
            f"sandboxes of other runs are there ({sum(counts.values())}, of {named}); "
            "unless these still go on: python -m treadstone_user sweep --all"
        )


def tell_backstop(scenario: Scenario, say: Callable[[str], None]) -> None:
    """Say what the server itself would do about sandboxes that a killed run leaves."""
    if scenario.auto_delete_interval == -1:
        say(
            "auto_delete_interval is -1: the server keeps what a killed run leaves until somebody removes "
            "it. With auto_stop_interval: 60 and auto_delete_interval: 60 in the scenario, it would remove "
            "it by itself after two hours"
        )
    elif scenario.auto_stop_interval == 0:
        say(
            "auto_stop_interval is 0: a sandbox never stops, so auto_delete_interval, which counts from the "
            "stop, removes nothing that a killed run leaves"
        )
