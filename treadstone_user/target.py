"""What a run speaks to: a server, if need be one of the run's own, that has passed preflight."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from treadstone_user.access import Accesses, check_key, connect, read_accounts
from treadstone_user.leftovers import tell_backstop, tell_leftovers
from treadstone_user.localserver import LocalServer
from treadstone_user.model import Task
from treadstone_user.preflight import check, survey
from treadstone_user.quota import spread
from treadstone_user.scenario import tasks
from treadstone_user.settings import Settings


def _silent(_line: str) -> None:
    """What accounts have room for concerns no run that makes nothing."""


@dataclass(frozen=True, slots=True)
class Target:
    """A server that has passed preflight. `close` it when the run is over.

    accesses: the accounts of the run.
    tasks: the scenario's, each with its account. foretold: how many of them the accounts' plans will have
        refused, by HTTP status.
    """

    base_url: str
    accesses: Accesses
    server: LocalServer | None
    tasks: tuple[Task, ...]
    foretold: Mapping[str, int]

    def close(self) -> None:
        """End the transports, and the run's own server, if it has one."""
        self.accesses.close()
        if self.server is not None:
            self.server.stop()


def open_target(
    settings: Settings,
    *,
    truth: Path,
    environment: Mapping[str, str],
    say: Callable[[str], None],
) -> Target:
    """Start the run's own server if it is to have one, and run preflight.

    truth: where that server writes its truth log; unused without such a server.
    Raises `TreadstoneError`; then nothing is left running.
    """
    scenario = settings.scenario
    accounts = None if scenario.accounts is None else read_accounts(scenario.accounts)
    with ExitStack() as undo:
        server = None
        if settings.base_url is not None:
            base_url = settings.base_url.url
        else:
            server = LocalServer.start(
                profile=settings.local_profile, truth=truth, environment=environment, say=say
            )
            undo.callback(server.stop)
            base_url = server.base_url
            environment = {**environment, "TREADSTONE_API_KEY": server.api_key}
            say(f"local server at {base_url}, its truth log is {truth}")
        accesses = connect(
            binary=settings.binary,
            warm_cli=settings.warm_cli,
            at_once=scenario.concurrency,
            base_url=base_url,
            environment=environment,
            accounts=accounts,
            say=say,
        )
        undo.callback(accesses.close)
        first = accesses.first
        check(first.transport, base_url=base_url, matrix=scenario.matrix, store=scenario.accounts, say=say)
        if scenario.exec is not None:
            check_key(accesses)
        planned = () if settings.steady else tasks(scenario)
        allowances = survey({one.account: one.http for one in accesses}, say=say if planned else _silent)
        foretold: dict[str, int] = {}
        if allowances:
            found = spread(planned, allowances, auto_stop_interval=scenario.auto_stop_interval)
            planned, foretold = found.tasks, found.by_status()
            for sentence in found.sentences():
                say(sentence)
        if settings.base_url is not None:
            tell_leftovers([access.transport for access in accesses], say)
            if not settings.base_url.on_this_machine and not settings.steady:
                tell_backstop(scenario, say)
        undo.pop_all()
        return Target(base_url, accesses, server, planned, foretold)
