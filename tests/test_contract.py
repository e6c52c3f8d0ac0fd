"""The local server is held to what the real one was recorded to do (`tests/contract`).

Every recording is replayed against a real server process over a real socket, those of the CLI by the real
CLI. What must differ (ids, times, keys, ports, made-up names) is replaced by a placeholder on both sides;
everything else must be equal. Where a body tells numbers of its installation, only its shape is compared.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.servers import LocalServer

Recording = dict[str, Any]

CONTRACT = Path(__file__).parent / "contract"
PASSWORD = "Passw0rd123"
ADMIN = "a@example.com"
BAD_KEY = "sk-" + 48 * "0"
SERVERS = {
    "steady": "ready=fixed(60) gone=fixed(60)",
    "lingering": "ready=fixed(0.05) gone=fixed(60)",
    "swift": "ready=fixed(0.05) gone=fixed(0)",
    "unreached": "ready=fixed(0.05) proxy=fixed(600)",
    "free": "ready=fixed(60) plans=free",
}
"""Servers by the states that they hold still: creating; ready and deleting; ready and gone; ready and out of
reach; creating as many as a free plan allows."""


def _recordings(name: str) -> dict[int, Recording]:
    lines = (CONTRACT / name).read_text(encoding="utf-8").splitlines()
    return {number: json.loads(line) for number, line in enumerate(lines, start=1)}


CLI = _recordings("cli-0.9.3.jsonl")
HTTP = _recordings("http.jsonl")


@dataclass(frozen=True, kw_only=True)
class Situation:
    """The circumstances of a replay.

    `given` puts names of this replay where the recording has its own; key and session are the credential.
    """

    base_url: str
    key: str | None = None
    session: str | None = None
    given: Mapping[str, str] = field(default_factory=dict)

    def here(self, recorded: str) -> str:
        """Put what is given here into a recorded text."""
        for theirs, ours in self.given.items():
            recorded = recorded.replace(theirs, ours)
        return recorded


class Stage:
    """One running server with its admin, and the means to bring it into a state."""

    _emails = count(1)

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self.session = self.register(ADMIN)
        self.key = self.new_key(self.session)

    def register(self, email: str) -> str:
        """Register an account and give its session."""
        return self.sign_up(email)[1]

    def sign_up(self, email: str) -> tuple[str, str]:
        """Register an account and give its id and its session."""
        made = self._post("/v1/auth/register", email=email, password=PASSWORD)
        return str(made.json()["id"]), str(made.cookies["session"])

    def token(self, email: str) -> str:
        """Give the token that was mailed to an address."""
        mailed = requests.get(
            f"{self.base_url}/v1/admin/verification-token-by-email",
            params={"email": email},
            cookies={"session": self.session},
            timeout=10,
        )
        return str(mailed.json()["token"])

    def verified(self) -> tuple[str, str]:
        """Register and verify an account, and give its id and its session."""
        email = self.new_email()
        user_id, session = self.sign_up(email)
        self._post("/v1/auth/verification/confirm", token=self.token(email))
        return user_id, session

    def new_email(self) -> str:
        """Make an address that nobody has registered."""
        return f"fresh{next(self._emails)}@example.com"

    def new_key(self, session: str) -> str:
        """Make an API key for the account of a session."""
        made = self._post("/v1/auth/api-keys", cookies={"session": session}, name="bench")
        return str(made.json()["key"])

    def create(self, recorded: Mapping[str, Any], *, key: str | None = None) -> str:
        """Create a sandbox as recorded, with the admin's key or another, and give its id."""
        wanted = {name: recorded[name] for name in _SPEC if recorded.get(name) is not None}
        return str(self.call("POST", "/v1/sandboxes", key=key, json=wanted).json()["id"])

    def create_ready(self, recorded: Mapping[str, Any], *, key: str | None = None) -> str:
        """Create a sandbox as recorded, with the admin's key or another, and wait until it is ready."""
        sandbox_id = self.create(recorded, key=key)
        deadline = time.monotonic() + 5
        while self.call("GET", f"/v1/sandboxes/{sandbox_id}", key=key).json()["status"] != "ready":
            assert time.monotonic() < deadline, f"{sandbox_id} does not become ready"
            time.sleep(0.02)
        return sandbox_id

    def stop(self, sandbox_id: str) -> None:
        """Stop a sandbox."""
        self.call("POST", f"/v1/sandboxes/{sandbox_id}/stop")

    def delete(self, sandbox_id: str) -> None:
        """Delete a sandbox."""
        self.call("DELETE", f"/v1/sandboxes/{sandbox_id}")

    def as_admin(self, **given: str) -> Situation:
        """Call with the admin's key."""
        return Situation(base_url=self.base_url, key=self.key, given=given)

    def call(self, method: str, path: str, *, key: str | None = None, **arguments: Any) -> requests.Response:
        """Send a request that must succeed, with the admin's key or another."""
        headers = {"Authorization": f"Bearer {key or self.key}"}
        response = requests.request(method, self.base_url + path, headers=headers, timeout=10, **arguments)
        response.raise_for_status()
        return response

    def _post(self, path: str, *, cookies: dict[str, str] | None = None, **body: Any) -> requests.Response:
        response = requests.post(self.base_url + path, json=body, cookies=cookies, timeout=10)
        response.raise_for_status()
        return response


_SPEC = ("template", "labels", "auto_stop_interval", "auto_delete_interval", "persist", "storage_size")
_TINY = json.loads(CLI[13]["stdout"])
_PERSISTENT = json.loads(CLI[14]["stdout"])
_OVER_HTTP = HTTP[19]["body"]
_RECORDED_EMAIL = HTTP[5]["request"]["json"]["email"]
_RECORDED_USER = HTTP[5]["body"]["id"]

Setup = Callable[[Stage], Situation]


def admin(stage: Stage) -> Situation:
    """The admin, by key."""
    return stage.as_admin()


def admin_session(stage: Stage) -> Situation:
    """The admin, by session."""
    return Situation(base_url=stage.base_url, session=stage.session)


def nobody(stage: Stage) -> Situation:
    """No credential."""
    return Situation(base_url=stage.base_url)


def bad_key(stage: Stage) -> Situation:
    """A key that the server does not know."""
    return Situation(base_url=stage.base_url, key=BAD_KEY)


def unverified(stage: Stage) -> Situation:
    """An account that is not the server's first."""
    return Situation(base_url=stage.base_url, key=stage.new_key(stage.register(stage.new_email())))


def nothing_listens(_stage: Stage) -> Situation:
    """A base URL that nobody serves, and no credential."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        return Situation(base_url=f"http://127.0.0.1:{free.getsockname()[1]}")


def nothing_listens_with_key(stage: Stage) -> Situation:
    """A base URL that nobody serves, and a key."""
    return replace(nothing_listens(stage), key=BAD_KEY)


def two_keys(stage: Stage) -> Situation:
    """An admin with a second key."""
    stage.new_key(stage.session)
    return stage.as_admin()


def as_many_as_allowed(stage: Stage) -> Situation:
    """An admin whose plan has no room beside what runs."""
    # A refusal here means that it runs already, since this test run's last case.
    with contextlib.suppress(requests.HTTPError):
        stage.create(_TINY)
    return stage.as_admin()


def mailed(stage: Stage) -> Situation:
    """An account that was mailed a token, and an admin's session to see it with."""
    email = stage.new_email()
    user_id, _ = stage.sign_up(email)
    given = {_RECORDED_EMAIL: email, _RECORDED_USER: user_id}
    return Situation(base_url=stage.base_url, session=stage.session, given=given)


def token_in_hand(stage: Stage) -> Situation:
    """An account that was mailed a token, and that token."""
    stage.register(email := stage.new_email())
    return Situation(base_url=stage.base_url, given={"<token>": stage.token(email)})


def another_account(stage: Stage) -> Situation:
    """An admin, and another's account."""
    return stage.as_admin(**{_RECORDED_USER: stage.verified()[0]})


def another_of_custom_tier(stage: Stage) -> Situation:
    """An admin, and another's account that has been given the custom tier."""
    user_id, _ = stage.verified()
    stage.call("PATCH", f"/v1/admin/users/{user_id}/plan", json={"tier": "custom"})
    return stage.as_admin(**{_RECORDED_USER: user_id})


def another_with_a_past(stage: Stage) -> Situation:
    """An admin, and another's account that has had a ready sandbox."""
    user_id, session = stage.verified()
    key = stage.new_key(session)
    stage.call("DELETE", f"/v1/sandboxes/{stage.create_ready(_TINY, key=key)}", key=key)
    return stage.as_admin(**{_RECORDED_USER: user_id})


def both_kinds(stage: Stage) -> Situation:
    """A list with a ready sandbox of either kind in it."""
    stage.create_ready(_TINY)
    stage.create_ready(_PERSISTENT)
    return stage.as_admin()


def creating(recorded: Mapping[str, Any]) -> Setup:
    """Have the recorded sandbox, created a moment ago."""
    return lambda stage: stage.as_admin(**{recorded["id"]: stage.create(recorded)})


def ready(recorded: Mapping[str, Any]) -> Setup:
    """Have the recorded sandbox, ready."""
    return lambda stage: stage.as_admin(**{recorded["id"]: stage.create_ready(recorded)})


def stopped(recorded: Mapping[str, Any]) -> Setup:
    """Have the recorded sandbox, ready and then stopped."""

    def setup(stage: Stage) -> Situation:
        stage.stop(sandbox_id := stage.create_ready(recorded))
        return stage.as_admin(**{recorded["id"]: sandbox_id})

    return setup


def deleted(recorded: Mapping[str, Any]) -> Setup:
    """Have the recorded sandbox, ready and then deleted."""

    def setup(stage: Stage) -> Situation:
        stage.delete(sandbox_id := stage.create_ready(recorded))
        return stage.as_admin(**{recorded["id"]: sandbox_id})

    return setup


def twin_exists(stage: Stage) -> Situation:
    """The name `twin` is taken."""
    # A conflict here means that it is taken already, by this test run earlier.
    with contextlib.suppress(requests.HTTPError):
        stage.call("POST", "/v1/sandboxes", json={"template": _TINY["template"], "name": "twin"})
    return stage.as_admin()


def fresh_address(recorded: str, *, registered: bool = False) -> Setup:
    """Stand an address of this replay in for the recorded one, and register it first if it was."""

    def setup(stage: Stage) -> Situation:
        email = stage.new_email()
        if registered:
            stage.register(email)
        return Situation(base_url=stage.base_url, given={recorded: email})

    return setup


@dataclass(frozen=True)
class Case:
    """How a recording is replayed: on which server, after what setup, and how closely it is compared."""

    server: str
    setup: Setup
    shape_only: bool = False


CLI_CASES = {
    1: Case("steady", nobody),
    2: Case("steady", nobody),
    3: Case("steady", fresh_address("loadtest@example.com")),
    4: Case("steady", nobody),
    5: Case("steady", nobody),
    6: Case("steady", admin_session),
    7: Case("steady", bad_key),
    8: Case("steady", nothing_listens),
    9: Case("steady", nobody),
    10: Case("steady", admin),
    11: Case("steady", two_keys, shape_only=True),
    12: Case("steady", admin),
    13: Case("steady", admin),
    14: Case("steady", admin),
    15: Case("steady", creating(_TINY)),
    16: Case("lingering", ready(_TINY)),
    17: Case("lingering", ready(_PERSISTENT)),
    18: Case("lingering", both_kinds, shape_only=True),
    19: Case("steady", admin),
    20: Case("steady", admin),
    21: Case("steady", admin),
    22: Case("steady", admin),
    23: Case("steady", admin),
    24: Case("steady", admin),
    25: Case("steady", admin),
    26: Case("steady", twin_exists),
    27: Case("steady", admin),
    28: Case("swift", ready(_TINY)),
    29: Case("swift", deleted(_TINY)),
    30: Case("lingering", both_kinds, shape_only=True),
    31: Case("lingering", ready(_PERSISTENT)),
    32: Case("lingering", stopped(_PERSISTENT)),
    33: Case("lingering", stopped(_PERSISTENT)),
    34: Case("steady", admin),
    35: Case("steady", admin),
    36: Case("steady", unverified),
    37: Case("steady", nothing_listens_with_key),
    38: Case("free", as_many_as_allowed),
    39: Case("free", admin),
    40: Case("free", as_many_as_allowed),
    41: Case("free", as_many_as_allowed),
}

_WEAK_EMAIL = HTTP[7]["request"]["json"]["email"]
HTTP_CASES = {
    1: Case("steady", nobody),
    2: Case("steady", nobody),
    3: Case("steady", nobody),
    4: Case("steady", admin),
    5: Case("steady", fresh_address(_RECORDED_EMAIL)),
    6: Case("steady", fresh_address(_RECORDED_EMAIL, registered=True)),
    7: Case("steady", fresh_address(_WEAK_EMAIL)),
    8: Case("steady", mailed),
    9: Case("steady", token_in_hand),
    10: Case("free", another_account),
    11: Case("free", another_of_custom_tier),
    12: Case("steady", fresh_address(_RECORDED_EMAIL, registered=True)),
    13: Case("steady", admin),
    14: Case("steady", admin, shape_only=True),
    15: Case("steady", admin, shape_only=True),
    16: Case("steady", unverified),
    17: Case("steady", admin_session, shape_only=True),
    18: Case("steady", admin),
    19: Case("steady", admin),
    20: Case("steady", creating(_OVER_HTTP)),
    21: Case("steady", creating(_OVER_HTTP)),
    22: Case("swift", creating(_OVER_HTTP), shape_only=True),
    23: Case("steady", admin),
    24: Case("unreached", ready(_OVER_HTTP)),
    25: Case("lingering", ready(_OVER_HTTP)),
    26: Case("lingering", deleted(_OVER_HTTP)),
    27: Case("lingering", deleted(_OVER_HTTP)),
    28: Case("steady", admin),
    29: Case("steady", admin),
    30: Case("swift", another_with_a_past),
}


class Stages:
    """The servers of this file, each started when it is first asked for."""

    def __init__(self, started: contextlib.ExitStack) -> None:
        self._started = started
        self._stages: dict[str, Stage] = {}

    def __getitem__(self, name: str) -> Stage:
        if name not in self._stages:
            server = self._started.enter_context(LocalServer(profile=SERVERS[name], api_key=None))
            self._stages[name] = Stage(server.base_url)
        return self._stages[name]

    @cached_property
    def cli(self) -> str:
        """The real CLI: the one beside this Python, or else the one on the path."""
        beside = Path(sys.executable).with_name("treadstone")
        found = str(beside) if beside.exists() else shutil.which("treadstone")
        assert found, "treadstone-cli is not installed: pip install -r requirements.txt"
        return found


@pytest.fixture(scope="module")
def stages() -> Iterator[Stages]:
    with contextlib.ExitStack() as started:
        yield Stages(started)


_PLACEHOLDERS = [
    (re.compile(pattern), placeholder)
    for pattern, placeholder in [
        (r"http://127\.0\.0\.1:\d+", "<base url>"),
        (r"\b(sb|user|key|plan)[0-9a-f]{16}\b", r"<\1 id>"),
        (r"\bsb-[a-z]+-[a-z]+-[0-9a-f]{4}\b", "<name>"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", "<time>"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?\+00:00", "<time with offset>"),
        (r"sk-(<redacted>|[0-9a-f]{48})", "<key>"),
        (r"sk-[0-9a-f]{4}\.\.\.[0-9a-f]{4}", "<key preview>"),
        (r"session=[^;]+", "session=<token>"),
        (r'"token": "[^"]+"', '"token": "<token>"'),
        (r"\?token=[\w-]+", "?token=<token>"),
        (r"Running: \d+ / \d+", "Running: <n> / <n>"),
        (r"\[COMMAND\]", "COMMAND"),  # as click spells it, by its version
    ]
]


def normal(text: str) -> str:
    """Replace what differs from one installation to another by a placeholder."""
    for pattern, placeholder in _PLACEHOLDERS:
        text = pattern.sub(placeholder, text)
    return text


def shape(value: Any) -> Any:
    """Reduce a value to its keys and types, and texts that are ids or times to their kind.

    Labels and names are whatever the one who created the sandbox wanted.
    """
    if isinstance(value, dict):
        return {key: key if key in ("labels", "name") else shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value]
    if isinstance(value, str):
        replaced = normal(value)
        return replaced if replaced.startswith("<") else "text"
    return type(value).__name__


def kinds(value: Any) -> Any:
    """Reduce a shape's lists of items to the different items in it."""
    if isinstance(value, dict) and isinstance(value.get("items"), list):
        different = {json.dumps(item, sort_keys=True) for item in value["items"]}
        return {**value, "items": sorted(different)}
    return value


@pytest.mark.parametrize("line", CLI_CASES, ids=lambda line: f"{line}: {' '.join(CLI[line]['argv'])}")
def test_the_cli_meets_what_it_met_at_the_real_server(line: int, stages: Stages, tmp_path: Path) -> None:
    """The real CLI, told the same, ends with the same exit code, output and error text."""
    recorded, case = CLI[line], CLI_CASES[line]
    situation = case.setup(stages[case.server])
    done = _run_cli(stages.cli, recorded["argv"], situation, home=tmp_path)
    assert done.returncode == recorded["exit"], done.stderr
    assert normal(done.stderr) == normal(situation.here(recorded["stderr"]))
    if case.shape_only:
        assert kinds(shape(json.loads(done.stdout))) == kinds(shape(json.loads(recorded["stdout"])))
    else:
        assert normal(done.stdout) == normal(situation.here(recorded["stdout"]))


@pytest.mark.parametrize(
    "line", HTTP_CASES, ids=lambda line: f"{line}: {HTTP[line]['request']['method']} {HTTP[line]['status']}"
)
def test_the_api_answers_as_the_real_server_did(line: int, stages: Stages) -> None:
    """The same request gets the same status, content type, cookie and body."""
    recorded, case = HTTP[line], HTTP_CASES[line]
    situation = case.setup(stages[case.server])
    response = _request(recorded["request"], situation)
    assert response.status_code == recorded["status"], response.text
    assert response.headers["content-type"] == recorded["headers"]["content-type"]
    assert _cookie(response.headers) == _cookie(recorded["headers"])
    body = response.json() if response.text else ""
    if case.shape_only:
        assert kinds(shape(body)) == kinds(shape(recorded["body"]))
    else:
        assert normal(json.dumps(body)) == normal(situation.here(json.dumps(recorded["body"])))


@pytest.mark.parametrize(("recordings", "cases"), [(CLI, CLI_CASES), (HTTP, HTTP_CASES)], ids=["cli", "http"])
def test_each_recording_is_replayed(recordings: Mapping[int, Recording], cases: Mapping[int, Case]) -> None:
    """No recording is passed over in silence."""
    assert sorted(cases) == sorted(recordings)


def _run_cli(
    cli: str, argv: list[str], situation: Situation, *, home: Path
) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TREADSTONE_")}
    environment["HOME"] = str(home)
    if situation.key is not None:
        environment["TREADSTONE_API_KEY"] = situation.key
    if situation.session is not None:
        sessions = home / ".config" / "treadstone" / "session.json"
        sessions.parent.mkdir(parents=True)
        sessions.write_text(json.dumps({situation.base_url: situation.session}), encoding="utf-8")
    arguments = [situation.here(argument) for argument in argv]
    return subprocess.run(
        [cli, "--base-url", situation.base_url, *arguments],
        env=environment,
        cwd=home,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _request(recorded: Mapping[str, Any], situation: Situation) -> requests.Response:
    headers = {"Authorization": f"Bearer {situation.key}"} if situation.key else {}
    body = recorded.get("json")
    params = {name: situation.here(str(value)) for name, value in recorded.get("params", {}).items()}
    # The POST that was recorded without JSON sent what is none: the decoder stopped at its second byte.
    data = "{" if body is None and recorded["method"] == "POST" else json.dumps(body) if body else None
    return requests.request(
        recorded["method"],
        situation.base_url + situation.here(recorded["path"]),
        params=params,
        headers=headers,
        cookies={"session": situation.session} if situation.session else None,
        data=None if data is None else situation.here(data),
        timeout=10,
    )


def _cookie(headers: Mapping[str, str]) -> set[str]:
    return set(normal(headers.get("set-cookie", "")).split("; "))
