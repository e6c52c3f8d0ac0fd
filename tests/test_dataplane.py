"""Commands and streams in a sandbox: what is sent, what is measured, and how each failure is told."""

from __future__ import annotations

import json
import logging
import math
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import requests
import urllib3

from tests.rawserver import Step, chunk, head, raw_server, whole
from tests.runs import ROOT, json_lines, seconds
from tests.servers import API_KEY, LocalServer
from tests.test_transports import ignore, spec
from treadstone_user.sse import ServerSentEvent
from treadstone_user.transports import outputs
from treadstone_user.transports.base import (
    AuthError,
    BadOutput,
    CallError,
    Conflict,
    ConnectError,
    NotFound,
    RequestTimeout,
    ServerError,
    UsageError,
)
from treadstone_user.transports.credentials import Credential
from treadstone_user.transports.dataplane import DataPlane, Executed, StreamBroken, StreamSilent
from treadstone_user.transports.http import HttpTransport
from treadstone_user.transports.outputs import Measure, Streamed
from treadstone_user.transports.places import Places

KEY = "sk-test-0123456789"
CHAT = "/v1/chat/completions"


def output(text: str) -> bytes:
    """An event of exec."""
    return b"data: " + json.dumps({"output": text}).encode() + b"\n\n"


def streamed(
    *steps: Step, path: str = "/v1/shell/exec", method: str = "POST", timeout_sec: float = 5
) -> Streamed:
    """What a stream of these steps is measured as."""
    body = None if method == "GET" else {"command": "x"}
    with raw_server(steps) as raw:
        plane = DataPlane(key=KEY)
        return plane.stream(raw.url, path=path, body=body, method=method, timeout_sec=timeout_sec).value


def executed(*steps: Step, timeout_sec: float = 5) -> Executed:
    """The result of a command that is answered by these steps."""
    with raw_server(steps) as raw:
        return DataPlane(key=KEY).exec(raw.url, "x", timeout_sec=timeout_sec).value


def answer(**data: Any) -> str:
    """The service's answer to a command."""
    return json.dumps({"success": True, "message": "Command executed", "data": data})


def test_exec() -> None:
    """A command is sent as the service wants it, signed with the key, and its result is read."""
    told = whole(
        answer(session_id="s", command="x", status="completed", output="hé\n", console=[], exit_code=3)
    )
    with raw_server([0.1, told]) as raw:
        reply = DataPlane(key=KEY).exec(raw.url, "echo 'é'; exit 3", timeout_sec=5)
    assert reply.value == Executed(exit_code=3, output="hé\n")
    assert 100 <= reply.timing.latency_ms < 1000
    assert reply.timing.queued == 0
    assert raw.heads[0].startswith("POST /v1/sandboxes/sb1/proxy/v1/shell/exec HTTP/1.1\n")
    assert f"Authorization: Bearer {KEY}" in raw.heads[0]
    assert json.loads(raw.bodies[0]) == {"command": "echo 'é'; exit 3"}


def test_exec_that_had_not_ended() -> None:
    """Without an exit code there is none, and without an output it is empty."""
    assert executed(whole(answer(exit_code=None, output=None))) == Executed(None, "")


@pytest.mark.parametrize(
    "body", ["", "<html>", "[]", "{}", '{"data": null}', answer(exit_code="0"), answer(output=1), "[" * 99999]
)
def test_exec_answer_that_nobody_can_read(body: str) -> None:
    """It is told as such."""
    with pytest.raises(BadOutput, match="exec"):
        executed(whole(body))


def test_exec_that_takes_too_long() -> None:
    """A command has a time, and what it took is told."""
    with pytest.raises(RequestTimeout, match=r"within 0.2 s") as caught:
        executed(1.0, timeout_sec=0.2)
    assert 200 <= caught.value.timing.latency_ms < 900


@pytest.mark.parametrize("steps", [["close"], [whole(answer(exit_code=0))[:-5], "close"], ["reset"]])
def test_exec_whose_answer_is_lost(steps: Sequence[Step]) -> None:
    """A lost connection is told with what the system said, and the command is not sent again."""
    with raw_server(steps, [whole(answer())]) as raw, pytest.raises(ConnectError) as caught:
        DataPlane(key=KEY).exec(raw.url, "x", timeout_sec=5)
    assert len(raw.heads) == 1
    assert caught.value.__cause__ is not None
    assert "HTTPConnectionPool" not in str(caught.value)


def test_nothing_listens() -> None:
    """It is told as such, with the time that it took."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        url = f"http://127.0.0.1:{gone.getsockname()[1]}"
    with pytest.raises(ConnectError, match=r"^Connection refused$") as caught:
        DataPlane(key=KEY).stream(url, body={}, timeout_sec=5)
    assert caught.value.timing.ended >= caught.value.timing.started > 0
    assert not isinstance(caught.value, StreamBroken)


@pytest.mark.parametrize("url", ["", "sandbox/proxy", "ftp://127.0.0.1/x", "http://"])
def test_an_address_that_is_none(url: str) -> None:
    """Nothing is sent to it."""
    with pytest.raises(UsageError):
        DataPlane(key=KEY).exec(url, "x", timeout_sec=5)


@pytest.mark.parametrize("call", ["exec", "stream"])
@pytest.mark.parametrize(
    ("status", "body", "kind", "text"),
    [
        (409, '{"error": {"code": "sandbox_not_ready", "message": "not ready"}}', Conflict, "not ready"),
        (502, '{"error": {"code": "sandbox_unreachable", "message": "away"}}', ServerError, "away"),
        (401, '{"error": {"code": "auth_required", "message": "who?"}}', AuthError, r"who\?"),
        (404, '{"detail": "Not Found"}', NotFound, "Not Found"),
        (503, "<h1>Sorry</h1>", ServerError, "<h1>Sorry</h1>"),
        (500, f'{{"error": {{"message": "no {KEY}"}}}}', ServerError, "no sk-…$"),
        (302, "", BadOutput, "status 302"),
    ],
)
def test_refusals(call: str, status: int, body: str, kind: type[CallError], text: str) -> None:
    """Each status has its error, with the message of the envelope and no key."""
    plane = DataPlane(key=KEY)
    calls: dict[str, Callable[[str], Any]] = {
        "exec": lambda url: plane.exec(url, "x", timeout_sec=5),
        "stream": lambda url: plane.stream(url, body={}, timeout_sec=5),
    }
    refused = whole(body, status, "Location: /elsewhere")
    with raw_server([refused]) as raw, pytest.raises(kind, match=text) as caught:
        calls[call](raw.url)
    assert caught.value.status == (status if status >= 400 else None)
    assert caught.value.timing.latency_ms > 0


@pytest.mark.parametrize("key", [None, "", "sk-a b", "sk-a\n", "sk-é"])
def test_a_key_is_needed(key: str | None) -> None:
    """Without a usable one nothing is begun, and it is not shown."""
    with pytest.raises(AuthError, match="API key") as caught:
        DataPlane(key=key)
    assert not key or key not in str(caught.value)


def test_the_key_shows_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    """Neither in what is shown of an object nor in logs or errors."""
    caplog.set_level(logging.DEBUG)
    plane = DataPlane(key=KEY)
    with raw_server([head(), chunk(output("x")), "close"]) as raw, pytest.raises(StreamBroken) as caught:
        plane.stream(raw.url, body={}, timeout_sec=5)
    shown = [repr(plane), repr(vars(plane)), repr(vars(plane._channel)), repr(plane._channel._session.auth)]
    shown += [repr(caught.value), repr(caught.value.__cause__), caplog.text]
    assert "POST" in caplog.text
    assert not [text for text in shown if KEY in text]


def test_another_way_to_sign() -> None:
    """`auth` signs in the key's place."""
    with raw_server([whole(answer(exit_code=0))]) as raw:
        DataPlane(key=None, auth=requests.auth.HTTPBasicAuth("a", "b")).exec(raw.url, "x", timeout_sec=5)
    assert "Authorization: Basic YTpi" in raw.heads[0]


def test_what_the_environment_may_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its proxies are used, though not to reach this machine; its .netrc does not displace the key."""
    netrc = tmp_path / "netrc"
    netrc.write_text("default login a password b\n")
    monkeypatch.setenv("NETRC", str(netrc))
    with (
        raw_server(*[[whole(answer(exit_code=0))]] * 2) as raw,
        raw_server([whole(answer(exit_code=7))]) as proxy,
    ):
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url.removesuffix("/v1/sandboxes/sb1/proxy"))
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        plane = DataPlane(key=KEY)
        assert plane.exec(raw.url, "x", timeout_sec=5).value.exit_code == 0
        assert plane.exec(raw.url.replace("127.0.0.1", "localhost"), "x", timeout_sec=5).value.exit_code == 0
        assert plane.exec("http://sandbox.example/p", "x", timeout_sec=5).value.exit_code == 7
    assert proxy.heads[0].startswith("POST http://sandbox.example/p/v1/shell/exec")
    assert all(f"Authorization: Bearer {KEY}" in told for told in raw.heads + proxy.heads)


def test_certificates_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every server: nothing turns that off."""
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    monkeypatch.setenv("CURL_CA_BUNDLE", "")
    seen: list[Any] = []

    def send(*_: Any, **how: Any) -> None:
        seen.append(how["verify"])
        raise requests.ConnectionError

    monkeypatch.setattr(requests.Session, "send", send)
    for host in ("127.0.0.1", "sandbox.example"):
        with pytest.raises(ConnectError):
            DataPlane(key=KEY).exec(f"https://{host}/p", "x", timeout_sec=5)
    assert seen == [True, True]


def test_connection_is_kept_and_holds_no_cookies() -> None:
    """Calls one after the other share a connection, also after a stream."""
    stream: list[Step] = [head(), chunk(output("a"), b"data: [DONE]\n\n"), 0.05, chunk(b"")]
    cookie: list[Step] = [whole(answer(exit_code=0), 200, "Set-Cookie: a=b")]
    with raw_server(cookie, stream, cookie) as raw:
        plane = DataPlane(key=KEY)
        plane.exec(raw.url, "x", timeout_sec=5)
        assert plane.stream(raw.url, body={}, timeout_sec=5).value.total_ms < 50
        plane.exec(raw.url, "x", timeout_sec=5)
        plane.close()
    assert raw.connections == 1
    assert not [told for told in raw.heads if "Cookie" in told]


@pytest.mark.parametrize("framing", ["chunked", "closed", "length"])
def test_stream_of_exec(framing: str) -> None:
    """Outputs are counted and timed as they arrive, however the body is framed and wherever it is cut."""
    first, second, third = output("hé"), output("x" * 10), output("\u2028")
    pieces: list[Step] = [0.2, first[:9], 0.02, first[9:], 0.1, second + third[:-1], third[-1:]]
    pieces += [b": bye\n\n", b'data: {"exit_code": 0}\n\n', b'data: {"output": ""}\n\n']
    size = sum(len(piece) for piece in pieces if isinstance(piece, bytes))
    heads = {
        "chunked": head(),
        "closed": head("Connection: close"),
        "length": head(f"Content-Length: {size}"),
    }
    framed = [chunk(s) if framing == "chunked" and isinstance(s, bytes) else s for s in pieces]
    end: list[Step] = {"chunked": [chunk(b"")], "closed": ["close"], "length": []}[framing]  # type: ignore[assignment]
    told = streamed(heads[framing], *framed, *end)
    assert (told.events, told.outputs, told.characters) == (5, 3, 13)
    assert (told.tokens, told.tokens_counted, told.ended) == (None, False, "done")
    assert told.first_output_ms == pytest.approx(220, abs=60)
    assert list(told.gaps_ms) == pytest.approx([100, 0], abs=60)
    assert told.gaps_sum_ms == pytest.approx(sum(told.gaps_ms), abs=0.01)
    assert told.gaps_max_ms == pytest.approx(max(told.gaps_ms), abs=0.01)
    assert told.total_ms >= 320
    assert 0 <= told.connect_ms < 100


def test_stream_is_asked_for() -> None:
    """A stream is asked for as one, and uncompressed, as a compressor would hold it back."""
    with raw_server([head(), chunk(b"")]) as raw:
        DataPlane(key=KEY).stream(
            raw.url + "/", path="/v1/events?x=1", method="GET", body=None, timeout_sec=5
        )
    assert raw.heads[0].startswith("GET /v1/sandboxes/sb1/proxy/v1/events?x=1 HTTP/1.1")
    assert "Accept: text/event-stream" in raw.heads[0]
    assert "Accept-Encoding: identity" in raw.heads[0]
    assert raw.bodies == [b""]


def test_connecting_is_not_waiting_for_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock starts with the request; how long there was no connection is told beside it."""
    connect = urllib3.util.connection.create_connection

    def slowly(*address: Any, **options: Any) -> socket.socket:
        time.sleep(0.2)
        return connect(*address, **options)

    monkeypatch.setattr(urllib3.util.connection, "create_connection", slowly)
    steps: list[Step] = [head(), chunk(output("a")), chunk(b"")]
    with raw_server(steps, steps, steps) as raw:
        monkeypatch.setenv("http_proxy", raw.url)
        plane = DataPlane(key=KEY)
        for proxy in (raw.url, "http://sandbox.example/p"):
            reply = plane.stream(proxy, body={}, timeout_sec=5)
            assert reply.value.connect_ms >= 200
            assert reply.value.total_ms < 200
            assert reply.timing.latency_ms == pytest.approx(reply.value.total_ms)
        assert plane.stream(raw.url, body={}, timeout_sec=5).value.connect_ms < 200


def test_two_outputs_in_one_read_have_no_gap() -> None:
    """What arrived at once, arrived at once."""
    told = streamed(head(), chunk(output("a") + output("b")), chunk(b""))
    assert list(told.gaps_ms) == [0.0]
    assert told.gaps_max_ms == 0.0


def test_stream_without_output() -> None:
    """There is nothing to time, and that is no error."""
    told = streamed(head(), chunk(b": ping\n\n"), chunk(b""))
    assert (told.first_output_ms, told.outputs, list(told.gaps_ms)) == (None, 0, [])
    assert (told.gaps_sum_ms, told.gaps_max_ms, told.ended) == (None, None, "done")


def delta(**more: Any) -> bytes:
    """A chunk of a chat completion."""
    choice = {"index": 0, "delta": more, "finish_reason": None}
    return b"data: " + json.dumps({"object": "chat.completion.chunk", "choices": [choice]}).encode() + b"\n\n"


ROLE = delta(role="assistant", content="")
END = b'data: {"object":"chat.completion.chunk","choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"object":"chat.completion.chunk","choices":[],"usage":{"completion_tokens":9}}\n\n'
DONE = b"data: [DONE]\n\n"


@pytest.mark.parametrize("path", [CHAT, "/v1/agents/run"])
def test_chat(path: str) -> None:
    """Only what carries content is an output; tokens are the server's, or else counted."""
    body = ROLE + delta(content="Hé") + delta(content=" you") + END
    told = streamed(head(), chunk(body + DONE), chunk(b""), path=path)
    assert (told.events, told.outputs, told.characters) == (5, 2, 6)
    assert (told.tokens, told.tokens_counted) == (2, True)
    told = streamed(head(), chunk(body + USAGE + DONE), chunk(b""), path=path)
    assert (told.events, told.outputs, told.tokens, told.tokens_counted) == (6, 2, 9, False)


@pytest.mark.parametrize(
    "data",
    [
        *(
            "{}",
            "[]",
            "x",
            "[" * 99999,
            '{"choices": {}}',
            '{"choices": [1]}',
            '{"choices": [{"delta": []}]}',
        ),
        '{"choices": [{"delta": {"content": 1}}]}',
        '{"usage": {"completion_tokens": "x"}, "choices": null}',
    ],
)
def test_chat_chunk_that_nobody_can_read(data: str) -> None:
    """It is an event, and no output."""
    told = streamed(head(), chunk(f"data: {data}\n\n".encode() + DONE), chunk(b""), path=CHAT)
    assert (told.events, told.outputs, told.tokens) == (2, 0, 0)


def test_end_by_the_mark_waits_for_nothing() -> None:
    """`[DONE]` is the end, though the connection stays open or breaks."""
    for after in ([0.5, chunk(b"")], ["reset"]):
        told = streamed(head(), chunk(delta(content="x") + DONE), *after, path=CHAT)
        assert told.ended == "done"
        assert told.total_ms < 200


def test_any_other_stream() -> None:
    """Every event's data is an output, whatever it is."""
    told = streamed(
        head(), chunk(b"event: tick\ndata: {}\n\ndata\n\ndata: ab\n\n"), chunk(b""), path="/v1/events"
    )
    assert (told.events, told.outputs, told.characters, told.tokens) == (3, 2, 4, None)


CUT = {
    "between chunks": [head(), chunk(output("a"), output("b")), 0.05, "close"],
    "in a chunk's size": [head(), chunk(output("a"), output("b")) + b"2", 0.05, "close"],
    "in a chunk": [head(), chunk(output("a"), output("b")) + b"ff\r\ndata: ", 0.05, "close"],
    "by a reset": [head(), chunk(output("a"), output("b")), 0.05, "reset"],
    "before its length": [head("Content-Length: 999"), output("a"), output("b"), 0.05, "close"],
    "within an event, closed": [
        head("Connection: close"),
        output("a"),
        output("b"),
        b"data: x\n",
        0.05,
        "close",
    ],
    "within an event, chunked": [head(), chunk(output("a"), output("b"), b"data: x"), 0.05, chunk(b"")],
}


@pytest.mark.parametrize("how", CUT)
def test_stream_that_breaks(how: str) -> None:
    """It is told with what had come before, and never counted as whole."""
    with pytest.raises(StreamBroken) as caught:
        streamed(*CUT[how])  # type: ignore[arg-type]
    error = caught.value
    assert (error.kind, error.cause, error.streamed.ended) == ("stream_broken", "stream_broken", "broken")
    assert (error.streamed.events, error.streamed.outputs, error.streamed.characters) == (2, 2, 2)
    assert 50 <= error.streamed.total_ms < 1000
    assert error.timing.latency_ms >= 50
    assert "cut off" in str(error) or "within an event" in str(error)


def test_endless_event_breaks_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event without an end ends the stream."""
    monkeypatch.setattr("treadstone_user.sse.MAX_EVENT_BYTES", 1000)
    with pytest.raises(StreamBroken, match="more than"):
        streamed(head(), chunk(b"data: " + b"x" * 2000))


def test_error_within_a_chat() -> None:
    """A model that fails on its way says so in its stream, under a status of 200."""
    error = f'data: {{"error": {{"message": "out of memory {KEY}"}}}}\n\n'.encode()
    with pytest.raises(StreamBroken, match="out of memory sk-…") as caught:
        streamed(head(), chunk(delta(content="x") + error + DONE), chunk(b""), path=CHAT)
    assert caught.value.streamed.outputs == 1


def test_answer_that_is_no_stream() -> None:
    """A whole answer where a stream was asked for is told as such."""
    with pytest.raises(BadOutput, match="no event stream but application/json"):
        streamed(whole(answer(exit_code=0)))


def test_gaps_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a very long stream the first gaps are kept, and the sum and the longest of all."""
    monkeypatch.setattr(outputs, "MAX_GAPS", 3)
    measure = Measure("/v1/events", 0.0)
    for at in (1, 2, 3, 4, 9, 10):
        measure.take([ServerSentEvent("message", "x", "")], float(at))
    told = measure.end(11.0, "done")
    assert list(told.gaps_ms) == [1000, 1000, 1000]
    assert (told.gaps_sum_ms, told.gaps_max_ms, told.outputs, told.total_ms) == (9000, 5000, 6, 11000)


def test_silence_where_sockets_wait() -> None:
    """A stream that says nothing at all is given up, with what had come before."""
    with pytest.raises(StreamSilent, match=r"within 0.2 s") as caught:
        streamed(head(), chunk(output("a")), 1.0, timeout_sec=0.2)
    assert isinstance(caught.value, RequestTimeout)
    assert caught.value.cause == "request_timeout"
    assert (caught.value.streamed.outputs, caught.value.streamed.ended) == (1, "silent")
    with pytest.raises(StreamSilent) as caught:
        streamed(1.0, timeout_sec=0.2)
    assert caught.value.streamed.first_output_ms is None


def read_in_locusts_way(**wanted: Any) -> list[dict[str, Any]]:
    """What a process with gevent's monkey patches reads: a stream from each proxy."""
    call = [sys.executable, "-m", "tests.streaming", json.dumps({"key": KEY, **wanted})]
    told = subprocess.run(call, cwd=ROOT, stdout=subprocess.PIPE, timeout=60, check=True)
    found: list[dict[str, Any]] = json.loads(told.stdout)
    return found


PINGS: list[Step] = [s for _ in range(30) for s in (0.1, chunk(b": ping\n\n"))]


def test_silence_and_stop_in_locusts_way() -> None:
    """Keep-alives are no outputs; and a stream that waits is stopped, before its head as well as after it."""
    silent, stopping = {"timeout_sec": 0.6, "body": {}}, {"timeout_sec": 60, "body": {}}
    with raw_server([head(), chunk(output("a")), *PINGS], [*PINGS]) as raw:
        (one,) = read_in_locusts_way(proxies=[raw.url], stream=silent)
    assert (one["kind"], one["ended"], one["outputs"]) == ("request_timeout", "silent", 1)
    assert 600 <= one["total_ms"] < 1100
    with raw_server([head(), chunk(output("a")), *PINGS], [3.0]) as raw:
        both = read_in_locusts_way(proxies=[raw.url] * 2, apart_sec=0.1, stream=stopping, stop_sec=0.3)
    assert [one["ended"] for one in both] == ["stopped", "stopped"]
    assert [one["outputs"] for one in both] == [1, 0]
    assert all(300 <= one["total_ms"] < 2000 for one in both)


OUTPUTS = 50


def beside_the_servers_log(count: int, path: str, log: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """So many streams side by side, each as it was read and as the server has logged it.

    They begin one after the other: the server's clock starts when it gets to a request, and those that come
    at once wait for each other there.
    """
    profile = f"ready=0 latency=0 stream=0.3+{OUTPUTS}x0.02 chunks=mixed"
    body = {"command": "echo hé"} if path != CHAT else {"model": "m", "messages": [], "stream": True}
    with LocalServer(profile=profile, requests=log) as server:
        transport = HttpTransport(
            base_url=server.base_url,
            credential=Credential.of_key(API_KEY),
            places=Places(in_flight=10, starting=10),
        )
        ids = [transport.create(spec(), before_send=ignore).value.id for _ in range(count)]
        read = read_in_locusts_way(
            proxies=[f"{server.base_url}/v1/sandboxes/{each}/proxy" for each in ids],
            apart_sec=0.015,
            key=API_KEY,
            stream={"path": path, "body": body, "timeout_sec": 10},
        )
    truth = {line["sandbox_id"]: line for line in json_lines(log) if "stream" in line}
    assert len(truth) == count
    return [(one, truth[each]) for each, one in zip(ids, read, strict=True)]


def mean_gap_ms(one: dict[str, Any]) -> float:
    """The mean gap between the outputs of a stream that was read or logged."""
    whole = one["gaps_sum_ms"] if "gaps_sum_ms" in one else one["last_ms"] - one["first_ms"]
    return float(whole) / (OUTPUTS - 1)


def late_ms(one: dict[str, Any], true: dict[str, Any]) -> float:
    """How much later a first output was read than it was written, both counted from the sending."""
    on_its_way_ms = (seconds(true["arrived"]) - one["sent"]) * 1000  # and in the server's queue
    return float(one["first_output_ms"] - on_its_way_ms - true["first_ms"])


@pytest.mark.parametrize(("count", "path"), [(1, "/v1/shell/exec"), (50, "/v1/shell/exec"), (50, CHAT)])
def test_figures_are_true(count: int, path: str, tmp_path: Path) -> None:
    """Beside the server's log: first outputs within 15 ms, each count exact, mean gaps within 1 ms.

    Counts hold always, times in one of three measurements: no clock is right while others have the processor.
    """
    first = gap = math.inf
    for attempt in range(3):
        pairs = beside_the_servers_log(count, path, tmp_path / f"{attempt}.jsonl")
        for one, true in pairs:
            assert one["ended"] == "done", one
            assert one["outputs"] == true["outputs"] == OUTPUTS
            assert one["tokens"] == (OUTPUTS if path == CHAT else None)
        first = min(first, max(abs(late_ms(one, true)) for one, true in pairs))
        gap = min(gap, max(abs(mean_gap_ms(one) - mean_gap_ms(true)) for one, true in pairs))
        if first <= 15 and gap <= 1:
            break
    assert first <= 15
    assert gap <= 1


def test_the_local_servers_ways(tmp_path: Path) -> None:
    """Commands, any stream, broken streams and refusals of the local server are told for what they are."""
    log = tmp_path / "requests.jsonl"
    with LocalServer(profile="ready=0 latency=0 stream=0.01+10x0.001 breaks=50%", requests=log) as server:
        transport = HttpTransport(
            base_url=server.base_url,
            credential=Credential.of_key(API_KEY),
            places=Places(in_flight=1, starting=1),
        )
        proxy = (
            f"{server.base_url}/v1/sandboxes/{transport.create(spec(), before_send=ignore).value.id}/proxy"
        )
        plane = DataPlane(key=API_KEY)
        assert plane.exec(proxy, "echo hé; exit 4", timeout_sec=5).value == Executed(4, "hé")
        told: list[tuple[str, int]] = []
        for _ in range(20):
            try:
                one = plane.stream(proxy, path="/v1/events", method="GET", body=None, timeout_sec=5).value
            except StreamBroken as error:
                one = error.streamed
            told.append((one.ended, one.outputs))
        with pytest.raises(NotFound):
            plane.exec(proxy.replace("/sb", "/none"), "x", timeout_sec=5)
        with pytest.raises(AuthError):
            DataPlane(key="sk-unknown-0123").exec(proxy, "x", timeout_sec=5)
    truth = [line for line in json_lines(log) if "stream" in line]
    assert told == [("broken" if line["broken"] else "done", line["outputs"]) for line in truth]
    assert {ended for ended, _ in told} == {"broken", "done"}
