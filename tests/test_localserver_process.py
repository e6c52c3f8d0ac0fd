"""The local server as a process: how it starts, answers, records and ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from prep.localserver.__main__ import steady_clock
from tests.runs import seconds
from tests.servers import API_KEY, LocalServer

ROOT = Path(__file__).resolve().parent.parent
TINY = {"template": "aio-sandbox-tiny", "labels": {"loadtest": "run-1"}}


class Client(requests.Session):
    """Talks to one server with its key."""

    def __init__(self, server: LocalServer) -> None:
        super().__init__()
        self.base_url = server.base_url
        self.headers["Authorization"] = f"Bearer {server.api_key}"

    def ask(self, method: str, path: str, **arguments: Any) -> requests.Response:
        """Send a request."""
        return self.request(method, self.base_url + path, timeout=10, **arguments)

    def create(self, **wanted: Any) -> str:
        """Create a sandbox and give its id."""
        return str(self.ask("POST", "/v1/sandboxes", json={**TINY, **wanted}).json()["id"])


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    """A server for tests that leave no trace another one would trip over."""
    with LocalServer() as running:
        yield running


def records(path: Path) -> list[dict[str, Any]]:
    """Read a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def eventually(condition: Callable[[], bool], *, within: float = 5.0) -> bool:
    """Wait until a condition holds, for `within` seconds at most, and tell whether it does."""
    deadline = time.monotonic() + within
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the server's command until it ends by itself."""
    return subprocess.run(
        [sys.executable, "-m", "prep.localserver", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


def test_a_gone_sandbox_is_in_the_truth_log_at_once_and_the_rest_after_sigterm(tmp_path: Path) -> None:
    """Nobody need ask again for what is gone to be written; SIGTERM writes the rest and ends with 0."""
    truth = tmp_path / "truth.jsonl"
    with LocalServer(profile="ready=fixed(0.05) gone=fixed(0.1) foreign=3", truth=truth) as server:
        client = Client(server)
        first, second = client.create(), client.create(labels={})
        time.sleep(0.1)
        client.ask("DELETE", f"/v1/sandboxes/{first}")
        assert eventually(lambda: len(records(truth)) == 1, within=2)
        assert server.stop() == 0
        assert server.stderr() == ""
    gone, left = records(truth)
    assert (gone["id"], gone["labels"]) == (first, TINY["labels"])
    assert None not in (gone["created"], gone["ready"], gone["delete_requested"], gone["gone"])
    assert (left["id"], left["delete_requested"], left["gone"]) == (second, None, None)
    assert list(left) == [
        "id",
        "labels",
        "created",
        "ready",
        "error",
        "reachable",
        "first_exec",
        "delete_requested",
        "gone",
    ]


def test_a_clock_that_is_ahead_is_so_in_all_that_it_tells(tmp_path: Path) -> None:
    """With clock=+37 created and started are 37 s ahead in answers and truth alike; no duration changes."""
    truth = tmp_path / "truth.jsonl"
    with LocalServer(profile="clock=+37 ready=fixed(0.5) gone=fixed(0.25)", truth=truth) as server:
        client = Client(server)
        before = time.time()
        path = f"/v1/sandboxes/{client.create()}"
        after = time.time()
        assert eventually(lambda: client.ask("GET", path).json()["status"] == "ready")
        told = client.ask("GET", path).json()
        client.ask("DELETE", path)
        assert eventually(lambda: bool(records(truth)))
    created, started = seconds(told["created_at"]), seconds(told["started_at"])
    assert before + 37 - 0.01 <= created <= after + 37 + 0.01
    assert started - created == pytest.approx(0.5, abs=0.002)
    (record,) = records(truth)
    assert seconds(record["created"]) == pytest.approx(created, abs=0.002)
    assert seconds(record["ready"]) == pytest.approx(started, abs=0.002)
    took = seconds(record["gone"]) - seconds(record["delete_requested"])
    assert took == pytest.approx(0.25, abs=0.002)


@pytest.mark.parametrize("ahead", [37.0, 0.0, -3600.0])
def test_the_servers_clock_is_ahead_by_what_it_was_told(
    ahead: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the machine's clock and the offset, and goes on evenly when somebody sets the machine's."""
    clock = steady_clock(ahead=ahead)
    assert clock() == pytest.approx(time.time() + ahead, abs=0.05)
    first, true = clock(), time.time()
    monkeypatch.setattr(time, "time", lambda: true - 500)
    assert first <= clock() < first + 5


def test_sigint_ends_it_as_cleanly(tmp_path: Path) -> None:
    """Ctrl-C ends with 0, without a traceback, the truth log written."""
    truth = tmp_path / "truth.jsonl"
    with LocalServer(truth=truth) as server:
        Client(server).create()
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(5) == 0
        assert server.stderr() == ""
    assert len(records(truth)) == 1


def test_it_ends_by_itself_when_its_parent_is_killed(tmp_path: Path) -> None:
    """A parent that is gone without a word takes the server with it, and the truth is written."""
    truth = tmp_path / "truth.jsonl"
    parent_code = textwrap.dedent(
        """
        import subprocess, sys, time
        server = subprocess.Popen(
            [sys.executable, "-m", "prep.localserver", "--exit-with-parent", "--truth", sys.argv[1]],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        print(server.pid, server.stdout.readline().split()[-1], flush=True)
        time.sleep(60)
        """
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", parent_code, str(truth)],
        cwd=ROOT,
        env={**os.environ, "LOCALSERVER_API_KEY": API_KEY},
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        pid, base_url = parent.stdout.readline().split()
        requests.post(
            f"{base_url}/v1/sandboxes", json=TINY, headers={"Authorization": f"Bearer {API_KEY}"}, timeout=10
        ).raise_for_status()
        parent.kill()
    try:
        assert eventually(lambda: not _serves(base_url)), "it still serves"
        assert eventually(lambda: len(records(truth)) == 1)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def test_each_request_is_recorded_without_secrets(tmp_path: Path) -> None:
    """Accepted or refused, a request leaves one line: when, what, the status, and the sandbox if any."""
    log = tmp_path / "requests.jsonl"
    with LocalServer(profile="create=429:50%", requests=log) as server:
        client = Client(server)
        statuses = [client.ask("POST", "/v1/sandboxes", json=TINY).status_code for _ in range(20)]
        sandbox_id = client.ask("GET", "/v1/sandboxes").json()["items"][0]["id"]
        client.ask("GET", f"/v1/sandboxes/{sandbox_id}")
    lines = records(log)
    assert [line["status"] for line in lines if line["method"] == "POST"] == statuses
    assert set(statuses) == {202, 429}
    assert all((line["sandbox_id"] is None) == (line["status"] == 429) for line in lines[:20])
    assert lines[-1]["sandbox_id"] == sandbox_id
    assert API_KEY not in log.read_text(encoding="utf-8")


def test_a_create_answers_after_its_latency_and_counts_from_its_arrival() -> None:
    """The answer takes as long as the profile says; the sandbox is there, and ages, from the start."""
    with LocalServer(profile="latency=fixed(0.3) ready=fixed(0.1)") as server:
        client = Client(server)
        began = time.monotonic()
        created = client.ask("POST", "/v1/sandboxes", json=TINY).json()
        assert time.monotonic() - began >= 0.3
        assert created["status"] == "creating"
        assert client.ask("GET", f"/v1/sandboxes/{created['id']}").json()["status"] == "ready"


def test_a_create_whose_answer_nobody_awaits_makes_a_sandbox() -> None:
    """Who gives up before the answer leaves a sandbox behind, as at the real server."""
    with LocalServer(profile="latency=fixed(0.4)") as server:
        client = Client(server)
        with pytest.raises(requests.Timeout):
            client.post(f"{client.base_url}/v1/sandboxes", json=TINY, timeout=0.1)
        [left] = client.ask("GET", "/v1/sandboxes").json()["items"]
        assert left["labels"] == TINY["labels"]


def test_the_server_adds_no_delay_of_its_own() -> None:
    """On a connection kept open an answer takes a few milliseconds: what is measured is the profile."""
    with LocalServer() as server:
        client = Client(server)
        client.ask("GET", "/health")
        took = []
        for _ in range(11):
            began = time.perf_counter()
            client.ask("GET", "/v1/sandboxes")
            took.append(time.perf_counter() - began)
    assert min(took) < 0.03  # the least: a busy machine slows some of them down, Nagle every one


def test_the_label_filter_works_where_the_profile_says() -> None:
    """`label_filter=on` makes of the real server's 500 a filtered list."""
    with LocalServer(profile="label_filter=on foreign=9") as server:
        client = Client(server)
        sandbox_id = client.create()
        found = client.ask("GET", "/v1/sandboxes", params={"label": "loadtest:run-1"}).json()
    assert ([item["id"] for item in found["items"]], found["total"]) == ([sandbox_id], 1)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/", 404, "not_found"),
        ("GET", "/v1/sandboxes/", 404, "not_found"),
        ("PATCH", "/v1/sandboxes", 405, "method_not_allowed"),
    ],
)
def test_what_has_no_route_gets_an_envelope(
    server: LocalServer, method: str, path: str, status: int, code: str
) -> None:
    """An unknown route or method is refused in the API's own form, never as HTML."""
    response = Client(server).ask(method, path)
    assert response.status_code == status
    assert response.json()["error"]["code"] == code


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "body: Field required"),
        (b"\xff", "body -> 0: JSON decode error"),
        (b'{"template": ' + 5000 * b"9" + b"}", "body -> 0: JSON decode error"),
        (b"[]", "body: Input should be a valid dictionary or object to extract fields from"),
        (b"{}", "body -> template: Field required"),
        (b'{"template": 5}', "body -> template: Input should be a valid string"),
        (b'{"template": "aio-sandbox-tiny", "labels": {"a": 1}}', "body -> labels -> a: Input should be a"),
        (b'{"template": "t", "labels": []}', "body -> labels: Input should be a valid dictionary"),
        (b'{"template": "t", "persist": 1}', "body -> persist: Input should be a valid boolean"),
        (b'{"template": "t", "auto_stop_interval": true}', "body -> auto_stop_interval: Input should be a"),
        (b'{"template": "t", "auto_delete_interval": 0}', "auto_delete_interval must be -1 or at least 1"),
        (b'{"template": "t", "storage_size": "5Gi"}', "storage_size is only allowed when persist=true"),
        (b'{"template": "t", "persist": true, "storage_size": "5"}', "storage_size must match format"),
        (b'{"name": "-", "auto_stop_interval": -1}', "template: Field required; body -> name: Value error"),
    ],
)
def test_a_bad_create_is_told_what_is_wrong(server: LocalServer, body: bytes, told: str) -> None:
    """What is not a create is refused with 422, each field's problem in one message."""
    response = Client(server).ask("POST", "/v1/sandboxes", data=body)
    assert response.status_code == 422
    assert response.json()["error"]["code"] == "validation_error"
    assert told in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("limit=0", "query -> limit: Input should be greater than or equal to 1"),
        ("limit=x", "query -> limit: Input should be a valid integer"),
        ("offset=-1", "query -> offset: Input should be greater than or equal to 0"),
        ("label=:x", "Each label filter must use key:value format."),
    ],
)
def test_a_bad_page_is_told_what_is_wrong(server: LocalServer, query: str, told: str) -> None:
    """A list cannot be asked for with a page or a filter that makes no sense."""
    response = Client(server).ask("GET", f"/v1/sandboxes?{query}")
    assert response.status_code == 422
    assert told in response.json()["error"]["message"]


def test_a_storage_size_that_is_not_offered_is_refused(server: LocalServer) -> None:
    """Well-formed but not on offer is 400, with what is."""
    wanted = {**TINY, "persist": True, "storage_size": "7Gi"}
    response = Client(server).ask("POST", "/v1/sandboxes", json=wanted)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "bad_request")
    assert "5Gi, 10Gi, 20Gi" in response.json()["error"]["message"]


def test_keys_end_when_deleted_or_expired(server: LocalServer) -> None:
    """A key works until it is revoked or its lifetime is over, and then no longer."""
    client = Client(server)
    made = client.ask("POST", "/v1/auth/api-keys", json={"name": "a"}).json()
    short = client.ask("POST", "/v1/auth/api-keys", json={"name": "b", "expires_in": 2}).json()
    assert [_user_status(server, key["key"]) for key in (made, short)] == [200, 200]
    assert client.ask("DELETE", f"/v1/auth/api-keys/{made['id']}").status_code == 204
    assert client.ask("DELETE", f"/v1/auth/api-keys/{made['id']}").status_code == 404
    assert _user_status(server, made["key"]) == 401
    assert eventually(lambda: _user_status(server, short["key"]) == 401)


def test_a_session_ends_with_logout(server: LocalServer) -> None:
    """After logout the cookie is worth nothing."""
    session = requests.Session()
    credentials = {"email": "out@example.com", "password": "x"}
    session.post(f"{server.base_url}/v1/auth/register", json=credentials, timeout=10)
    token = session.cookies["session"]
    assert _user_status(server, cookie=token) == 200
    assert session.post(f"{server.base_url}/v1/auth/logout", timeout=10).ok
    assert (_user_status(server, cookie=token), "session" in session.cookies) == (401, False)


def test_usage_counts_what_runs_and_what_is_stored() -> None:
    """Usage tells running sandboxes and their storage against the plan's limits."""
    with LocalServer() as server:
        client = Client(server)
        client.create()
        client.create(persist=True, storage_size="10Gi")
        usage = client.ask("GET", "/v1/usage").json()
    assert usage["limits"]["current_running"] == 2
    assert usage["storage"]["current_used_gib"] == 10
    assert usage["storage"]["available_gib"] == usage["storage"]["total_quota_gib"] - 10


def test_all_problems_of_the_profile_are_told_and_nothing_starts() -> None:
    """A bad profile ends with 2 and a line for each problem, without a traceback."""
    done = run("--profile", "ready=x error=5 seed=1")
    assert (done.returncode, done.stdout) == (2, "")
    assert [line.split(":")[:3] for line in done.stderr.splitlines()] == [
        ["localserver", " profile", " ready=x"],
        ["localserver", " profile", " error=5"],
    ]


@pytest.mark.parametrize(
    ("arguments", "environment", "told"),
    [
        (["--port", "99999"], {}, "'99999' is not a port"),
        (["--truth", "/no/such/folder/t"], {}, "cannot write /no/such/folder/t: No such file or directory"),
        ([], {"LOCALSERVER_API_KEY": "secret"}, "LOCALSERVER_API_KEY must begin with sk-"),
        (["--frob"], {}, "unrecognized arguments: --frob"),
    ],
)
def test_what_was_mistyped_is_told_plainly(
    arguments: list[str], environment: dict[str, str], told: str
) -> None:
    """Whatever is wrong with how it was started is said in a line, with exit code 2 and no traceback."""
    done = run(*arguments, **environment)
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert "secret" not in done.stderr


def test_foreign_sandboxes_need_an_owner() -> None:
    """Without the seeded account there is nobody to own foreign sandboxes, and that is said."""
    with pytest.raises(RuntimeError, match="foreign=3 needs an owner: set LOCALSERVER_API_KEY"):
        LocalServer(profile="foreign=3", api_key=None).__enter__()


def test_a_port_in_use_is_told_in_one_line() -> None:
    """When the port is taken, the server says so and ends with 2."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("--port", str(taken.getsockname()[1]))
    assert done.returncode == 2
    assert done.stderr.startswith("localserver: cannot listen on 127.0.0.1:")
    assert len(done.stderr.splitlines()) == 1


def test_without_a_key_it_says_how_to_begin() -> None:
    """A server without accounts tells how to make the first one, with its own URL."""
    with LocalServer(api_key=None) as server:
        assert eventually(lambda: "auth login" in server.stderr())
        assert f"treadstone --base-url {server.base_url} auth register" in server.stderr()


def test_the_seeded_account_is_the_admin_and_its_key_is_never_shown(server: LocalServer) -> None:
    """`local@example.com` is there from the start, admin and verified; its key appears nowhere."""
    client = Client(server)
    user = client.ask("GET", "/v1/auth/user").json()
    assert (user["email"], user["role"], user["is_verified"]) == ("local@example.com", "admin", True)
    assert API_KEY not in client.ask("GET", "/v1/auth/api-keys").text
    assert server.stderr() == ""


def test_it_shares_no_code_with_the_load_test() -> None:
    """The witness is independent: nothing of the plugin is loaded by it."""
    code = "import prep.localserver.__main__, sys; print([m for m in sys.modules if 'treadstone' in m])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def _user_status(server: LocalServer, key: str | None = None, cookie: str | None = None) -> int:
    return requests.get(
        f"{server.base_url}/v1/auth/user",
        headers={"Authorization": f"Bearer {key}"} if key else {},
        cookies={"session": cookie} if cookie else None,
        timeout=10,
    ).status_code


def _serves(base_url: str) -> bool:
    try:
        return requests.get(f"{base_url}/health", timeout=1).ok
    except requests.RequestException:
        return False
