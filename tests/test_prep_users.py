"""Accounts in bulk: each once, each fit, and whatever fails is told with its reason."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import time
from pathlib import Path

import pytest

from prep.users import read_addresses
from tests.prepared import Prep
from tests.rawserver import Step, raw_server, whole
from tests.runs import ROOT
from tests.servers import API_KEY, LocalServer
from treadstone_user.transports.base import ConfigError


def test_one_is_the_first_try_and_more_may_follow(tmp_path: Path) -> None:
    """The default count is 1; a count is of all there shall be, and what is there stays."""
    with LocalServer(profile="plans=free") as server:
        prep = Prep(server, tmp_path)
        assert prep.run("users")[0] == 0
        (first,) = prep.content["users"]
        code, said = prep.run("users", "--count", "3", "--tier", "pro")
        assert (code, prep.registered()) == (0, 4)
        assert "3 accounts, 3 verified, 0 failed" in said
        users = prep.content["users"]
        assert [user["email"] for user in users] == [f"loadtest-000{n}@example.com" for n in (1, 2, 3)]
        assert (users[0]["user_id"], users[0]["password"]) == (first["user_id"], first["password"])
        assert {(user["tier"], user["max_running"], user["verified"]) for user in users} == {("pro", 5, True)}
        assert stat.S_IMODE(prep.store.stat().st_mode) == 0o600
        assert API_KEY not in prep.store.read_text()
        assert all(user["password"] not in said for user in users)


def test_an_admin_gives_a_limit_of_its_own(tmp_path: Path) -> None:
    """As an override, on top of the tier."""
    with LocalServer(profile="plans=free") as server:
        prep = Prep(server, tmp_path)
        assert prep.run("users", "--tier", "ultra", "--max-running", "200")[0] == 0
        (user,) = prep.content["users"]
        assert (user["tier"], user["max_running"]) == ("ultra", 200)


def test_killed_half_way_and_run_again_none_is_made_twice(tmp_path: Path) -> None:
    """SIGKILL loses what was not saved, and the next run finds it on the server."""
    with LocalServer() as server:
        prep = Prep(server, tmp_path)
        command = prep.command("users", "--count", "20", "--rate", "20", "--concurrency", "4")
        process = subprocess.Popen(command, cwd=ROOT, env=prep.environment(), stdout=subprocess.DEVNULL)
        end = time.monotonic() + 20
        while prep.registered() < 9 and time.monotonic() < end:
            time.sleep(0.02)
        process.kill()
        process.wait()
        assert 9 <= prep.registered() < 21, "half way"
        code, said = prep.run("users", "--count", "20")
        assert (code, prep.registered()) == (0, 21), said
        emails = [user["email"] for user in prep.content["users"]]
        assert (len(emails), len(set(emails))) == (20, 20)
        assert prep.run("api_keys")[0] == 0, "their passwords are known"


def test_ctrl_c_ends_what_was_begun_and_saves(tmp_path: Path) -> None:
    """Exit code 4, and nothing that the server has lacks in the store."""
    with LocalServer() as server:
        prep = Prep(server, tmp_path)
        command = prep.command("users", "--count", "50", "--rate", "20")
        process = subprocess.Popen(
            command, cwd=ROOT, env=prep.environment(), stderr=subprocess.PIPE, text=True
        )
        end = time.monotonic() + 20
        while prep.registered() < 6 and time.monotonic() < end:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
        assert process.returncode == 4
        assert "run the same command again" in said
        made = [user for user in prep.content["users"] if user["user_id"]]
        assert len(made) == prep.registered() - 1


def test_a_wrong_admin_is_told_before_anything_is_made(tmp_path: Path) -> None:
    """One that the server does not know, one that is no admin, and half a login."""
    with LocalServer() as server:
        prep = Prep(server, tmp_path)
        code, said = prep.run("users", TREADSTONE_ADMIN_PASSWORD="another")
        assert code == 2
        assert "the admin of the environment cannot log in: 400 invalid" in said
        assert "another" not in said
        (failed,) = prep.content["failed"]
        assert (failed["step"], failed["item"], failed["status"]) == ("users", "admin", 400)
        assert "PASSWORD is not" in prep.run("users", TREADSTONE_ADMIN_PASSWORD="")[1]
        prep.ready(1)
        (user,) = prep.content["users"]
        credentials = {f"TREADSTONE_ADMIN_{name.upper()}": user[name] for name in ("email", "password")}
        code, said = prep.run("users", "--count", "2", **credentials)
        assert (code, prep.registered()) == (2, 2)
        assert "is no admin of this server" in said
        assert prep.content["failed"][0]["status"] == 403
        assert [user["email"] for user in prep.content["users"]] == ["loadtest-0001@example.com"]


def test_without_an_admin_they_are_made_and_must_verify(tmp_path: Path) -> None:
    """That is said, and a plan cannot be set."""
    with LocalServer() as server:
        prep = Prep(server, tmp_path)
        environment = {name: value for name, value in prep.environment().items() if "ADMIN" not in name}
        done = subprocess.run(
            prep.command("users"), cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0
        assert "must verify by mail" in done.stdout
        assert prep.content["users"][0]["verified"] is False


def test_duplicates_and_taken_addresses_are_told(tmp_path: Path) -> None:
    """Each with its reason; the others are made."""
    with LocalServer() as server:
        prep = Prep(server, tmp_path)
        addresses = tmp_path / "addresses.txt"
        addresses.write_text("# mine\na@x.org\nlocal@example.com\na@x.org\nb@x.org\n")
        code, said = prep.run("users", "--from-file", str(addresses))
        assert code == 1
        assert "2 accounts, 2 verified, 2 failed" in said
        failed = {one["item"]: (one["kind"], one["status"]) for one in prep.content["failed"]}
        assert failed == {"a@x.org": ("duplicate", None), "local@example.com": ("conflict", 409)}
        assert [user["email"] for user in prep.content["users"]] == ["a@x.org", "b@x.org"]


def test_a_full_server_is_told_for_each_and_the_next_run_goes_on(tmp_path: Path) -> None:
    """Failures of an earlier run are replaced by those of this one."""
    with LocalServer(profile="max_users=3") as server:
        prep = Prep(server, tmp_path)
        code, said = prep.run("users", "--count", "4")
        assert (code, prep.registered()) == (1, 3)
        assert "2 accounts, 2 verified, 2 failed" in said
        assert {one["status"] for one in prep.content["failed"]} == {503}
        failed = {one["item"] for one in prep.content["failed"]}
        there = {user["email"] for user in prep.content["users"]}
        assert (len(failed), len(there), failed & there) == (2, 2, set())
        addresses = tmp_path / "there.txt"
        addresses.write_text("\n".join(there))
        assert prep.run("users", "--from-file", str(addresses))[0] == 0
        assert prep.content["failed"] == []


REFUSED = whole('{"error": {"code": "x", "message": "taken", "status": 409}}', 409)
AWAY = whole("", 503)


@pytest.mark.parametrize(
    ("answers", "kind"),
    [([["close"]] * 4, "connect_error"), ([[REFUSED], *[[AWAY]] * 4], "unclear")],
    ids=["no answer", "no login"],
)
def test_an_account_that_may_be_there_keeps_its_password(
    tmp_path: Path, answers: list[list[Step]], kind: str
) -> None:
    """Its registration was sent; nobody but the store would know the password."""
    with raw_server(*answers) as raw, LocalServer() as server:
        base_url = raw.url.removesuffix("/v1/sandboxes/sb1/proxy")
        prep = Prep(server, tmp_path)
        none = {"TREADSTONE_ADMIN_EMAIL": "", "TREADSTONE_ADMIN_PASSWORD": ""}
        code, said = prep.run("users", "--base-url", base_url, **none)
        assert code == 1, said
        (user,), (failed,) = prep.content["users"], prep.content["failed"]
        assert (user["email"], user["user_id"], failed["kind"]) == ("loadtest-0001@example.com", "", kind)
        assert len(user["password"]) > 10


def test_two_commands_do_not_work_on_one_store(tmp_path: Path) -> None:
    """The one that saves last would undo what the other one has saved."""
    with LocalServer() as server:
        prep = Prep(server, tmp_path)
        command = prep.command("users", "--count", "40", "--rate", "20")
        process = subprocess.Popen(command, cwd=ROOT, env=prep.environment(), stdout=subprocess.DEVNULL)
        end = time.monotonic() + 20
        while prep.registered() < 3 and time.monotonic() < end:
            time.sleep(0.02)
        code, said = prep.run("users", "--prefix", "other")
        assert (code, "another command works on" in said) == (2, True)
        assert process.wait(timeout=20) == 0
        assert prep.run("users", "--prefix", "other")[0] == 0
        assert len(prep.content["users"]) == prep.registered() - 1 == 41


def test_a_second_ctrl_c_ends_it_at_once(tmp_path: Path) -> None:
    """Though a server that never answers would be waited for."""
    with socket.create_server(("127.0.0.1", 0)) as silent, LocalServer() as server:
        prep = Prep(server, tmp_path)
        base_url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        environment = prep.environment(TREADSTONE_ADMIN_EMAIL="")
        command = prep.command("users", "--base-url", base_url)
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
        silent.accept()
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert process.poll() is None, "the first one waits"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=15)
        assert (process.returncode, "run the same command again" in said) == (4, True)
        assert len(prep.content["users"]) == 1


@pytest.mark.parametrize("content", ['{"users": null}', "5", "[" * 100_000])
def test_a_file_without_addresses_is_told(content: str, tmp_path: Path) -> None:
    """Whatever stands in it."""
    path = tmp_path / "addresses.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_addresses(path)


def test_mistakes_are_told_in_a_line(tmp_path: Path) -> None:
    """No server, another server's store, a damaged store, a file without addresses."""
    with LocalServer() as server:
        prep = Prep(server, tmp_path)
        assert "which server?" in prep.run("users", TREADSTONE_BASE_URL="")[1]
        assert prep.run("users")[0] == 0
        code, said = prep.run("users", "--base-url", "http://127.0.0.1:9")
        assert (code, "name another --store" in said) == (2, True)
        empty = tmp_path / "empty.csv"
        empty.write_text("name\nx\n")
        assert "one a line, or a CSV" in prep.run("users", "--from-file", str(empty))[1]
        prep.store.write_text('{"run_id": "x", "users": [{"email": 3}], "more": 1}')
        code, said = prep.run("users")
        assert code == 2
        for problem in ("more: unknown key", "base_url: must be text", "users[0].password: is required"):
            assert problem in said
        os.unlink(prep.store)  # noqa: PTH108 - a path of the test's own
        assert "there is no store" in prep.run("api_keys")[1]
