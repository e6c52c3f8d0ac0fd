"""The way into a sandbox: commands and streams through its proxy, which takes an API key and nothing else.

On requests, whose responses can be read byte by byte as they come, and which takes an `AuthBase` for a
gateway that wants its requests signed.
"""

from __future__ import annotations

import json
import threading
import time
from array import array
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from requests.exceptions import ConnectionError as NoConnection
from requests.exceptions import RequestException, Timeout
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, ReadTimeoutError

from treadstone_user.sections import EXEC_PATH
from treadstone_user.sse import Parser, ServerSentEvent
from treadstone_user.transports.base import (
    AuthError,
    BadOutput,
    CallError,
    ConnectError,
    Reply,
    RequestTimeout,
    Timing,
    api_error,
    redact,
)

DONE = "[DONE]"
"""The last event of an OpenAI-compatible stream."""

_CONNECT_SEC = 10.0
_CONNECTIONS = 10_000
_SAID_LIMIT = 300
_BLOCK = 65536
_LOCAL = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Executed:
    """What a command did; `exit_code` is None where the service does not tell it."""

    exit_code: int | None
    output: str


@dataclass(slots=True)
class Streamed:
    """How a stream flowed, in milliseconds since the request was sent, on a connection that stood.

    An output is an event that carries text: a command's `output`, a token of a chat completion, and in any
    other stream the data of an event.

    gaps_ms: between one output and the next. tokens: None where the stream is no chat completion;
    `tokens_told` says whether the server counted them, else each output counts as one.
    ended: ``done`` by ``[DONE]`` or the stream's own end, ``stopped`` from this side, ``broken``.
    """

    first_output_ms: float | None = None
    total_ms: float = 0.0
    events: int = 0
    outputs: int = 0
    characters: int = 0
    tokens: int | None = None
    tokens_told: bool = False
    gaps_ms: array[float] = field(default_factory=lambda: array("f"))
    ended: str = "done"


class StreamBroken(ConnectError):
    """A stream that ended in the middle; `streamed` is what there was of it."""

    kind = "stream_broken"

    def __init__(self, message: str, streamed: Streamed) -> None:
        super().__init__(message)
        self.streamed = streamed


class StreamTimeout(RequestTimeout):
    """A stream that did not end in its time; `streamed` is what there was of it."""

    kind = "stream_timeout"

    def __init__(self, message: str, streamed: Streamed) -> None:
        super().__init__(message)
        self.streamed = streamed


class _Sent:
    """When the last connection of a greenlet was made; nothing else runs between that and its request."""

    def __init__(self) -> None:
        self._local = threading.local()

    def note(self) -> None:
        """A connection is made."""
        self._local.at = time.monotonic()

    def since(self, began: float) -> float:
        """When a request was sent that was begun at `began`: a connection to be made is no part of it."""
        return max(began, getattr(self._local, "at", began))


_sent = _Sent()


class _Connection(HTTPConnection):
    def connect(self) -> None:
        """Connect, and say when."""
        super().connect()
        _sent.note()


class _SecureConnection(HTTPSConnection):
    def connect(self) -> None:
        """Connect, and say when."""
        super().connect()
        _sent.note()


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


class _Adapter(HTTPAdapter):
    """An adapter whose connections say when they were made."""

    def init_poolmanager(self, *arguments: Any, **more: Any) -> None:
        """Make the pools."""
        super().init_poolmanager(*arguments, **more)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}


class DataPlane:
    """Commands and streams in an account's sandboxes.

    key: the account's API key; None where there is none, and then every call raises `AuthError`.
    auth: signs each request on top, for a gateway in front of the deployment. It must not use the
        Authorization header, which holds the key.
    """

    def __init__(self, *, key: str | None, auth: AuthBase | None = None) -> None:
        self._key = key
        self._auth = auth
        self._session: requests.Session | None = None

    def __repr__(self) -> str:
        return "DataPlane()"

    def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def exec(self, proxy: str, command: str, *, timeout_sec: float) -> Reply[Executed]:
        """Run a command in the sandbox behind a proxy's URL, and wait for its end. Raises `CallError`."""
        started = time.monotonic()
        try:
            with closing(
                self._send("POST", proxy + EXEC_PATH, {"command": command}, timeout_sec)
            ) as response:
                executed = _read_executed(response)
            return Reply(executed, Timing(0.0, started, time.monotonic()))
        except (CallError, RequestException, HTTPError) as error:
            raise _timed(_translated(error, timeout_sec), started) from error

    def stream(
        self,
        proxy: str,
        *,
        path: str = EXEC_PATH,
        method: str = "POST",
        body: Mapping[str, Any] | None = None,
        timeout_sec: float,
        stop: Callable[[], bool] = lambda: False,
    ) -> Reply[Streamed]:
        """Follow a stream of server-sent events to its end.

        stop: asked after each event; True ends the stream from this side.
        Raises `CallError`: `StreamBroken` or `StreamTimeout` with what there was, where it began.
        """
        started = time.monotonic()
        flow = _Flow(started)
        try:
            with closing(self._send(method, proxy + path, body, timeout_sec, stream=True)) as response:
                flow.started = started = _sent.since(started)
                flow.follow(response, deadline=started + timeout_sec, stop=stop)
            return Reply(flow.streamed, Timing(0.0, started, time.monotonic()))
        except (CallError, RequestException, HTTPError) as error:
            streamed = flow.close()
            failure = _translated(error, timeout_sec)
            if streamed.events and isinstance(failure, RequestTimeout):
                failure = StreamTimeout(f"no end within {timeout_sec:g} s", streamed)
            elif streamed.events and not isinstance(failure, StreamBroken):
                failure = StreamBroken(str(failure), streamed)
            raise _timed(failure, started) from error

    def _send(
        self,
        method: str,
        url: str,
        body: Mapping[str, Any] | None,
        timeout_sec: float,
        *,
        stream: bool = False,
    ) -> requests.Response:
        """Send a request and read the head of its answer. Raises `CallError`, and what requests raises."""
        if self._key is None:
            raise AuthError(
                "no API key: a sandbox's proxy takes no login session. Set TREADSTONE_API_KEY", status=None
            )
        headers = {"Authorization": f"Bearer {self._key}"}
        if stream:
            headers["Accept"] = "text/event-stream"
        response = self._sessions_for(url).request(
            method,
            url,
            json=body,
            headers=headers,
            auth=self._auth or _keep,
            timeout=(min(_CONNECT_SEC, timeout_sec), timeout_sec),
            stream=True,
            allow_redirects=False,
        )
        if response.status_code >= 300:
            with closing(response):
                raise _refusal(response)
        return response

    def _sessions_for(self, url: str) -> requests.Session:
        if self._session is None:
            self._session = requests.Session()
            adapter = _Adapter(pool_connections=10, pool_maxsize=_CONNECTIONS)
            for scheme in ("http://", "https://"):
                self._session.mount(scheme, adapter)
            self._session.trust_env = urlsplit(url).hostname not in _LOCAL  # proxies are for other machines
        return self._session


def _keep(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """No further signature; without any `auth`, requests would take a password from ~/.netrc for the key."""
    return request


class _Flow:
    """Reads one stream, and takes the time of each output."""

    def __init__(self, started: float) -> None:
        self.streamed = Streamed()
        self.started = started
        self._last: float | None = None
        self._parser = Parser()
        self._over = False

    def follow(self, response: requests.Response, *, deadline: float, stop: Callable[[], bool]) -> None:
        """Read to the end. Raises `CallError`, and what requests and urllib3 raise."""
        streamed, raw = self.streamed, response.raw
        raw.decode_content = True
        while not self._over:
            data = raw.read1(_BLOCK)
            now = time.monotonic()
            if not data:
                break
            for event in self._parser.feed(data):
                self._take(event, now)
            if now > deadline:
                raise RequestTimeout("it does not end")
            if stop():
                streamed.ended = "stopped"
                break
        unfinished = self._parser.close()
        self.close()
        if unfinished and not self._over and streamed.ended != "stopped":
            raise StreamBroken("it ended in the middle of an event", streamed)

    def close(self) -> Streamed:
        """End it here; returns what there was."""
        self.streamed.total_ms = (time.monotonic() - self.started) * 1000
        return self.streamed

    def _take(self, event: ServerSentEvent, now: float) -> None:
        streamed = self.streamed
        streamed.events += 1
        if event.data == DONE:
            self._over = True
            return
        text = self._read(event.data)
        if not text:
            return
        streamed.outputs += 1
        streamed.characters += len(text)
        if self._last is None:
            streamed.first_output_ms = (now - self.started) * 1000
        else:
            streamed.gaps_ms.append((now - self._last) * 1000)
        self._last = now

    def _read(self, data: str) -> str:
        """The text of an event: of a command's output, of a chat completion's token, or its data."""
        content = None
        if data.startswith("{"):
            with suppress(ValueError):
                content = json.loads(data)
        if not isinstance(content, dict):
            return data
        if content.get("object") == "chat.completion.chunk" or isinstance(content.get("choices"), list):
            return self._read_token(content)
        output = content.get("output")
        return output if isinstance(output, str) else data

    def _read_token(self, chunk: Mapping[str, Any]) -> str:
        streamed = self.streamed
        usage = chunk.get("usage")
        if isinstance(usage, dict) and isinstance(usage.get("completion_tokens"), int):
            streamed.tokens, streamed.tokens_told = usage["completion_tokens"], True
        choices = chunk.get("choices") or [{}]
        delta = choices[0].get("delta") if isinstance(choices[0], dict) else None
        text = delta.get("content") if isinstance(delta, dict) else None
        if not streamed.tokens_told:
            streamed.tokens = (streamed.tokens or 0) + bool(text)
        return text if isinstance(text, str) else ""


def _read_executed(response: requests.Response) -> Executed:
    try:
        data = response.json()["data"]
        exit_code, output = data.get("exit_code"), data.get("output")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadOutput(
            f"status {response.status_code}, and no answer of a command: {_said(response)}"
        ) from error
    is_code = isinstance(exit_code, int) and not isinstance(exit_code, bool)
    return Executed(exit_code if is_code else None, output if isinstance(output, str) else "")


def _refusal(response: requests.Response) -> CallError:
    if response.status_code < 400:
        return BadOutput(f"status {response.status_code}, which the proxy does not answer")
    try:
        inner = response.json()["error"]
        message = str(inner.get("message", inner))
    except (ValueError, KeyError, TypeError, AttributeError):
        message = _said(response)
    return api_error(response.status_code, redact(message[:_SAID_LIMIT]))


def _said(response: requests.Response) -> str:
    return redact(response.content[:_SAID_LIMIT].decode("utf-8", errors="replace").strip() or "nothing")


def _translated(error: Exception, timeout_sec: float) -> CallError:
    """The error of ours for one of requests or urllib3: here and nowhere else."""
    if isinstance(error, CallError):
        return error
    if isinstance(error, Timeout | ReadTimeoutError):
        return RequestTimeout(f"no whole answer within {timeout_sec:g} s")
    if isinstance(error, NoConnection | HTTPError):
        return ConnectError(redact(f"the connection failed: {_root(error)}"))
    return BadOutput(redact(f"{type(error).__name__}: {error}"))


def _root(error: BaseException) -> str:
    """What the system said, below the layers that wrap it."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _timed(error: CallError, started: float) -> CallError:
    error.timing = Timing(0.0, started, time.monotonic())
    return error
