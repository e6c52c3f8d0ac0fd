"""The CLI transport: every call is a process of the real `treadstone` CLI."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

from treadstone_user.model import Sandbox, SandboxPage, Template
from treadstone_user.transports import wire
from treadstone_user.transports.base import (
    MAX_PAGE,
    AuthError,
    BadOutput,
    BeforeSend,
    CallError,
    ConnectError,
    CreateSpec,
    Reply,
    RequestTimeout,
    Timing,
    UsageError,
    api_error,
    redact,
)
from treadstone_user.transports.launch import Finished, Launcher
from treadstone_user.transports.places import Places

CALL_TIMEOUT_SEC = 60.0
"""The CLI gives up on a silent server after 30 s; a call of twice that hangs."""

_SAID_LIMIT = 300
_API_ERROR = re.compile(r"Error \((\d{3})\): (.*)", re.DOTALL)
_BROKEN_CONNECTION = re.compile(r"Error: (?:Read|Write|Close|RemoteProtocol|LocalProtocol|Proxy)Error — ")


def _said(finished: Finished) -> str:
    """What the CLI said, short enough for a report and without anything like a key."""
    text = (finished.stderr.strip() or finished.stdout.strip() or "nothing")[:_SAID_LIMIT]
    return f"exit code {finished.exit_code}, said: {redact(text)}"


def read_failure(finished: Finished) -> CallError:
    """The error that a non-zero exit of treadstone-cli 0.9 means."""
    stderr = finished.stderr.strip()
    if (match := _API_ERROR.match(stderr)) and int(match[1]) >= 400:
        return api_error(int(match[1]), redact(match[2][:_SAID_LIMIT]))
    if stderr.startswith("Error: Connection refused."):  # so it says of every failure to connect
        return ConnectError(redact(stderr.rpartition("Detail: ")[2][:_SAID_LIMIT]))
    if stderr.startswith("Error: Request timed out."):
        return RequestTimeout("the CLI waited 30 s for an answer")
    if stderr.startswith("Error: No authentication configured."):
        return AuthError("no API key and no saved session", status=None)
    if _BROKEN_CONNECTION.match(stderr):
        return ConnectError(_said(finished))
    if finished.exit_code == 2 or stderr.startswith("Error: Invalid label format"):
        return UsageError(_said(finished))
    return BadOutput(_said(finished))


def _read_json(finished: Finished) -> Any:
    try:
        return json.loads(finished.stdout)
    except ValueError as error:
        raise BadOutput(f"not JSON: {_said(finished)}") from error


def _read_deleted(finished: Finished) -> None:
    # The CLI answers a delete with a sentence, even with --json.
    if "deleted" not in finished.stdout:
        raise BadOutput(_said(finished))


def _send_at_once(_queued: float) -> None:
    """A call that nobody has to hear of before it is sent."""


class CliTransport:
    """Calls through the `treadstone` binary; the credential goes by environment, never by argv.

    launcher: starts the processes; `HOME` and `TREADSTONE_API_KEY` in its environment decide
        about the credential, by the CLI's own rules.
    places: shared by all calls. Polls are urgent: a late poll makes ready times imprecise.
    """

    name = "cli"

    def __init__(
        self,
        *,
        launcher: Launcher,
        base_url: str,
        places: Places,
        timeout_sec: float = CALL_TIMEOUT_SEC,
    ) -> None:
        self._launcher = launcher
        self._counts_on_warmth = launcher.warm
        self._first = ["--json", "--base-url", base_url]
        self.places = places
        self._timeout_sec = timeout_sec

    def with_key(self, key: str) -> CliTransport:
        """The same for another account, with the same places: closing either closes both."""
        return CliTransport(
            launcher=self._launcher.with_key(key),
            base_url=self._first[-1],
            places=self.places,
            timeout_sec=self._timeout_sec,
        )

    @property
    def warm(self) -> bool:
        """Whether calls skip the CLI's start-up."""
        return self._launcher.warm

    @property
    def startup_sec(self) -> float:
        """How long a call counts as starting up, in seconds."""
        return self.places.startup_sec

    @property
    def start_blocked_sec(self) -> float:
        """For how long calls waited for nothing but a place to start."""
        return self.places.start_blocked_sec

    def cpu_sec(self) -> float:
        """CPU seconds of all calls that have ended; only a difference has a meaning."""
        return self._launcher.cpu_sec()

    def close(self) -> None:
        """End what runs between calls; see `Transport.close`."""
        self._launcher.close()

    def create(self, spec: CreateSpec, *, before_send: BeforeSend) -> Reply[Sandbox]:
        """Ask for a sandbox; see `Transport.create`."""
        variant = spec.variant
        arguments = ["sandboxes", "create", "--template", variant.template, "--label", spec.label]
        arguments += ["--auto-stop-interval", str(spec.auto_stop_interval)]
        arguments += ["--auto-delete-interval", str(spec.auto_delete_interval)]
        if variant.persist and variant.storage_size:
            arguments += ["--persist", "--storage-size", variant.storage_size]
        return self._call(arguments, _json(wire.read_sandbox), before_send=before_send)

    def get(self, sandbox_id: str) -> Reply[Sandbox]:
        """One sandbox; see `Transport.get`."""
        return self._call(["sandboxes", "get", sandbox_id], _json(wire.read_sandbox), urgent=True)

    def list_page(self, *, offset: int = 0, limit: int = MAX_PAGE) -> Reply[SandboxPage]:
        """A page of the account's sandboxes; see `Transport.list_page`."""
        arguments = ["sandboxes", "list", "--limit", str(limit), "--offset", str(offset)]
        return self._call(arguments, _json(wire.read_page), urgent=True)

    def delete(self, sandbox_id: str) -> Reply[None]:
        """Ask for a sandbox's removal; see `Transport.delete`."""
        return self._call(["sandboxes", "delete", sandbox_id], _read_deleted)

    def health(self) -> Reply[None]:
        """Whether the server answers; see `Transport.health`."""
        return self._call(["system", "health"], _json(wire.read_health))

    def whoami(self) -> Reply[str]:
        """The account's e-mail address; see `Transport.whoami`."""
        return self._call(["auth", "whoami"], _json(wire.read_account))

    def templates(self) -> Reply[tuple[Template, ...]]:
        """The server's templates; see `Transport.templates`."""
        return self._call(["templates", "list"], _json(wire.read_templates))

    def _call[T](
        self,
        arguments: list[str],
        read: Callable[[Finished], T],
        *,
        urgent: bool = False,
        before_send: BeforeSend = _send_at_once,
    ) -> Reply[T]:
        with self.places.hold(urgent=urgent) as queued:
            before_send(queued)
            started = time.monotonic()
            try:
                finished = self._launcher.run([*self._first, *arguments], timeout_sec=self._timeout_sec)
                timing = Timing(queued, started, time.monotonic())
                self._heed_lost_warmth(timing)
                if finished.exit_code != 0:
                    raise read_failure(finished)
                return Reply(read(finished), timing)
            except CallError as error:
                error.timing = Timing(queued, started, time.monotonic())
                raise

    def _heed_lost_warmth(self, timing: Timing) -> None:
        """Calls that start the CLI anew, unforeseen, count as starting for as long as the first one took."""
        if self._counts_on_warmth and not self._launcher.warm:
            self._counts_on_warmth = False
            self.places.startup_sec = max(self.places.startup_sec, timing.ended - timing.started)


def _json[T](read: Callable[[Any], T]) -> Callable[[Finished], T]:
    """A reader of a process's output from a reader of the API's JSON."""
    return lambda finished: read(_read_json(finished))
