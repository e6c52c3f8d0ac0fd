"""What a run speaks to: a server, if need be one of the run's own, and a way to reach it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from treadstone_user.binary import Binary
from treadstone_user.localserver import LocalServer
from treadstone_user.preflight import check, measure_startup
from treadstone_user.settings import Settings
from treadstone_user.transports.base import Transport
from treadstone_user.transports.cli import CliTransport
from treadstone_user.transports.places import Places


@dataclass(frozen=True, slots=True)
class Target:
    """A server that has passed preflight. `close` it when the run is over."""

    base_url: str
    transport: Transport
    startup_sec: float
    """What a CLI process takes by itself, as preflight measured it."""
    server: LocalServer | None

    def close(self) -> None:
        """Stop the run's own server, if it has one."""
        if self.server is not None:
            self.server.stop()


def connect(
    binary: Binary,
    *,
    base_url: str,
    environment: Mapping[str, str],
    at_once: int = 5,
    say: Callable[[str], None],
) -> CliTransport:
    """A CLI transport with places for `at_once` calls; measures the CLI's start-up first."""
    cores, environment = _cores(), _spare_loopback(environment)
    startup_sec = measure_startup(binary.path, environment, at_once=cores)
    say(f"treadstone {binary.version} ({binary.source}), starts in {startup_sec:.2f} s")
    return CliTransport(
        binary=binary.path,
        base_url=base_url,
        environment=environment,
        places=Places(in_flight=at_once, starting=cores, startup_sec=startup_sec),
    )


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
    server = None
    scenario = settings.scenario
    try:
        if settings.base_url is not None:
            base_url = settings.base_url.url
        else:
            server = LocalServer.start(
                profile=settings.local_profile, truth=truth, environment=environment, say=say
            )
            base_url = server.base_url
            environment = {**environment, "TREADSTONE_API_KEY": server.api_key}
            say(f"local server at {base_url}, its truth log is {truth}")
        transport = connect(
            settings.binary,
            base_url=base_url,
            environment=environment,
            at_once=scenario.concurrency,
            say=say,
        )
        check(transport, base_url=base_url, matrix=scenario.matrix, say=say)
        return Target(base_url, transport, transport.startup_sec, server)
    except BaseException:
        if server is not None:
            server.stop()
        raise


def _spare_loopback(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with this machine itself exempt from any proxy."""
    names = ("NO_PROXY", "no_proxy")
    exempt = [environment[name] for name in names if environment.get(name)][:1]
    return {**environment, **dict.fromkeys(names, ",".join([*exempt, "127.0.0.1", "localhost", "::1"]))}


def _cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
