"""Keys and sandboxes for the accounts of a store, and taking everything down."""

from __future__ import annotations

import json
import time
from pathlib import Path

from tests.prepared import Prep
from tests.servers import API_KEY, LocalServer


def test_each_account_gets_a_key_with_its_scope_and_age(tmp_path: Path) -> None:
    """The key works, within its scope, and a second run makes no second one."""
    with LocalServer() as server:
        prep = Prep(server, tmp_path)
        assert prep.run("users", "--count", "2")[0] == 0
        code, said = prep.run("api_keys", "--scope", "control", "--expires-in", "30d")
        assert code == 0, said
        keys = prep.content["api_keys"]
        assert {key["email"] for key in keys} == {user["email"] for user in prep.content["users"]}
        assert all(key["expires_at"] is not None and key["key"] not in said for key in keys)
        assert prep.ask("/v1/auth/user", keys[0]["key"])["email"] == keys[0]["email"]
        (made,) = prep.ask("/v1/auth/api-keys", keys[0]["key"])["items"]
        assert made["scope"] == {"control_plane": True, "data_plane": {"mode": "none", "sandbox_ids": []}}
        assert prep.run("api_keys")[0] == 0
        assert prep.content["api_keys"] == keys


def test_a_key_whose_answer_was_lost_is_revoked(tmp_path: Path) -> None:
    """Nobody can use it: its secret was told once."""
    with LocalServer() as server:
        prep = Prep(server, tmp_path)
        prep.ready(1)
        content = prep.content
        (lost,) = content["api_keys"]
        prep.store.write_text(json.dumps({**content, "api_keys": []}))
        assert prep.run("api_keys")[0] == 0
        (key,) = prep.content["api_keys"]
        (left,) = prep.ask("/v1/auth/api-keys", key["key"])["items"]
        assert left["id"] == key["key_id"] != lost["key_id"]


def test_an_account_that_cannot_log_in_is_told(tmp_path: Path) -> None:
    """The others get their keys."""
    with LocalServer() as server:
        prep = Prep(server, tmp_path)
        assert prep.run("users", "--count", "2")[0] == 0
        content = prep.content
        content["users"][0]["password"] = "another"
        prep.store.write_text(json.dumps(content))
        code, said = prep.run("api_keys")
        assert (code, len(prep.content["api_keys"])) == (1, 1)
        (failed,) = prep.content["failed"]
        assert (failed["step"], failed["item"], failed["status"]) == (
            "api_keys",
            "loadtest-0001@example.com",
            400,
        )
        assert "another" not in said


def test_sandboxes_are_made_once_and_are_ready(tmp_path: Path) -> None:
    """Also those of which the store does not know, as after a kill; they carry the store's label."""
    with LocalServer(profile="plans=free ready=fixed(0.5)") as server:
        prep = Prep(server, tmp_path)
        prep.ready(2)
        assert prep.run("sandboxes", "--count", "2")[0] == 0
        sandboxes = prep.content["sandboxes"]
        assert len(sandboxes) == 4
        prep.store.write_text(json.dumps({**prep.content, "sandboxes": []}))
        assert prep.run("sandboxes", "--count", "3")[0] == 0
        again = prep.content["sandboxes"]
        assert {one["id"] for one in sandboxes} < {one["id"] for one in again}
        assert len(again) == 6
        keys = {key["email"]: key["key"] for key in prep.content["api_keys"]}
        for one in again:
            there = prep.ask(f"/v1/sandboxes/{one['id']}", keys[one["email"]])
            assert (there["status"], there["urls"]["proxy"]) == ("ready", one["proxy"])
            assert there["labels"] == {"loadtest": f"run-{prep.content['run_id']}"}


def test_what_does_not_get_ready_is_deleted_and_told(tmp_path: Path) -> None:
    """One that turns error, and one that is too late."""
    with LocalServer(profile="error=100% ready=fixed(0.1)") as server:
        prep = Prep(server, tmp_path)
        prep.ready(1)
        code, said = prep.run("sandboxes")
        assert (code, prep.content["sandboxes"]) == (1, [])
        assert "status error" in said
    with LocalServer(profile="never=100%") as server:
        prep = Prep(server, tmp_path / "late")
        prep.ready(1)
        assert prep.run("sandboxes", "--ready-timeout", "0.5")[0] == 1
        (failed,) = prep.content["failed"]
        assert "status creating" in failed["error"]


def test_a_key_that_opens_nothing_any_more_is_made_anew(tmp_path: Path) -> None:
    """Revoked or expired; and what it made can be taken down without it."""
    with LocalServer(profile="ready=fixed(0.1) gone=fixed(0)") as server:
        prep = Prep(server, tmp_path)
        prep.ready(2)
        assert prep.run("sandboxes")[0] == 0
        lost, kept = prep.content["api_keys"]
        prep.ask(f"/v1/auth/api-keys/{lost['key_id']}", lost["key"], "DELETE")
        code, said = prep.run("remove", "--keep-users")
        assert (code, prep.content["sandboxes"]) == (0, []), said
        assert prep.run("api_keys")[0] == 0
        made, still = prep.content["api_keys"]
        assert (made["key_id"] != lost["key_id"], still) == (True, kept)
        assert prep.ask("/v1/auth/user", made["key"])["email"] == lost["email"]
        assert [prep.ask("/v1/sandboxes", key["key"])["total"] for key in (made, kept)] == [0, 0]


def test_what_was_made_before_a_refusal_is_kept(tmp_path: Path) -> None:
    """Two of three may run: they are in the store, and ready."""
    with LocalServer(profile="plans=free ready=fixed(0.1)") as server:
        prep = Prep(server, tmp_path)
        assert prep.run("users", "--tier", "pro", "--max-running", "2")[0] == 0
        assert prep.run("api_keys")[0] == 0
        code, said = prep.run("sandboxes", "--count", "3")
        assert (code, "2 sandboxes ready on 1 account, 1 failed" in said) == (1, True), said
        assert len(prep.content["sandboxes"]) == 2


def test_nobody_waits_for_ever(tmp_path: Path) -> None:
    """For an account without a key, and for a server that is away."""
    with LocalServer(profile="ready=fixed(1)") as server:
        prep = Prep(server, tmp_path)
        prep.ready(2)
        assert prep.run("sandboxes")[0] == 0
        content = prep.content
        prep.store.write_text(json.dumps({**content, "api_keys": content["api_keys"][:1]}))
        code, said = prep.run("sandboxes", "--ready-timeout", "3")
        assert (code, "its account has no key" in said) == (1, True)
        assert len(prep.content["sandboxes"]) == 2
        dead = {**content["api_keys"][1], "key": "sk-revoked"}
        prep.store.write_text(json.dumps({**content, "api_keys": [content["api_keys"][0], dead]}))
        code, said = prep.run("sandboxes")
        assert (code, "auth_error" in said or "401" in said, "asked again" in said) == (1, True, False), said
    with LocalServer(profile="ready=fixed(2) down=1+inf") as server:
        prep = Prep(server, tmp_path / "away")
        prep.ready(1)
        code, said = prep.run("sandboxes", "--ready-timeout", "2", "--timeout", "1")
        assert (code, "it is asked again" in said) == (1, True)
        assert len(prep.content["sandboxes"]) == 1, "nobody knows what has become of it"


def test_a_plans_limit_is_told_with_its_status(tmp_path: Path) -> None:
    """It is not tried again and again: a 429 of a plan stays one."""
    with LocalServer(profile="plans=free ready=fixed(0.1)") as server:
        prep = Prep(server, tmp_path)
        prep.ready(1, tier="free")
        began = time.monotonic()
        code, said = prep.run("sandboxes", "--count", "2")
        assert (code, time.monotonic() - began < 5) == (1, True)
        assert "429" in said
        assert prep.run("sandboxes", "--count", "1")[0] == 0, "the one that was made counts"
        assert len(prep.content["sandboxes"]) == 1


def test_everything_is_taken_down_in_order(tmp_path: Path) -> None:
    """Sandboxes, keys, accounts; others' stay, and a second time there is nothing to do."""
    with LocalServer(profile="ready=fixed(0.1) gone=fixed(0.3) foreign=5") as server:
        prep = Prep(server, tmp_path)
        prep.ready(3)
        assert prep.run("sandboxes", "--count", "2")[0] == 0
        idle = prep.run("users", "--count", "5")
        assert idle[0] == 0, "two more, which never have a sandbox"
        keys = [key["key"] for key in prep.content["api_keys"]]
        code, said = prep.run("remove")
        assert code == 5, said
        assert "0 sandboxes, 0 keys and 3 accounts left, 3 failed" in said
        assert "409" in said
        assert prep.registered() == 4, "the server keeps those of which a sandbox was ready"
        assert prep.ask("/v1/sandboxes")["total"] == 5
        assert [prep.ask("/v1/auth/user", key)["error"]["status"] for key in keys] == [401] * 3
        assert [prep.content[name] for name in ("api_keys", "sandboxes")] == [[], []]
        assert len(prep.content["users"]) == 3
        assert prep.run("remove")[0] == 5


def test_what_may_be_there_keeps_its_key(tmp_path: Path) -> None:
    """An account whose list was never seen, and one on which a run has left something."""
    with LocalServer(profile="list=500:100%") as server:
        prep = Prep(server, tmp_path)
        prep.ready(1)
        code, said = prep.run("remove")
        assert (code, "0 failed" in said) == (5, False), said
        assert [len(prep.content[name]) for name in ("users", "api_keys")] == [1, 1]
    with LocalServer(profile="ready=fixed(0.1)") as server:
        prep = Prep(server, tmp_path / "run")
        prep.ready(2)
        first, _ = prep.content["api_keys"]
        body = {"template": "aio-sandbox-tiny", "labels": {"loadtest": "run-20261201-060000"}}
        prep.ask("/v1/sandboxes", first["key"], "POST", json=body)
        code, said = prep.run("remove")
        assert (code, "sweep 20261201-060000 --accounts" in said) == (5, True), said
        assert prep.content["api_keys"] == [first]
        assert [user["email"] for user in prep.content["users"]] == [first["email"]]


def test_without_an_admin_the_accounts_stay(tmp_path: Path) -> None:
    """That is said; with one, all is gone, as none had a sandbox."""
    with LocalServer() as server:
        prep = Prep(server, tmp_path)
        prep.ready(2)
        code, said = prep.run("remove", TREADSTONE_ADMIN_EMAIL="")
        assert (code, "the accounts stay" in said) == (5, True)
        assert "may be removed" not in said
        code, said = prep.run("remove")
        assert (code, prep.registered()) == (0, 1), said
        assert [prep.content[name] for name in ("users", "api_keys", "sandboxes")] == [[], [], []]


def test_the_keys_may_stay_while_sandboxes_go(tmp_path: Path) -> None:
    """For the next run on the same accounts."""
    with LocalServer(profile="ready=fixed(0.1) gone=fixed(0)") as server:
        prep = Prep(server, tmp_path)
        prep.ready(1)
        assert prep.run("sandboxes")[0] == 0
        code, said = prep.run("remove", "--keep-users")
        assert (code, "may be removed" in said) == (0, False)
        content = prep.content
        assert (len(content["users"]), len(content["api_keys"]), content["sandboxes"]) == (1, 1, [])


def test_what_an_earlier_step_wrote_elsewhere_is_taken_over(tmp_path: Path) -> None:
    """Into a store of its own, which needs no base URL."""
    with LocalServer() as server:
        prep = Prep(server, tmp_path)
        prep.ready(1)
        other = Prep(server, tmp_path / "other")
        code, said = other.run("sandboxes", "--from-file", str(prep.store), TREADSTONE_BASE_URL="")
        assert code == 0, said
        assert other.content["users"] == prep.content["users"]
        assert len(other.content["sandboxes"]) == 1
        assert prep.content["sandboxes"] == []
        assert API_KEY not in other.store.read_text()
