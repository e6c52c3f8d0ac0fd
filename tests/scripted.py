"""A transport that answers as a test tells it: for orders that no real server can be forced into."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from treadstone_user.access import Access, Accesses
from treadstone_user.model import Sandbox, SandboxPage, Template, run_label_value
from treadstone_user.transports.base import (
    MAX_PAGE,
    BeforeSend,
    CallError,
    CreateSpec,
    NotFound,
    Reply,
    Timing,
)
from treadstone_user.transports.http import HttpTransport
from treadstone_user.transports.places import Places

NOWHERE = "http://127.0.0.1:1"
RUN_ID = "20260101-000000"
TINY = "aio-sandbox-tiny"


def sandbox(name: str, status: str = "creating", *, run_id: str | None = RUN_ID, **more: Any) -> Sandbox:
    """A tiny sandbox of the run that tests speak of, or without its label."""
    labels = {} if run_id is None else {"loadtest": run_label_value(run_id)}
    return Sandbox(id=name, template=TINY, status=status, labels=labels, **more)


def page(*items: Sandbox, total: int | None = None) -> SandboxPage:
    """A page of the list; all of it, where no total is given."""
    return SandboxPage(items=items, total=len(items) if total is None else total)


def rows(count: int, prefix: str = "foreign-") -> tuple[Sandbox, ...]:
    """So many ready sandboxes that belong to nobody's run."""
    return tuple(sandbox(f"{prefix}{number}", "ready", run_id=None) for number in range(count))


def missing(name: str) -> NotFound:
    """The API's answer on a sandbox that is not there."""
    return NotFound(f"Sandbox {name} does not exist or you don't have access to it.", status=404)


def taking_turns(*answers: Any) -> Callable[..., Any]:
    """Give one answer after the other, the last one for ever; an answer that is an error is raised."""
    left = list(answers)

    def answer(*_: Any) -> Any:
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, Exception):
            raise found
        return found

    return answer


def _not_expected(*arguments: Any) -> Any:
    raise AssertionError(f"a call that nobody expected: {arguments}")


@dataclass
class Scripted:
    """The protocol of transports over functions. `calls` tells each call with what it asked for.

    A function that raises `CallError` fails the call; the time that it takes is the call's own.
    `queued` is the wait for a place that calls tell, in seconds.
    """

    on_create: Callable[[CreateSpec], Sandbox] = _not_expected
    on_get: Callable[[str], Sandbox] = _not_expected
    on_list: Callable[[int], SandboxPage] = _not_expected
    on_delete: Callable[[str], None] = _not_expected
    on_health: Callable[[], None] = lambda: None
    on_whoami: Callable[[], str] = lambda: "a@example.com"
    on_templates: Callable[[], Sequence[Template]] = lambda: ()
    queued: float = 0.0
    name: str = "scripted"
    places: Places = field(default_factory=lambda: Places(in_flight=100, starting=100))
    calls: list[tuple[str, Any]] = field(default_factory=list)
    timings: list[Timing] = field(default_factory=list)
    rows_given: list[int] = field(default_factory=list)

    def _call[T](self, what: str, about: Any, answer: Callable[[], T]) -> Reply[T]:
        self.calls.append((what, about))
        started = time.monotonic()
        try:
            value = answer()
        except CallError as error:
            error.timing = Timing(self.queued, started, time.monotonic())
            raise
        timing = Timing(self.queued, started, time.monotonic())
        self.timings.append(timing)
        return Reply(value, timing)

    def of(self, what: str) -> list[Any]:
        """What the calls of a kind asked for, in order."""
        return [about for kind, about in self.calls if kind == what]

    def close(self) -> None:
        """Nothing is held."""

    def create(self, spec: CreateSpec, *, before_send: BeforeSend) -> Reply[Sandbox]:
        """Create."""
        with self.places.hold():
            before_send(self.queued)
            return self._call("create", spec, lambda: self.on_create(spec))

    def get(self, sandbox_id: str) -> Reply[Sandbox]:
        """Get."""
        return self._call("get", sandbox_id, lambda: self.on_get(sandbox_id))

    def list_page(self, *, offset: int = 0, limit: int = MAX_PAGE) -> Reply[SandboxPage]:
        """List."""
        assert 1 <= limit <= MAX_PAGE, "the server refuses any other"

        def answer() -> SandboxPage:
            whole = self.on_list(offset)
            self.rows_given.append(len(whole.items[:limit]))
            return SandboxPage(whole.items[:limit], whole.total)

        return self._call("list", offset, answer)

    def delete(self, sandbox_id: str) -> Reply[None]:
        """Delete."""
        return self._call("delete", sandbox_id, lambda: self.on_delete(sandbox_id))

    def health(self) -> Reply[None]:
        """Health."""
        return self._call("health", None, self.on_health)

    def whoami(self) -> Reply[str]:
        """Account."""
        return self._call("whoami", None, self.on_whoami)

    def templates(self) -> Reply[tuple[Template, ...]]:
        """Templates."""
        return self._call("templates", None, lambda: tuple(self.on_templates()))


def accesses(*transports: Scripted, accounts: Sequence[str | None] = (None,)) -> Accesses:
    """The accounts of a run, each by a transport of its own; their other ways lead nowhere."""
    http = HttpTransport(base_url=NOWHERE, credential=None, places=Places(in_flight=1, starting=1))
    found = zip(accounts, transports, strict=True)
    return Accesses(NOWHERE, [Access(account, transport, http, None) for account, transport in found])
