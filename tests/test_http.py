"""What only the HTTP transport does: connections, repeats, and what is never repeated."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import gevent
import pytest

from tests.runs import finished, scenario_file
from tests.servers import API_KEY, LocalServer
from tests.test_transports import ignore, spec
from treadstone_user.transports.base import ConnectError, NotFound, QuotaExceeded
from treadstone_user.transports.credentials import Credential
from treadstone_user.transports.http import HttpTransport
from treadstone_user.transports.places import Places


class Script:
    """Answers that a server gives one after the other; None closes the connection without one."""

    def __init__(self, *answers: Answer | None) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []
        self.connections: set[tuple[str, int]] = set()


@contextmanager
def scripted(script: Script) -> Iterator[str]:
    """A server that follows a script and keeps connections alive."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            script.asked.append(f"{self.command} {self.path}")
            script.connections.add(self.client_address)
            answer = script.answers.pop(0)
            if answer is None:
                self.close_connection = True
                return
            status, headers, body = answer
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        do_GET = do_POST = do_DELETE = answer  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def transport_to(base_url: str, at_once: int = 2) -> HttpTransport:
    """A transport with a key."""
    return HttpTransport(
        base_url=base_url,
        credential=Credential.of_key("sk-x"),
        places=Places(in_flight=at_once, starting=at_once),
    )


Answer = tuple[int, dict[str, str], str]


PAGE: Answer = (200, {}, '{"items": [], "total": 0}')
LATER: Answer = (429, {"Retry-After": "1"}, '{"error": {"message": "slow down"}}')


def test_retry_after_is_heard_where_a_call_may_be_repeated() -> None:
    """A list that is told to come back later does, after that time; the delete likewise."""
    script = Script(LATER, LATER, PAGE, (503, {"Retry-After": "0"}, ""), (204, {}, ""))
    with scripted(script) as base_url:
        transport = transport_to(base_url)
        assert transport.list_page().timing.latency_ms >= 2000
        transport.delete("sb1")
    assert script.asked[3:] == ["DELETE /v1/sandboxes/sb1"] * 2


def test_refusal_without_retry_after_is_an_answer() -> None:
    """A 429 that names no time is told at once."""
    script = Script((429, {}, '{"error": {"message": "limit"}}'))
    with scripted(script) as base_url, pytest.raises(QuotaExceeded, match="limit"):
        transport_to(base_url).list_page()
    assert len(script.asked) == 1


@pytest.mark.parametrize("value", ["nan", "-1", "0.5", "Wed, 21 Oct 2026 07:28:00 GMT", "²", ""])
def test_retry_after_that_is_no_number_of_seconds_is_not_heard(value: str) -> None:
    """RFC 9110 has digits or a date; whatever else comes, the answer is told at once."""
    script = Script((429, {"Retry-After": value}, "{}"))
    with scripted(script) as base_url, pytest.raises(QuotaExceeded):
        transport_to(base_url).list_page()
    assert len(script.asked) == 1


def test_patience_has_an_end() -> None:
    """A server that always says later is believed after three repeats."""
    script = Script(*[(429, {"Retry-After": "0"}, "{}")] * 4)
    with scripted(script) as base_url, pytest.raises(QuotaExceeded):
        transport_to(base_url).list_page()
    assert len(script.asked) == 4


@pytest.mark.parametrize("answer", [LATER, None], ids=["429 with Retry-After", "connection lost"])
def test_create_is_never_sent_twice(answer: Answer | None) -> None:
    """Neither a Retry-After nor a lost connection repeats a create."""
    script = Script(PAGE, answer, PAGE)
    with scripted(script) as base_url:
        transport = transport_to(base_url)
        transport.list_page()  # so that the create goes over a kept connection
        with pytest.raises((QuotaExceeded, ConnectError)):
            transport.create(spec(), before_send=ignore)
    assert script.asked.count("POST /v1/sandboxes") == 1


def test_connection_is_kept() -> None:
    """Calls one after the other share a connection."""
    script = Script(*[PAGE] * 5)
    with scripted(script) as base_url:
        transport = transport_to(base_url)
        for _ in range(5):
            transport.list_page()
    assert len(script.connections) == 1


def test_base_url_with_a_path_and_odd_ids() -> None:
    """The API may live below a path; an id is quoted."""
    script = Script((404, {}, "{}"))
    with scripted(script) as base_url, pytest.raises(NotFound):
        transport_to(f"{base_url}/treadstone").get("a/b?c")
    assert script.asked == ["GET /treadstone/v1/sandboxes/a%2Fb%3Fc"]


def test_slow_creates_do_not_delay_the_poll() -> None:
    """With every place taken by slow creates, a list is answered at once."""
    with LocalServer(profile="latency=fixed(2)") as server:
        credential = Credential("Authorization", f"Bearer {API_KEY}")
        places = Places(in_flight=2, starting=2)
        transport = HttpTransport(base_url=server.base_url, credential=credential, places=places)
        creates = [gevent.spawn(transport.create, spec(), before_send=ignore) for _ in range(4)]
        gevent.sleep(0.2)
        asked = time.monotonic()
        transport.list_page()
        assert time.monotonic() - asked < 1, "the wait for a place would not show in its latency"
        replies = [create.get(timeout=20) for create in creates]
    assert sorted(round(reply.timing.queued / 2) for reply in replies) == [0, 0, 1, 1]


def test_run_over_http_needs_no_cli(tmp_path: Path) -> None:
    """`--transport http` looks for no binary, and says so in run.json."""
    scenario = scenario_file(tmp_path, 3)
    code, run = finished(
        tmp_path,
        *("--scenario", scenario, "--local", "--transport", "http", "--binary", "/nowhere/treadstone"),
    )
    assert code == 0, run.output
    assert run.only.run["transport"] == "http"
    assert run.only.run["treadstone_binary"] is None
    assert [event["http_status"] for event in run.only.events("delete_ok")] == [None] * 3
    assert "sk-" not in json.dumps([run.only.run, run.only.summary, run.only.events()])
