"""Commands and streams inside a sandbox, by way of Treadstone's proxy.

A sandbox's `urls.proxy` hands every request on to the server in the sandbox. `POST /v1/shell/exec` with
`{"command": …}` runs a command there; with `Accept: text/event-stream` its output comes while it runs.
The proxy takes API keys only, answers 409 (`sandbox_not_ready`) while the sandbox is not ready and 502
(`sandbox_unreachable`) where nothing answers in it, in the envelope of the rest of the API.

Built on requests, whose sockets Locust monkey-patches: a call waits without holding others up. A call is
sent once, as a command may have run though its answer was lost.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import requests
import urllib3
from requests.auth import AuthBase

from treadstone_user.sections import EXEC_PATH
from treadstone_user.sse import EventTooLarge, Parser
from treadstone_user.transports import wire
from treadstone_user.transports.base import (
    BadOutput,
    CallError,
    ConnectError,
    Reply,
    RequestTimeout,
    Timing,
    redact,
)
from treadstone_user.transports.channel import Channel, Silent, Stopped, Watch, reason
from treadstone_user.transports.outputs import Measure, Streamed

_EVENT_STREAM = "text/event-stream"
_DRAIN_SEC = 0.5
_BLOCK = 16384


class StreamBroken(ConnectError):
    """A stream that was cut off, ended within an event, or told an error.

    streamed: what came before.
    """

    kind = "stream_broken"

    def __init__(self, message: str, streamed: Streamed) -> None:
        super().__init__(message)
        self.streamed = streamed


class StreamSilent(RequestTimeout):
    """A stream that gave no output in time, be it the first or a later one.

    streamed: what came before.
    """

    def __init__(self, message: str, streamed: Streamed) -> None:
        super().__init__(message)
        self.streamed = streamed


class ExecStopped(CallError):
    """A command whose answer we waited for no longer."""

    kind = "interrupted"


@dataclass(frozen=True, slots=True)
class Executed:
    """A command that was run in a sandbox.

    exit_code: None where the command had not ended when the answer was given.
    output: what it wrote, of both streams.
    """

    exit_code: int | None
    output: str


class DataPlane:
    """Calls through the proxy, from as many greenlets at once as one likes.

    key: the API key; it shows nowhere.
    auth: signs requests in the key's place.
    Raises `AuthError` where there is neither, and for a key that no header can carry.
    """

    def __init__(self, *, key: str | None, auth: AuthBase | None = None) -> None:
        self._channel = Channel(key, auth)

    def close(self) -> None:
        """Close the connections that are kept for the next call."""
        self._channel.close()

    def exec(
        self, proxy: str, command: str, *, timeout_sec: float, stop: Callable[[], bool] | None = None
    ) -> Reply[Executed]:
        """Run a command in a sandbox and wait for its end.

        proxy: the sandbox's `urls.proxy`.
        timeout_sec: for all of it.
        stop: as of `stream`; what then comes is `ExecStopped`.
        Raises `CallError`.
        """
        url = proxy.rstrip("/") + EXEC_PATH
        request = self._channel.prepare("POST", url, {"command": command}, accept="application/json")
        started = time.monotonic()
        watch = Watch(started, timeout_sec, stop)
        try:
            with watch, self._channel.sent(request, timeout_sec) as (response, started):
                body = response.raw.read(decode_content=True)
                ended = time.monotonic()
            return Reply(_read_executed(body), Timing(0.0, started, ended))
        except Stopped:
            raise _timed(ExecStopped("the run ended before it answered"), started) from None
        except CallError as error:
            _timed(error, started)
            raise

    def stream(
        self,
        proxy: str,
        *,
        path: str = EXEC_PATH,
        body: Mapping[str, Any] | None,
        method: str = "POST",
        timeout_sec: float,
        stop: Callable[[], bool] | None = None,
    ) -> Reply[Streamed]:
        """Read a stream of server-sent events to its end and measure it.

        proxy: the sandbox's `urls.proxy`.
        path: of the endpoint in the sandbox; it tells what an output is (see `outputs`).
        body: sent as JSON.
        timeout_sec: until the first output, and from each output to the next or the end; keep-alives
            do not count. A stream that goes on giving outputs is ended by `stop` alone.
        stop: asked once a second whether to end the stream, which is then told as stopped. It is called
            in the event loop and must not wait.
        Raises `CallError`; of these `StreamBroken` and `StreamSilent` tell what came before.
        """
        request = self._channel.prepare(method, proxy.rstrip("/") + path, body, accept=_EVENT_STREAM)
        begun = time.monotonic()
        measure = Measure(path, begun)
        watch = Watch(begun, timeout_sec, stop)
        try:
            with watch, self._channel.sent(request, timeout_sec) as (response, measure.started):
                _check_kind(response)
                ended = _read(response.raw, measure, watch)
            return Reply(measure.end(ended, "done"), Timing(0.0, measure.started, ended))
        except Stopped:
            ended = time.monotonic()
            return Reply(measure.end(ended, "stopped"), Timing(0.0, measure.started, ended))
        except RequestTimeout as error:
            streamed = measure.end(time.monotonic(), "silent")
            raise _timed(StreamSilent(str(error), streamed), measure.started) from error
        except CallError as error:
            _timed(error, measure.started)
            raise


def _timed(error: CallError, started: float) -> CallError:
    error.timing = Timing(0.0, started, time.monotonic())
    return error


def _read_executed(body: bytes) -> Executed:
    """The result of a command. Raises `BadOutput`."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadOutput(f"exec: no JSON: {wire.said(body)}") from error
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, dict):
        raise BadOutput(f"exec: 'data' is missing or not an object: {wire.said(body)}")
    exit_code, output = data.get("exit_code"), data.get("output")
    if not (exit_code is None or isinstance(exit_code, int)) or not (
        output is None or isinstance(output, str)
    ):
        raise BadOutput(f"exec: 'exit_code' is no number or 'output' no text: {wire.said(body)}")
    return Executed(exit_code, output or "")


def _check_kind(response: requests.Response) -> None:
    """Raise `BadOutput` where a stream was asked for and something else came."""
    kind = response.headers.get("Content-Type", "")
    if kind.partition(";")[0].strip().lower() != _EVENT_STREAM:
        raise BadOutput(
            f"status {response.status_code} and no event stream but {redact(kind[:100]) or 'nothing'}"
        )


def _read(raw: Any, measure: Measure, watch: Watch) -> float:
    """Read a stream to its end and tell when that was, on the monotonic clock. Raises `StreamBroken`."""
    parser = Parser()

    def broken(why: str) -> StreamBroken:
        return StreamBroken(why, measure.end(time.monotonic(), "broken"))

    try:
        while chunk := raw.read1(_BLOCK):
            now = time.monotonic()
            measure.take(parser.feed(chunk), now)
            watch.since = measure.last_output or measure.started
            if measure.error is not None:
                raise broken(f"the stream told an error: {redact(measure.error)}")
            if measure.done:
                _drain(raw, watch)
                return now
    except urllib3.exceptions.TimeoutError:
        raise
    except urllib3.exceptions.HTTPError as error:
        raise broken(f"the stream was cut off: {reason(error)}") from error
    except EventTooLarge as error:
        raise broken(str(error)) from error
    if parser.close():
        raise broken("the stream ended within an event")
    return time.monotonic()


def _drain(raw: Any, watch: Watch) -> None:
    """Read what stands between the last event and the end, so that the connection can be used again."""
    watch.since, watch.limit_sec = time.monotonic(), _DRAIN_SEC
    with suppress(urllib3.exceptions.HTTPError, Silent, Stopped):
        while raw.read1(_BLOCK):
            pass
