"""What a run speaks to: a server, if need be one of the run's own, and a way to reach it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from treadstone_user.binary import Binary
from treadstone_user.clientwatch import usable_cores
from treadstone_user.leftovers import tell_backstop, tell_leftovers
from treadstone_user.localserver import LocalServer
from treadstone_user.preflight import check, measure_startup, nowhere
from treadstone_user.settings import Settings, read_base_url
from treadstone_user.transports.base import Transport
from treadstone_user.transports.cli import CliTransport
from treadstone_user.transports.credentials import find_credential
from treadstone_user.transports.http import HttpTransport
from treadstone_user.transports.places import Places
from treadstone_user.transports.warm import warm_or_cold


@dataclass(frozen=True, slots=True)
class Target:
    """A server that has passed preflight. `close` it when the run is over."""

    base_url: str
    transport: Transport
    server: LocalServer | None
    cli: CliTransport | None
    """The transport, where it is the CLI."""

    def close(self) -> None:
        """End the transport, and the run's own server, if it has one."""
        self.transport.close()
        if self.server is not None:
            self.server.stop()


def connect_cli(
    binary: Binary,
    *,
    base_url: str,
    environment: Mapping[str, str],
    warm: bool | None = None,
    at_once: int = 5,
    startup_sec: float | None = None,
    say: Callable[[str], None],
) -> CliTransport:
    """A CLI transport with places for `at_once` calls.

    startup_sec: what starting the CLI takes on this machine; None has it measured first.
    """
    cores, environment = usable_cores(), _without_detour(environment, base_url)
    with nowhere() as refusing:
        launcher = warm_or_cold(binary.path, environment, wanted=warm, nowhere=refusing, say=say)
        try:
            if startup_sec is None:
                # In a run, a poll competes with as many creates as there are cores.
                startup_sec = measure_startup(launcher, base_url=refusing, at_once=cores + 1)
        except BaseException:
            launcher.close()
            raise
    kept = "kept warm, " if launcher.warm else ""
    say(f"treadstone {binary.version} ({binary.source}), {kept}starts in {startup_sec:.2f} s")
    return CliTransport(
        launcher=launcher,
        base_url=base_url,
        places=Places(in_flight=at_once, starting=cores, startup_sec=startup_sec),
    )


def connect(
    *,
    binary: Binary | None,
    warm_cli: bool | None,
    at_once: int,
    base_url: str,
    environment: Mapping[str, str],
    startup_sec: float | None = None,
    say: Callable[[str], None],
) -> Transport:
    """A way to reach a server: by this CLI, or where that is None over HTTP."""
    if binary is None:
        credential = find_credential(environment, base_url)
        proxies = sorted(name for name in environment if name.lower() in ("http_proxy", "https_proxy"))
        if proxies and not read_base_url(base_url, "the server").on_this_machine:
            say(f"--transport http goes straight to the server: {', '.join(proxies)} is not heard")
        return HttpTransport(base_url=base_url, credential=credential, at_once=at_once)
    return connect_cli(
        binary,
        base_url=base_url,
        environment=environment,
        warm=warm_cli,
        at_once=at_once,
        startup_sec=startup_sec,
        say=say,
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
        transport = connect(
            binary=settings.binary,
            warm_cli=settings.warm_cli,
            at_once=settings.scenario.concurrency,
            base_url=base_url,
            environment=environment,
            say=say,
        )
        undo.callback(transport.close)
        check(transport, base_url=base_url, matrix=settings.scenario.matrix, say=say)
        if settings.base_url is not None:
            tell_leftovers(transport, say)
            if not settings.base_url.on_this_machine and not settings.steady:
                tell_backstop(settings.scenario, say)
        undo.pop_all()
        return Target(base_url, transport, server, transport if isinstance(transport, CliTransport) else None)


def _without_detour(environment: Mapping[str, str], base_url: str) -> dict[str, str]:
    """The environment with this machine exempt from any proxy; no proxy at all for a server on it."""
    if read_base_url(base_url, "the server").on_this_machine:
        return {name: value for name, value in environment.items() if not name.lower().endswith("_proxy")}
    names = ("NO_PROXY", "no_proxy")
    exempt = [environment[name] for name in names if environment.get(name)][:1]
    return {**environment, **dict.fromkeys(names, ",".join([*exempt, "127.0.0.1", "localhost", "::1"]))}
