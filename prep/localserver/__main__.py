"""Run the local server: `python -m prep.localserver --port 0 --profile "ready=fixed(2) error=5%"`."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import gevent
from gevent.event import Event
from gevent.pywsgi import WSGIServer
from gevent.socket import wait_read

from prep.localserver import profile as profiles
from prep.localserver.accounts import Account, Accounts
from prep.localserver.app import create_app
from prep.localserver.faults import Door, Faults, Outage, handler_for
from prep.localserver.plans import Plans
from prep.localserver.profile import Profile, ProfileError
from prep.localserver.streamlog import StreamLog
from prep.localserver.truth import JsonLines, TruthLog
from prep.localserver.world import World

HOST = "127.0.0.1"
KEY_VARIABLE = "LOCALSERVER_API_KEY"
SEEDED_EMAIL = "local@example.com"
USAGE_ERROR = 2
_BACKLOG = 1024
_GRACE_SECONDS = 0.2


class StartError(Exception):
    """The server cannot start as it was told to; each problem is one line for the person who typed it."""

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)
        self.problems = problems


def main() -> int:
    """Run until told to end; return the exit code."""
    options = _parser().parse_args()
    try:
        serve(options, os.environ)
    except StartError as error:
        for problem in error.problems:
            print(f"localserver: {problem}", file=sys.stderr)
        return USAGE_ERROR
    return 0


def serve(options: argparse.Namespace, environment: Mapping[str, str]) -> None:
    """Serve until a signal, or the parent's end, and finish the truth log.

    Raises:
        StartError: if the server cannot start as it was told to.
    """
    profile = _profile(options.profile)
    clock = steady_clock(ahead=profile.clock)
    accounts = Accounts(clock, cap=profile.max_users)
    truth = TruthLog(_log(options.truth))
    plans = Plans(clock, enforced=profile.plans is not None, credit=profile.credit)
    world = World(profile, clock=clock, plans=plans, on_gone=truth.gone)
    if account := _seed(accounts, profile, environment.get(KEY_VARIABLE)):
        world.add_foreign(account)
        if profile.plans is not None:
            plans.begin(account.id, profile.plans)
    wake, ending = Event(), Event()
    faults, connections = Faults(profile), set[socket.socket]()
    handler = handler_for(faults, connections)
    door = Door(
        lambda port: WSGIServer(
            (HOST, port), app, backlog=_BACKLOG, log=None, error_log=None, handler_class=handler
        )
    )
    on_create = Outage(profile.down, door, connections)
    on_delete = Outage(profile.down_delete, door, connections)

    def deleted() -> None:
        wake.set()
        on_delete.trigger()

    requests_log = _log(options.requests)
    streams = StreamLog(requests_log, clock)
    app = create_app(
        accounts=accounts,
        world=world,
        plans=plans,
        profile=profile,
        requests_log=requests_log,
        streams=streams,
        clock=clock,
        faults=faults,
        on_create=on_create.trigger,
        on_delete=deleted,
    )
    _listen(door, options.port)
    gevent.spawn(_keep_up, world, wake)
    if options.exit_with_parent:
        gevent.spawn(_end_with_parent, ending.set)
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        gevent.signal_handler(signal_number, ending.set)
    print(f"listening on http://{HOST}:{door.port}", flush=True)
    if KEY_VARIABLE not in environment:
        print(_first_steps(f"http://{HOST}:{door.port}"), file=sys.stderr, flush=True)
    ending.wait()
    door.stop(_GRACE_SECONDS)
    streams.finish()
    truth.finish(world.living(), clock())


def steady_clock(*, ahead: float) -> Callable[[], float]:
    """Make a clock in Unix seconds that never goes back, whatever is done to the machine's.

    It is `ahead` seconds ahead of the machine's.
    """
    offset = time.time() - time.monotonic() + ahead
    return lambda: offset + time.monotonic()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m prep.localserver",
        description="A local stand-in for the Treadstone control plane, on 127.0.0.1 only.",
        epilog=profiles.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--port", type=_port, default=0, help="port to listen on (default: any that is free)")
    parser.add_argument("--profile", default="", metavar="CLAUSES", help="how the server behaves, see below")
    parser.add_argument("--truth", type=Path, metavar="FILE", help="write what became of each sandbox")
    parser.add_argument("--requests", type=Path, metavar="FILE", help="write a line for each request")
    parser.add_argument("--exit-with-parent", action="store_true", help="end when standard input ends")
    return parser


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"'{text}' is not a port, 0 to 65535")
    return int(text)


def _profile(text: str) -> Profile:
    try:
        return Profile.parse(text)
    except ProfileError as error:
        raise StartError(*(f"profile: {problem}" for problem in error.problems)) from error


def _log(path: Path | None) -> JsonLines:
    try:
        return JsonLines(path)
    except OSError as error:
        raise StartError(f"cannot write {path}: {error.strerror}") from error


def _seed(accounts: Accounts, profile: Profile, secret: str | None) -> Account | None:
    if secret is None:
        if profile.foreign:
            raise StartError(f"foreign={profile.foreign} needs an owner: set {KEY_VARIABLE}=sk-...")
        return None
    if profile.max_users == 0:
        raise StartError(f"max_users=0 leaves no room for the account of {KEY_VARIABLE}")
    if not secret.startswith("sk-") or not secret.isascii() or not secret.isprintable():
        raise StartError(f"{KEY_VARIABLE} must begin with sk- and be plain text")
    # Its password is the key: whoever may use the account has that.
    account = accounts.register(SEEDED_EMAIL, secret)
    accounts.add_key(account, "local", secret=secret)
    return account


def _listen(door: Door, port: int) -> None:
    try:
        door.open(port)
    except OSError as error:
        raise StartError(f"cannot listen on {HOST}:{port}: {os.strerror(error.errno or 0)}") from error


def _keep_up(world: World, wake: Event) -> None:
    """Let what has come due happen also while nobody asks, so that the truth log is never behind."""
    while True:
        wake.clear()
        now = world.advance()
        change = world.next_change()
        wake.wait(timeout=None if change is None else max(change - now, 0.001))


def _end_with_parent(end: Callable[[], None]) -> None:
    stdin = sys.stdin.fileno()
    while True:
        wait_read(stdin)
        if not os.read(stdin, 4096):
            end()
            return


def _first_steps(base_url: str) -> str:
    return (
        f"No {KEY_VARIABLE} in the environment: the first account that registers is the admin.\n"
        f"  treadstone --base-url {base_url} auth register --email you@example.com --password SECRET\n"
        f"  treadstone --base-url {base_url} auth login --email you@example.com --password SECRET"
    )


if __name__ == "__main__":
    sys.exit(main())
