"""One contract for all transports: the cold CLI, the warm CLI and HTTP give the same answers and errors."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.runs import TREADSTONE, clean_environment
from tests.servers import API_KEY, LocalServer
from treadstone_user.model import Variant
from treadstone_user.preflight import nowhere
from treadstone_user.transports.base import (
    ApiError,
    AuthError,
    BadOutput,
    CallError,
    Conflict,
    ConnectError,
    CreateSpec,
    Forbidden,
    NotFound,
    QuotaExceeded,
    RequestTimeout,
    ServerError,
    Transport,
)
from treadstone_user.transports.cli import CliTransport
from treadstone_user.transports.credentials import find_credential
from treadstone_user.transports.http import HttpTransport
from treadstone_user.transports.launch import ColdLauncher, Launcher
from treadstone_user.transports.places import Places
from treadstone_user.transports.warm import WarmLauncher

TINY = Variant(0, "aio-sandbox-tiny", 1)
Make = Callable[..., Transport]


def spec(variant: Variant = TINY, label: str = "loadtest:run-x") -> CreateSpec:
    """A create call of the suite."""
    return CreateSpec(variant, label, auto_stop_interval=60, auto_delete_interval=-1)


def ignore(_queued: float) -> None:
    """A create call that nobody announces."""


@pytest.fixture(params=["cold", "warm", "http"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Make a transport of each kind; all are closed at the end."""
    made: list[Transport] = []
    home = tmp_path / "home"
    home.mkdir()

    def build(base_url: str, *, key: str | None = API_KEY, timeout_sec: float = 30) -> Transport:
        environment = clean_environment(home, **({"TREADSTONE_API_KEY": key} if key else {}))
        transport: Transport
        if request.param == "http":
            credential = find_credential(environment, base_url)
            transport = HttpTransport(
                base_url=base_url,
                credential=credential,
                places=Places(in_flight=4, starting=4),
                timeout_sec=timeout_sec,
            )
        else:
            launcher: Launcher = ColdLauncher(TREADSTONE, environment)
            if request.param == "warm":
                with nowhere() as refusing:
                    launcher = WarmLauncher(TREADSTONE, environment, nowhere=refusing, say=pytest.fail)
            transport = CliTransport(
                launcher=launcher,
                base_url=base_url,
                places=Places(in_flight=4, starting=2),
                timeout_sec=timeout_sec,
            )
        made.append(transport)
        return transport

    yield build
    for transport in made:
        transport.close()


def test_lifecycle(make: Make) -> None:
    """Create, list, get, delete: the same values by each transport."""
    persistent = Variant(1, "aio-sandbox-medium", 1, persist=True, storage_size="10Gi")
    with LocalServer(profile="ready=fixed(0) gone=fixed(30)") as server:
        transport = make(server.base_url)
        queued: list[float] = []
        reply = transport.create(spec(), before_send=queued.append)
        assert reply.value.template == "aio-sandbox-tiny"
        assert reply.value.labels == {"loadtest": "run-x"}
        assert len(queued) == 1
        assert reply.timing.queued == pytest.approx(queued[0], abs=0.01)
        assert reply.timing.ended > reply.timing.started
        other = transport.create(spec(persistent), before_send=ignore).value
        assert (other.persist, other.storage_size) == (True, "10Gi")
        page = transport.list_page().value
        assert page.total == 2
        assert {sandbox.id for sandbox in page.items} == {reply.value.id, other.id}
        assert len(transport.list_page(offset=1, limit=1).value.items) == 1
        found = transport.get(reply.value.id).value
        assert found.status == "ready"
        assert found.server_ready_ms == pytest.approx(0, abs=1)
        transport.delete(reply.value.id)
        with pytest.raises(Conflict) as again:
            transport.delete(reply.value.id)
        assert (again.value.status, again.value.cause) == (409, "409 conflict")
        assert again.value.timing.latency_ms > 0


def test_account_and_templates(make: Make) -> None:
    """What preflight asks."""
    with LocalServer() as server:
        transport = make(server.base_url)
        transport.health()
        assert transport.whoami().value == "local@example.com"
        templates = {template.name: template for template in transport.templates().value}
        assert templates["aio-sandbox-tiny"].cpu == "250m"
        assert templates["aio-sandbox-tiny"].memory == "1Gi"
        assert templates["aio-sandbox-tiny"].storage_sizes == ("5Gi", "10Gi", "20Gi")


# fmt: off
REFUSALS = [
    # status, error
    (402, QuotaExceeded),
    (403, Forbidden),
    (409, Conflict),
    (429, QuotaExceeded),
    (500, ServerError),
    (503, ServerError),
]
# fmt: on


def test_refused_creates(make: Make) -> None:
    """Each status is its error, with the API's own message."""
    for status, error in REFUSALS:
        with LocalServer(profile=f"create={status}:100%") as server, pytest.raises(error) as refused:
            make(server.base_url).create(spec(), before_send=ignore)
        assert isinstance(refused.value, ApiError)
        assert refused.value.status == status
        assert len(str(refused.value)) > 5


def test_what_is_not_there(make: Make) -> None:
    """Unknown templates and sandboxes are 404; a label that is none is refused."""
    with LocalServer() as server:
        transport = make(server.base_url)
        with pytest.raises(NotFound, match="Template 'nope' not found"):
            transport.create(spec(Variant(0, "nope", 1)), before_send=ignore)
        for call in (transport.get, transport.delete):
            with pytest.raises(NotFound):
                call("sb0000000000000000")


def test_credentials(make: Make) -> None:
    """A wrong key is 401; no credential at all has no status, and health needs none."""
    with LocalServer() as server:
        with pytest.raises(AuthError) as refused:
            make(server.base_url, key="sk-wrong-0123456789").whoami()
        assert refused.value.status == 401
        without = make(server.base_url, key=None)
        without.health()
        with pytest.raises(AuthError) as missing:
            without.whoami()
        assert missing.value.status is None


def test_saved_session_and_config_file(make: Make, tmp_path: Path) -> None:
    """Without a key in the environment, config.toml counts, and then the session of `auth login`."""
    home = tmp_path / "home"
    environment = clean_environment(home)
    with LocalServer(api_key=None) as server:
        login = ["--email", "a@example.com", "--password", "Passw0rd123"]
        for command in ("register", "login"):
            arguments = [TREADSTONE, "--json", "--base-url", server.base_url, "auth", command, *login]
            subprocess.run(arguments, env=environment, check=True, capture_output=True)
        assert make(server.base_url, key=None).whoami().value == "a@example.com"
        config = home / ".config" / "treadstone" / "config.toml"
        config.write_text('[default]\napi_key = "sk-not-a-key-of-this-server"\n')
        with pytest.raises(AuthError):
            make(server.base_url, key=None).whoami()


def test_nothing_listens(make: Make) -> None:
    """A refused connection is told as one."""
    with nowhere() as base_url, pytest.raises(ConnectError):
        make(base_url).list_page()


@contextmanager
def raw_server(answer: bytes | None) -> Iterator[str]:
    """A server that answers each connection with these bytes and closes it, or never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        open_ones: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                open_ones.append(connection)
                if answer is not None:
                    connection.recv(65536)
                    connection.sendall(answer)
                    connection.close()

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        for connection in open_ones:
            connection.close()


def http_answer(status: str, body: bytes, kind: str = "text/html", length: int | None = None) -> bytes:
    """An HTTP answer; `length` may lie."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length or len(body)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body


# fmt: off
STRANGE = [
    # what comes back                                                            error         status
    (http_answer("200 OK", b"<html>hello from a proxy</html>"),                   BadOutput,    None),
    (http_answer("200 OK", b'{"items": [', "application/json"),                   BadOutput,    None),
    (http_answer("200 OK", b'{"items": {}, "total": 0}', "application/json"),     BadOutput,    None),
    (http_answer("200 OK", b'[]', "application/json"),                            BadOutput,    None),
    (http_answer("502 Bad Gateway", b"<html>bad gateway</html>"),                 ServerError,  502),
    (http_answer("200 OK", b'{"items": [', "application/json", length=5000),      ConnectError, None),
    (b"",                                                                         ConnectError, None),
]
# fmt: on


@pytest.mark.parametrize(("answer", "error", "status"), STRANGE)
def test_strange_answers(make: Make, answer: bytes, error: type[CallError], status: int | None) -> None:
    """Whatever comes back, it is an error of the tree, the same by each transport."""
    with raw_server(answer) as base_url, pytest.raises(error) as told:
        make(base_url).list_page()
    assert told.value.status == status


def test_silent_server(make: Make) -> None:
    """A server that never answers ends in a timeout, in the time that was set."""
    with raw_server(None) as base_url, pytest.raises(RequestTimeout) as told:
        make(base_url, timeout_sec=2).list_page()
    assert 1.5 < told.value.timing.latency_ms / 1000 < 10


def test_called_off_create_is_not_sent(make: Make, tmp_path: Path) -> None:
    """What `before_send` raises calls the create off, and gives its place back."""

    class CalledOff(Exception):
        pass

    def call_off(_queued: float) -> None:
        raise CalledOff

    requests = tmp_path / "requests.jsonl"
    with LocalServer(requests=requests) as server:
        transport = make(server.base_url)
        for _ in range(6):  # more than there are places
            with pytest.raises(CalledOff):
                transport.create(spec(), before_send=call_off)
        transport.health()
    sent = [json.loads(line)["method"] for line in requests.read_text().splitlines()]
    assert "POST" not in sent


def test_no_descriptor_is_leaked(make: Make) -> None:
    """Calls, failed ones too, leave no file descriptor behind."""
    with LocalServer() as server:
        transport = make(server.base_url)
        transport.list_page()
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        for _ in range(5):
            transport.list_page()
            with pytest.raises(NotFound):
                transport.get("sb0000000000000000")
        assert len(os.listdir("/proc/self/fd")) <= before + 1  # noqa: PTH208
