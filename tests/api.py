"""A plain client of the API for tests of the local server, for any of its accounts."""

from __future__ import annotations

import time
from itertools import count
from typing import Any

import requests

from tests.servers import LocalServer

TINY = {"template": "aio-sandbox-tiny", "labels": {"loadtest": "run-1"}}
PASSWORD = "Passw0rd123"
SEEDED_EMAIL = "local@example.com"

_numbers = count(1)


class Api(requests.Session):
    """Asks one server with one credential.

    Args:
        base_url: the server's.
        key: sent as a bearer key; None for a session or for nobody.
    """

    def __init__(self, base_url: str, key: str | None = None) -> None:
        super().__init__()
        self.base_url = base_url
        self.user_id = ""
        if key is not None:
            self.headers["Authorization"] = f"Bearer {key}"

    def ask(self, method: str, path: str, **arguments: Any) -> requests.Response:
        """Send a request, and await its answer for ten seconds."""
        return self.request(method, self.base_url + path, **{"timeout": 10, **arguments})

    def create(self, **wanted: Any) -> str:
        """Create a sandbox and give its id."""
        answer = self.ask("POST", "/v1/sandboxes", json={**TINY, **wanted})
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def create_ready(self, **wanted: Any) -> str:
        """Create a sandbox, wait until it is ready, and give its id."""
        sandbox_id = self.create(**wanted)
        deadline = time.monotonic() + 5
        while self.ask("GET", f"/v1/sandboxes/{sandbox_id}").json()["status"] != "ready":
            assert time.monotonic() < deadline, f"{sandbox_id} does not become ready"
            time.sleep(0.01)
        return sandbox_id

    def new_key(self, **wanted: Any) -> Api:
        """Make a key of this account's, and give a client that uses it."""
        answer = self.ask("POST", "/v1/auth/api-keys", json=wanted)
        assert answer.status_code == 201, answer.text
        return Api(self.base_url, answer.json()["key"])


def admin_key(server: LocalServer) -> Api:
    """The account that is there from the start, by its key."""
    return Api(server.base_url, server.api_key)


def admin_session(server: LocalServer) -> Api:
    """The account that is there from the start, by a session: its password is its key."""
    api = Api(server.base_url)
    credentials = {"email": SEEDED_EMAIL, "password": server.api_key}
    assert api.ask("POST", "/v1/auth/login", json=credentials).ok
    return api


def new_account(server: LocalServer, *, verified: bool = True) -> Api:
    """A new account by its session; its address is verified by the admin's means."""
    api, email = Api(server.base_url), f"user{next(_numbers)}@example.com"
    answer = api.ask("POST", "/v1/auth/register", json={"email": email, "password": PASSWORD})
    assert answer.status_code == 201, answer.text
    api.user_id = answer.json()["id"]
    if verified:
        path = f"/v1/admin/verification-token-by-email?email={email}"
        token = admin_session(server).ask("GET", path).json()["token"]
        assert api.ask("POST", "/v1/auth/verification/confirm", json={"token": token}).ok
    return api


def refused(answer: requests.Response) -> tuple[int, str]:
    """The status and the code with which a request was refused."""
    return answer.status_code, answer.json()["error"]["code"]
