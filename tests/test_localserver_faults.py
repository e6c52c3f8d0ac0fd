"""The local server's bad days: each can be produced on purpose, and the truth log stays true."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests as http

from tests.runs import json_lines
from tests.servers import API_KEY, LocalServer

HEADERS = {"Authorization": f"Bearer {API_KEY}"}


class Client:
    """Asks a server as a client of the API does."""

    def __init__(self, server: LocalServer) -> None:
        self._url = f"{server.base_url}/v1/sandboxes"
        self._session = http.Session()

    def ask(self, method: str, path: str = "", **more: Any) -> http.Response:
        """Send a request."""
        return self._session.request(method, self._url + path, headers=HEADERS, timeout=8, **more)

    def create(self) -> str:
        """Create a sandbox; its id."""
        answer = self.ask("POST", json={"template": "aio-sandbox-tiny", "labels": {"loadtest": "run-x"}})
        assert answer.status_code == 202, answer.text
        sandbox_id: str = answer.json()["id"]
        return sandbox_id


@pytest.mark.parametrize("status", [404, 409, 429, 500, 502, 503])
@pytest.mark.parametrize(("clause", "method"), [("list", "GET"), ("get", "GET"), ("delete", "DELETE")])
def test_refused_calls_change_nothing(clause: str, method: str, status: int) -> None:
    """Each call by its own clause, with an envelope; only a 429 says when to come back."""
    with LocalServer(profile=f"{clause}={status}:100%") as server:
        client = Client(server)
        sandbox_id = client.create()
        answer = client.ask(method, "" if clause == "list" else f"/{sandbox_id}")
        assert answer.status_code == status
        assert "error" in answer.json()
        assert answer.headers.get("Retry-After") == ("1" if status == 429 else None)
    with LocalServer() as server:
        client = Client(server)
        assert client.ask(method, "" if clause == "list" else f"/{client.create()}").ok


def test_a_lost_create_is_carried_out_and_never_answered(tmp_path: Path) -> None:
    """The connection ends without a byte; the sandbox is there, and in the truth log."""
    truth, requests = tmp_path / "truth.jsonl", tmp_path / "requests.jsonl"
    with LocalServer(profile="lost=100%", truth=truth, requests=requests) as server:
        client = Client(server)
        with pytest.raises(http.ConnectionError):
            client.create()
        assert client.ask("GET").json()["total"] == 1
    assert len(json_lines(truth)) == 1
    assert [line["fault"] for line in json_lines(requests)] == ["lost", None]


def test_a_lost_delete_is_carried_out_and_never_answered(tmp_path: Path) -> None:
    """Once more it is asked for, it is on its way already."""
    truth = tmp_path / "truth.jsonl"
    with LocalServer(profile="lost_delete=100% gone=fixed(0)", truth=truth) as server:
        client = Client(server)
        sandbox_id = client.create()
        with pytest.raises(http.ConnectionError):
            client.ask("DELETE", f"/{sandbox_id}")
        time.sleep(0.1)
        assert client.ask("GET").json()["total"] == 0
    assert json_lines(truth)[0]["gone"]


def _cut(answer: Callable[[], http.Response]) -> None:
    with pytest.raises((http.exceptions.ChunkedEncodingError, http.ConnectionError)):
        answer()


def _broken_json(answer: Callable[[], http.Response]) -> None:
    got = answer()
    assert got.ok
    with pytest.raises(ValueError, match=r"char|column"):
        json.loads(got.content)


def _gateway(answer: Callable[[], http.Response]) -> None:
    got = answer()
    assert (got.status_code, got.headers["Content-Type"]) == (502, "text/html")


def _page(answer: Callable[[], http.Response]) -> None:
    got = answer()
    assert (got.status_code, got.headers["Content-Type"]) == (200, "text/html")


def _big(answer: Callable[[], http.Response]) -> None:
    got = answer()
    assert len(got.content) > 10_000_000
    assert got.json()["total"] == 0


def _slow(answer: Callable[[], http.Response]) -> None:
    began = time.monotonic()
    assert answer().json()["total"] == 0
    assert time.monotonic() - began > 3


GARBLED = {
    "cut": _cut,
    "json": _broken_json,
    "html": _gateway,
    "page": _page,
    "big": _big,
    "slow": _slow,
    "reset": _cut,
}


@pytest.mark.parametrize("kind", GARBLED)
def test_garbled_answers(kind: str) -> None:
    """Each kind as its name says; health is never garbled."""
    with LocalServer(profile=f"garble={kind}:100%") as server:
        client = Client(server)
        GARBLED[kind](lambda: client.ask("GET"))
        assert http.get(f"{server.base_url}/health", timeout=5).ok


def test_a_key_expires() -> None:
    """From then on every call that needs one answers 401, and health does not."""
    with LocalServer(profile="expire=1") as server:
        client = Client(server)
        client.create()
        time.sleep(1.1)
        assert client.ask("GET").status_code == 401
        assert http.get(f"{server.base_url}/health", timeout=5).ok


def _answers(client: Client) -> bool:
    try:
        return client.ask("GET").ok
    except http.ConnectionError:
        return False


@pytest.mark.parametrize("clause", ["down", "down_delete"])
def test_the_server_goes_away_and_comes_back(clause: str, tmp_path: Path) -> None:
    """Refused meanwhile, at the same port and with its sandboxes afterwards."""
    with LocalServer(profile=f"{clause}=0.3+1 gone=fixed(60)", truth=tmp_path / "truth.jsonl") as server:
        client = Client(server)
        sandbox_id = client.create()
        if clause == "down_delete":
            assert client.ask("DELETE", f"/{sandbox_id}").ok
        time.sleep(0.7)
        assert not _answers(client)
        time.sleep(1.2)
        assert client.ask("GET").json()["total"] == 1
        time.sleep(0.5)
        assert _answers(client), "only once"
    assert len(json_lines(tmp_path / "truth.jsonl")) == 1


def test_the_server_goes_away_for_good() -> None:
    """And still ends when it is told to, with its truth log."""
    with LocalServer(profile="down=0.3+inf") as server:
        client = Client(server)
        client.create()
        time.sleep(0.7)
        assert not _answers(client)


@pytest.mark.parametrize(
    "clause", ["garble=nonsense:5%", "down=5", "down=inf+5", "delete=418:5%", "list=500", "expire=x"]
)
def test_what_is_no_fault_is_told(clause: str) -> None:
    """With what there is."""
    with pytest.raises(RuntimeError, match=clause.partition("=")[0]), LocalServer(profile=clause):
        pass


def test_the_same_seed_makes_the_same_faults() -> None:
    """Whatever else is asked in between."""

    def outcome(seed: int) -> list[int]:
        with LocalServer(profile=f"list=500:30% seed={seed}") as server:
            client = Client(server)
            return [client.ask("GET").status_code for _ in range(20)]

    assert outcome(5) == outcome(5)
    assert set(outcome(5)) == {200, 500}
