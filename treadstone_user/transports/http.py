"""The HTTP transport: the CLI's requests over kept-alive connections, without its processes.

geventhttpclient, which Locust brings, does a call for half the CPU that requests takes (see
"Benchmark" in the README). It repeats a request on a fresh connection where the old one had
been closed, but by RFC 9110, section 9.2.2, never a POST: a create is sent once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any
from urllib.parse import quote, urlsplit

import gevent
from geventhttpclient import HTTPClient
from geventhttpclient.response import HTTPParseError

from treadstone_user.model import Sandbox, SandboxPage, Template
from treadstone_user.quota import Allowance
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
)
from treadstone_user.transports.credentials import Credential
from treadstone_user.transports.places import Places

CALL_TIMEOUT_SEC = 65.0
"""A call's limit in all; the CLI's own is 30 s between two bytes."""

_CONNECT_SEC = 10.0
_BLOCK = 65536
_CONNECTIONS = 20_000
"""They are made as they are needed: a call that waited for one would wait unseen."""
_REPEATS = 3
_LONGEST_RETRY_AFTER_SEC = 30.0
_TRY_LATER = (429, 503)


class _Answer:
    """A response that was read to its end."""

    def __init__(self, status: int, body: bytes, retry_after: str | None) -> None:
        self.status = status
        self.body = body
        self.retry_after = retry_after

    @property
    def wait_sec(self) -> float | None:
        """How long the server asks us to wait before we ask again; None where it does not."""
        if self.status not in _TRY_LATER or not (self.retry_after or "").isdecimal():
            return None  # a date is rare, and its clock is not ours
        return min(float(self.retry_after or 0), _LONGEST_RETRY_AFTER_SEC)

    def json(self) -> Any:
        """The body's JSON. Raises `BadOutput`."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise BadOutput(f"status {self.status} and no JSON: {wire.said(self.body)}") from error

    def error(self) -> CallError:
        """The error that a status of 400 and above means."""
        return wire.read_error(self.status, self.body)


class HttpTransport:
    """Calls over HTTP.

    places: bounds the creates, gets and deletes in flight; lists and what else is asked takes none, so that
        slow creates delay no poll.
    credential: None where there is none; then every call that needs one raises `AuthError`.
    """

    name = "http"

    def __init__(
        self,
        *,
        base_url: str,
        credential: Credential | None,
        places: Places,
        timeout_sec: float = CALL_TIMEOUT_SEC,
    ) -> None:
        headers = {"Accept": "application/json", "User-Agent": "treadstone-user"}
        parts = urlsplit(base_url)
        self._prefix = parts.path.rstrip("/")
        self._credential = credential
        self._timeout_sec = timeout_sec
        self.places = places
        self._client = HTTPClient.from_url(
            f"{parts.scheme}://{parts.netloc}",
            concurrency=_CONNECTIONS,
            connection_timeout=_CONNECT_SEC,
            network_timeout=timeout_sec,
            block_size=_BLOCK,
            headers=headers,
        )

    def with_credential(self, credential: Credential) -> HttpTransport:
        """The same for another account, over the same connections and places: closing either closes both."""
        other = copy(self)
        other._credential = credential
        return other

    def close(self) -> None:
        """Close all connections; see `Transport.close`."""
        self._client.close()

    def create(self, spec: CreateSpec, *, before_send: BeforeSend) -> Reply[Sandbox]:
        """Ask for a sandbox, once; see `Transport.create`."""
        variant = spec.variant
        key, _, value = spec.label.partition(":")
        body: dict[str, Any] = {
            "template": variant.template,
            "labels": {key: value},
            "auto_stop_interval": spec.auto_stop_interval,
            "auto_delete_interval": spec.auto_delete_interval,
            "persist": variant.persist,
        }
        if variant.persist:
            body["storage_size"] = variant.storage_size
        return self._in_place(
            lambda: self._send("POST", "/v1/sandboxes", body), _json(wire.read_sandbox), before_send
        )

    def get(self, sandbox_id: str) -> Reply[Sandbox]:
        """One sandbox; see `Transport.get`."""
        return self._in_place(self._repeatable("GET", _path(sandbox_id)), _json(wire.read_sandbox))

    def list_page(self, *, offset: int = 0, limit: int = MAX_PAGE) -> Reply[SandboxPage]:
        """A page of the account's sandboxes; see `Transport.list_page`."""
        path = f"/v1/sandboxes?limit={limit}&offset={offset}"
        return self._timed(0.0, self._repeatable("GET", path), _json(wire.read_page))

    def delete(self, sandbox_id: str) -> Reply[None]:
        """Ask for a sandbox's removal; see `Transport.delete`."""
        return self._in_place(self._repeatable("DELETE", _path(sandbox_id)), lambda answer: None)

    def health(self) -> Reply[None]:
        """Whether the server answers; see `Transport.health`."""
        return self._timed(
            0.0, lambda: self._send("GET", "/health", needs_credential=False), _json(wire.read_health)
        )

    def whoami(self) -> Reply[str]:
        """The account's e-mail address; see `Transport.whoami`."""
        return self._timed(0.0, self._repeatable("GET", "/v1/auth/user"), _json(wire.read_account))

    def templates(self) -> Reply[tuple[Template, ...]]:
        """The server's templates; see `Transport.templates`."""
        return self._timed(0.0, self._repeatable("GET", "/v1/sandbox-templates"), _json(wire.read_templates))

    def usage(self) -> Reply[Allowance]:
        """What the account's plan allows and what of it is in use; the CLI has no command for it."""
        return self._timed(0.0, self._repeatable("GET", "/v1/usage"), _json(wire.read_usage))

    def _in_place[T](
        self,
        send: Callable[[], _Answer],
        read: Callable[[_Answer], T],
        before_send: BeforeSend | None = None,
    ) -> Reply[T]:
        """Wait for a place, and make the call in it."""
        with self.places.hold() as queued:
            if before_send is not None:
                before_send(queued)
            return self._timed(queued, send, read)

    def _timed[T](self, queued: float, send: Callable[[], _Answer], read: Callable[[_Answer], T]) -> Reply[T]:
        started = time.monotonic()
        try:
            answer = send()
            timing = Timing(queued, started, time.monotonic())
            if answer.status >= 400:
                raise answer.error()
            if not 200 <= answer.status < 300:
                raise BadOutput(f"status {answer.status}, which the API does not answer")
            return Reply(read(answer), timing)
        except CallError as error:
            error.timing = Timing(queued, started, time.monotonic())
            raise

    def _repeatable(self, method: str, path: str) -> Callable[[], _Answer]:
        """A call that may be repeated, and is where the server says when."""

        def send() -> _Answer:
            answer = self._send(method, path)
            for _ in range(_REPEATS):
                if answer.wait_sec is None:
                    break
                gevent.sleep(answer.wait_sec)
                answer = self._send(method, path)
            return answer

        return send

    def _send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        needs_credential: bool = True,
    ) -> _Answer:
        """Send a request and read its answer: foreign errors are translated here and nowhere else."""
        headers: dict[str, str] = {}
        if self._credential is not None:
            headers[self._credential.header] = self._credential.value
        elif needs_credential:
            raise AuthError("no API key and no saved session", status=None)
        content = b"" if body is None else json.dumps(body).encode()
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            with gevent.Timeout(self._timeout_sec):
                response = self._client.request(method, self._prefix + path, content, headers)
                retry_after = response.get("retry-after")
                text = retry_after if isinstance(retry_after, str) else None
                return _Answer(response.status_code, response.read(), text)
        except (gevent.Timeout, TimeoutError) as error:
            raise RequestTimeout(f"no whole answer within {self._timeout_sec:g} s") from error
        except HTTPParseError as error:
            raise ConnectError(f"the connection broke: {error}") from error
        except OSError as error:
            raise ConnectError(error.strerror or str(error)) from error


def _path(sandbox_id: str) -> str:
    return f"/v1/sandboxes/{quote(sandbox_id, safe='')}"


def _json[T](read: Callable[[Any], T]) -> Callable[[_Answer], T]:
    """A reader of an answer from a reader of the API's JSON."""
    return lambda answer: read(answer.json())
