"""How a call reaches Treadstone: the protocol, and the errors all transports share.

::

    TreadstoneError
    ├── ScenarioError(problems)      a scenario file says something impossible
    ├── ConfigError                  an option, the config file or the binary
    ├── PreflightError               the server or the login is not fit for the run
    ├── TransportError               no answer from the API
    │   ├── ConnectError             nothing listens, or the connection broke
    │   ├── RequestTimeout           no answer in time
    │   ├── BadOutput                an answer that nobody can read
    │   ├── UsageError               refused by the client before it was sent
    │   └── BinaryNotFound           the CLI cannot be started
    └── ApiError(status)             the API said no
        ├── Invalid                  400, 422
        ├── AuthError                401, or no credential at all
        ├── Forbidden                403
        ├── NotFound                 404
        ├── Conflict                 409
        ├── QuotaExceeded            402, 429
        └── ServerError              5xx

The CLI loses the API's error code, so the tree stands on the HTTP status and on
network failures alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from treadstone_user.model import Sandbox, SandboxPage, Template, Variant
from treadstone_user.transports.places import Places

MAX_PAGE = 1000
"""The most sandboxes that the API gives in one page."""


@dataclass(frozen=True, slots=True)
class Timing:
    """When a call ran, in seconds of this process's monotonic clock.

    `queued` is how long the call waited for its place before `started`.
    """

    queued: float
    started: float
    ended: float

    @property
    def latency_ms(self) -> float:
        """From sending to the answer, without the wait for a place."""
        return (self.ended - self.started) * 1000

    @property
    def queue_ms(self) -> float:
        """The wait for a place."""
        return self.queued * 1000


@dataclass(frozen=True, slots=True)
class Reply[T]:
    """A call's result together with when it ran."""

    value: T
    timing: Timing


class TreadstoneError(Exception):
    """The root of what this plugin raises. `kind` is the word for it in every report."""

    kind: ClassVar[str] = "error"


class ScenarioError(TreadstoneError):
    """A scenario file with all that is wrong with it, each problem with its path."""

    kind = "scenario"

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class ConfigError(TreadstoneError):
    """An option, the config file or the binary is not usable; the text says what to do."""

    kind = "config"


class PreflightError(TreadstoneError):
    """The server or the login is not fit for the run; the text says what to do."""

    kind = "preflight"


class CallError(TreadstoneError):
    """A call that failed. Its transport tells by `timing` when it ran; zeros if it was never sent."""

    status: int | None = None
    timing: Timing = Timing(queued=0.0, started=0.0, ended=0.0)

    @property
    def cause(self) -> str:
        """The stable text that groups failures: kind and status, never an id."""
        return self.kind if self.status is None else f"{self.status} {self.kind}"


class TransportError(CallError):
    """The API gave no answer."""

    kind = "transport_error"


class ConnectError(TransportError):
    """Nothing listens there, or the connection broke."""

    kind = "connect_error"


class RequestTimeout(TransportError):
    """No answer in time; a create may have happened all the same."""

    kind = "request_timeout"


class BadOutput(TransportError):
    """An answer that nobody can read; a create may have happened all the same."""

    kind = "bad_output"


class UsageError(TransportError):
    """The client refused the call's words before it sent anything."""

    kind = "usage_error"


class BinaryNotFound(TransportError):
    """The CLI cannot be started."""

    kind = "binary_not_found"


class ApiError(CallError):
    """The API said no. `status` is the HTTP status, None where the client spoke for it."""

    kind = "api_error"

    def __init__(self, message: str, *, status: int | None) -> None:
        super().__init__(message)
        self.status = status


class Invalid(ApiError):
    """400 or 422: the request itself is wrong."""

    kind = "invalid"


class AuthError(ApiError):
    """401, or no credential is configured at all (then without a status)."""

    kind = "auth_error"


class Forbidden(ApiError):
    """403: the account may not do this."""

    kind = "forbidden"


class NotFound(ApiError):
    """404: no such sandbox, template or route."""

    kind = "not_found"


class Conflict(ApiError):
    """409: not possible in the present state."""

    kind = "conflict"


class QuotaExceeded(ApiError):
    """402 or 429: beyond the account's plan, or asked too often."""

    kind = "quota_exceeded"


class ServerError(ApiError):
    """5xx: the server failed."""

    kind = "server_error"


_KEY = re.compile(r"sk-[A-Za-z0-9_-]{4,}")


def redact(text: str) -> str:
    """A text from outside without anything that looks like an API key."""
    return _KEY.sub("sk-…", text)


_BY_STATUS: Mapping[int, type[ApiError]] = {
    400: Invalid,
    401: AuthError,
    402: QuotaExceeded,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    422: Invalid,
    429: QuotaExceeded,
}


def api_error(status: int, message: str) -> ApiError:
    """The error for an HTTP status of 400 and above, with the API's own message."""
    known = _BY_STATUS.get(status)
    if known is None:
        known = ServerError if status >= 500 else ApiError
    return known(message, status=status)


BeforeSend = Callable[[float], None]
"""Called with the seconds spent waiting, just before a call is sent; raising calls it off."""


@dataclass(frozen=True, slots=True)
class CreateSpec:
    """All that a create call says."""

    variant: Variant
    label: str
    auto_stop_interval: int
    auto_delete_interval: int


class Transport(Protocol):
    """The calls of a sandbox's lifecycle. Each raises `CallError` with its timing.

    A create is never repeated by a transport: its answer may be lost while the sandbox is
    made. Everything may be called from many greenlets at once.

    places: bounds the calls in flight.
    """

    name: str
    places: Places

    def close(self) -> None:
        """Let go of connections and processes. Nothing may be called afterwards."""
        ...

    def create(self, spec: CreateSpec, *, before_send: BeforeSend) -> Reply[Sandbox]:
        """Ask for a sandbox; `before_send` runs once the call has its place."""
        ...

    def get(self, sandbox_id: str) -> Reply[Sandbox]:
        """One sandbox, with `started_at`."""
        ...

    def list_page(self, *, offset: int = 0, limit: int = MAX_PAGE) -> Reply[SandboxPage]:
        """A page of all sandboxes of the account, of every run and none."""
        ...

    def delete(self, sandbox_id: str) -> Reply[None]:
        """Ask for a sandbox's removal; it may stay visible as `deleting` for seconds."""
        ...

    def health(self) -> Reply[None]:
        """Whether the server answers at all; needs no credential."""
        ...

    def whoami(self) -> Reply[str]:
        """The e-mail address of the account that the credential belongs to."""
        ...

    def templates(self) -> Reply[tuple[Template, ...]]:
        """The templates that the server offers."""
        ...
