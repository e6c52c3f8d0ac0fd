"""The local server's admin routes, verification and scoped keys, over real sockets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.api import PASSWORD, TINY, Api, admin_key, admin_session, new_account, refused
from tests.servers import LocalServer

ADMINS = ("GET /v1/admin/users/{user}/usage", "PATCH /v1/admin/users/{user}/plan")
"""What an admin may do with a key or a session."""
ADMIN_SESSIONS = (
    "GET /v1/admin/platform-limits",
    "GET /v1/admin/verification-token-by-email?email=nobody@example.com",
    "GET /v1/admin/users/lookup-by-email?email=local@example.com",
)
"""What opens to an admin's session only."""


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    """A server with enforced plans, for tests that each bring their own account."""
    with LocalServer(profile="plans=custom ready=fixed(0.03) gone=fixed(0)") as running:
        yield running


def ask(api: Api, route: str, **given: str) -> requests.Response:
    """Send a request by its method and path."""
    method, path = route.format(**given).split()
    body = {"tier": "pro"} if method == "PATCH" else None
    return api.ask(method, path, json=body)


def test_whoever_has_the_mailed_token_verifies_the_address(server: LocalServer) -> None:
    """Before it an account may not create, after it it may; a token works once."""
    account = new_account(server, verified=False)
    assert refused(account.ask("POST", "/v1/sandboxes", json=TINY)) == (403, "email_verification_required")
    email = account.ask("GET", "/v1/auth/user").json()["email"]
    path = f"/v1/admin/verification-token-by-email?email={email}"
    mail = admin_session(server).ask("GET", path).json()
    assert (mail["user_id"], mail["verify_url"].endswith(mail["token"])) == (account.user_id, True)
    confirm = {"json": {"token": mail["token"]}}
    assert Api(server.base_url).ask("POST", "/v1/auth/verification/confirm", **confirm).ok
    account.create()
    again = account.ask("POST", "/v1/auth/verification/confirm", **confirm)
    assert refused(again) == (400, "email_already_verified")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"token": "made-up"}, (400, "email_verification_token_invalid")),
        ({}, (422, "validation_error")),
        ({"token": 5}, (422, "validation_error")),
    ],
)
def test_what_is_no_token_verifies_nothing(
    server: LocalServer, body: dict[str, Any], told: tuple[int, str]
) -> None:
    """A token that was never mailed is refused, and so is none."""
    answer = Api(server.base_url).ask("POST", "/v1/auth/verification/confirm", json=body)
    assert refused(answer) == told


def test_mail_that_is_really_sent_cannot_be_read_here() -> None:
    """With `mail=smtp` the token's route is as if it were not there, for admins; others may not even ask."""
    with LocalServer(profile="mail=smtp") as server:
        account = new_account(server, verified=False)
        email = account.ask("GET", "/v1/auth/user").json()["email"]
        path = f"/v1/admin/verification-token-by-email?email={email}"
        assert refused(admin_session(server).ask("GET", path)) == (404, "not_found")
        assert refused(account.ask("GET", path)) == (403, "forbidden")


@pytest.mark.parametrize("route", [*ADMINS, *ADMIN_SESSIONS, "DELETE /v1/auth/users/{user}"])
def test_only_admins_may(server: LocalServer, route: str) -> None:
    """Nobody is asked who they are, anybody else is refused, by session and by key."""
    other = new_account(server)
    assert refused(ask(Api(server.base_url), route, user=other.user_id)) == (401, "auth_required")
    for caller in (other, other.new_key()):
        answer = ask(caller, route, user=other.user_id)
        assert refused(answer) == (403, "forbidden")
        assert answer.json()["error"]["message"] == "Admin required"


@pytest.mark.parametrize("route", ADMINS)
def test_an_admins_key_is_as_good_as_the_session(server: LocalServer, route: str) -> None:
    """For most of what an admin does."""
    user = new_account(server).user_id
    assert ask(admin_key(server), route, user=user).ok
    assert ask(admin_session(server), route, user=user).ok


@pytest.mark.parametrize("route", ADMIN_SESSIONS)
def test_what_is_delicate_opens_to_a_session_only(server: LocalServer, route: str) -> None:
    """An admin's key is told so."""
    answer = ask(admin_key(server), route)
    assert refused(answer) == (401, "auth_invalid")
    assert answer.json()["error"]["message"] == "Admin session cookie required."
    assert ask(admin_session(server), route).status_code == (404 if "nobody@" in route else 200)


@pytest.mark.parametrize("route", [*ADMINS, "DELETE /v1/auth/users/{user}"])
def test_an_unknown_user_is_not_found(server: LocalServer, route: str) -> None:
    """Whatever an admin wants of it."""
    answer = ask(admin_key(server), route, user="user0")
    assert refused(answer) == (404, "not_found")
    assert answer.json()["error"]["message"] == "User 'user0' not found."


class Changer:
    """Changes one account's plan as the admin."""

    def __init__(self, server: LocalServer) -> None:
        self.account = new_account(server)
        self._admin = admin_key(server)

    def change(self, **wanted: Any) -> requests.Response:
        """Ask for a change."""
        return self._admin.ask("PATCH", f"/v1/admin/users/{self.account.user_id}/plan", json=wanted)

    def changed(self, **wanted: Any) -> dict[str, Any]:
        """Change the plan and tell it, as its account is told it, too."""
        plan: dict[str, Any] = self.change(**wanted).json()
        assert self.account.ask("GET", "/v1/usage/plan").json() == plan
        return plan


def test_an_admin_moves_an_account_and_lifts_its_limits(server: LocalServer) -> None:
    """Overrides add up, and hold at once; a tier with overrides begins them anew."""
    changer = Changer(server)
    changer.account.create()
    assert refused(changer.account.ask("POST", "/v1/sandboxes", json=TINY))[0] == 429
    plan = changer.changed(overrides={"max_concurrent_running": 2})
    assert (plan["tier"], plan["max_concurrent_running"]) == ("free", 2)
    changer.account.create()
    plan = changer.changed(overrides={"storage_capacity_limit_gib": 5})
    assert plan["overrides"] == {"max_concurrent_running": 2, "storage_capacity_limit_gib": 5}
    plan = changer.changed(tier="ultra", overrides={"max_concurrent_running": 3})
    assert (plan["max_concurrent_running"], plan["storage_capacity_limit_gib"]) == (3, 60)
    assert plan["overrides"] == {"max_concurrent_running": 3}


def test_a_tier_alone_ends_overrides_and_still_tells_them(server: LocalServer) -> None:
    """As the real server does, so that nobody trusts what `overrides` says."""
    changer = Changer(server)
    changer.changed(overrides={"max_concurrent_running": 200})
    plan = changer.changed(tier="custom")
    assert (plan["max_concurrent_running"], plan["overrides"]) == (50, {"max_concurrent_running": 200})


@pytest.mark.parametrize(
    ("wanted", "told", "message"),
    [
        ({"tier": "gold"}, (404, "not_found"), "TierTemplate 'gold' not found."),
        ({}, (422, "validation_error"), "At least one of 'tier' or 'overrides' must be provided."),
        ({"overrides": {"speed": 9}}, (422, "validation_error"), "Invalid override key: 'speed'. Allowed"),
        ({"overrides": {"max_concurrent_running": "9"}}, (422, "validation_error"), "override value"),
        ({"tier": "pro", "overrides": {"speed": 9}}, (422, "validation_error"), "Invalid override key"),
        ({"tier": 5}, (422, "validation_error"), "tier: Input should be a valid string"),
    ],
)
def test_a_change_that_makes_no_sense_changes_nothing(
    server: LocalServer, wanted: dict[str, Any], told: tuple[int, str], message: str
) -> None:
    """Not even the part of it that does."""
    changer = Changer(server)
    before = changer.account.ask("GET", "/v1/usage/plan").json()
    answer = changer.change(**wanted)
    assert refused(answer) == told
    assert message in answer.json()["error"]["message"]
    assert changer.account.ask("GET", "/v1/usage/plan").json() == before


def test_an_account_is_deleted_with_all_it_has(tmp_path: Path) -> None:
    """Its address is free, its credentials are void; a sandbox that nobody deleted goes on, truth be told."""
    truth = tmp_path / "truth.jsonl"
    with LocalServer(profile="ready=fixed(0.5)", truth=truth) as server:
        admin, account = admin_key(server), new_account(server)
        key, email = account.new_key(), account.ask("GET", "/v1/auth/user").json()["email"]
        sandbox_id = key.create()
        assert admin.ask("DELETE", f"/v1/auth/users/{account.user_id}").status_code == 204
        assert refused(key.ask("GET", "/v1/auth/user")) == (401, "auth_invalid")
        assert refused(account.ask("GET", "/v1/auth/user")) == (401, "auth_required")
        again = {"email": email, "password": PASSWORD}
        assert Api(server.base_url).ask("POST", "/v1/auth/register", json=again).status_code == 201
        limits = admin_session(server).ask("GET", "/v1/admin/platform-limits").json()
        assert limits["usage"]["total_sandboxes"] == 0
    (left,) = [json.loads(line) for line in truth.read_text().splitlines()]
    assert (left["id"], left["delete_requested"], left["gone"]) == (sandbox_id, None, None)


def test_an_account_whose_sandbox_ever_ran_cannot_be_deleted(server: LocalServer) -> None:
    """Not even when the sandbox is long gone."""
    account = new_account(server)
    account.ask("DELETE", f"/v1/sandboxes/{account.create_ready()}")
    assert account.ask("GET", "/v1/sandboxes").json()["total"] == 0
    answer = admin_key(server).ask("DELETE", f"/v1/auth/users/{account.user_id}")
    assert refused(answer) == (409, "conflict")
    assert account.ask("GET", "/v1/auth/user").ok


def test_an_admin_cannot_delete_itself(server: LocalServer) -> None:
    """Somebody must be left."""
    admin = admin_key(server)
    own = admin.ask("GET", "/v1/auth/user").json()["id"]
    assert refused(admin.ask("DELETE", f"/v1/auth/users/{own}")) == (400, "bad_request")


def test_an_admin_sees_all_accounts_and_others_their_own(server: LocalServer) -> None:
    """Newest first, in pages, by a part of the address."""
    first, second = new_account(server), new_account(server)
    admin = admin_key(server)
    everybody = admin.ask("GET", "/v1/auth/users").json()
    assert [item["id"] for item in everybody["items"]][:2] == [second.user_id, first.user_id]
    page = admin.ask("GET", "/v1/auth/users?limit=1&offset=1").json()
    assert ([item["id"] for item in page["items"]], page["total"]) == ([first.user_id], everybody["total"])
    assert [one["email"] for one in admin.ask("GET", "/v1/auth/users?email=LOCAL@").json()["items"]] == [
        "local@example.com"
    ]
    own = first.ask("GET", "/v1/auth/users").json()
    assert ([item["id"] for item in own["items"]], own["total"]) == ([first.user_id], 1)


def exec_status(api: Api, sandbox_id: str) -> int:
    """The status with which a command in a sandbox is answered."""
    path = f"/v1/sandboxes/{sandbox_id}/proxy/v1/shell/exec"
    return api.ask("POST", path, json={"command": "echo hi"}).status_code


def test_a_key_opens_what_its_scope_says(server: LocalServer) -> None:
    """The control plane, the sandboxes, all or some of them, or nothing at all."""
    admin = admin_key(server)
    mine, other = admin.create_ready(), admin.create_ready()
    selected = {"mode": "selected", "sandbox_ids": [mine, mine]}
    scopes: list[tuple[dict[str, Any], tuple[int, int, int]]] = [
        ({}, (200, 200, 200)),
        ({"control_plane": False}, (403, 200, 200)),
        ({"data_plane": {"mode": "none"}}, (200, 403, 403)),
        ({"data_plane": selected}, (200, 200, 403)),
        ({"control_plane": False, "data_plane": {"mode": "none"}}, (403, 403, 403)),
    ]
    for scope, statuses in scopes:
        key = admin.new_key(scope=scope)
        control = key.ask("GET", "/v1/sandboxes").status_code
        assert (control, exec_status(key, mine), exec_status(key, other)) == statuses, scope
    shown = [item["scope"] for item in admin.ask("GET", "/v1/auth/api-keys").json()["items"]]
    assert {"control_plane": True, "data_plane": {"mode": "selected", "sandbox_ids": [mine]}} in shown


@pytest.mark.parametrize(
    ("scope", "message"),
    [
        ({"control_plane": "yes"}, "scope -> control_plane: Input should be a valid boolean"),
        ({"data_plane": []}, "scope -> data_plane: Input should be a valid dictionary"),
        ({"data_plane": {"mode": "some"}}, "mode: Input should be 'none', 'all' or 'selected'"),
        ({"data_plane": {"mode": ["all"]}}, "mode: Input should be 'none', 'all' or 'selected'"),
        ({"data_plane": {"mode": "selected"}}, "sandbox_ids must be provided when data_plane.mode=selected."),
        ({"data_plane": {"sandbox_ids": ["sb1"]}}, "sandbox_ids is only allowed when data_plane.mode=sel"),
        ({"data_plane": {"mode": "selected", "sandbox_ids": [5]}}, "sandbox_ids: Input should be a valid"),
        ({"data_plane": {"mode": "selected", "sandbox_ids": ["sb1"]}}, "must all belong to the current user"),
    ],
)
def test_a_scope_that_makes_no_sense_is_told(
    server: LocalServer, scope: dict[str, Any], message: str
) -> None:
    """And no key is made."""
    account = new_account(server)
    answer = account.ask("POST", "/v1/auth/api-keys", json={"scope": scope})
    assert refused(answer) == (422, "validation_error")
    assert message in answer.json()["error"]["message"]
    assert account.ask("GET", "/v1/auth/api-keys").json()["items"] == []
