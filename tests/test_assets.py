"""The asset store: whole, for its owner alone, and every problem told."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from treadstone_user.assets import Failed, Key, PreparedSandbox, Store, User, load_assets, save_assets
from treadstone_user.leftovers import started_at
from treadstone_user.transports.base import ConfigError

STORE = Store(
    "20260101-000000",
    "http://127.0.0.1:1",
    [User("a@x.org", "secret-password", "user1", True, "pro", 5), User("b@x.org", "other")],
    [Key("a@x.org", "key1", "sk-secret", "loadtest", None)],
    [PreparedSandbox("sb1", "a@x.org", "t", "loadtest:run-20260101-000000", None)],
    [Failed("users", "c@x.org", "conflict", 409, "taken")],
)


def test_a_store_comes_back_as_it_was(tmp_path: Path) -> None:
    """In a folder that is made, readable for its owner alone, whatever the file was before."""
    path = tmp_path / "new" / "assets.json"
    save_assets(STORE, path)
    assert load_assets(path) == STORE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    save_assets(STORE, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["assets.json"]


def test_two_stores_of_a_moment_have_two_names() -> None:
    """And none is named as a run is, so that no sweep takes what was prepared."""
    names = {Store.new("x").run_id for _ in range(20)}
    assert len(names) > 15
    assert all(started_at(name) is None for name in names)


def test_no_text_of_it_shows_a_secret() -> None:
    """As logs and tracebacks would."""
    text = repr(STORE)
    assert "secret-password" not in text
    assert "sk-secret" not in text


def test_a_write_that_fails_leaves_the_old_one(tmp_path: Path) -> None:
    """And no half-written file."""
    path = tmp_path / "assets.json"
    save_assets(STORE, path)
    before = path.read_bytes()
    broken = Store("x", "y", [User("a@x.org", object())])  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        save_assets(broken, path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["assets.json"]


PROBLEMS = [
    ("[]", ["must be a JSON object"]),
    ("{", ["cannot be read as a store"]),
    ('{"run_id": 1}', ["run_id: must be text", "base_url: must be text"]),
    (
        '{"run_id": "x", "base_url": "y", '
        '"api_keys": [{"email": "a", "key_id": "1", "key": "sk 1", "name": "n"}]}',
        ["api_keys[0].key: must be of printable letters, without blanks"],
    ),
    ('{"run_id": "x", "base_url": "y", "extra": 1}', ["extra: unknown key"]),
    ('{"run_id": "x", "base_url": "y", "users": {}}', ["users: must be a list"]),
    (
        '{"run_id": "x", "base_url": "y", "users": [{"email": "a", "verified": "yes", "more": 1}, 3]}',
        [
            "users[0].more: unknown key",
            "users[0].password: is required",
            "users[0].verified: must be bool, not str",
            "users[1]: must be an object",
        ],
    ),
    (
        '{"run_id": "x", "base_url": "y", "api_keys": [{"email": "", "key_id": "", "key": 7, "name": ""}]}',
        ["api_keys[0].key: must be str, not int"],
    ),
]


@pytest.mark.parametrize(("text", "told"), PROBLEMS)
def test_all_problems_are_told_with_their_paths(tmp_path: Path, text: str, told: list[str]) -> None:
    """And no value that may be a secret."""
    path = tmp_path / "assets.json"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_assets(path)
    for problem in told:
        assert problem in str(caught.value)
    assert len(str(caught.value).splitlines()) == len(told)


def test_lists_may_lack_and_older_rows_may_lack_what_is_optional(tmp_path: Path) -> None:
    """A store that somebody wrote by hand needs no more than this."""
    path = tmp_path / "assets.json"
    users = [{"email": "a@x.org", "password": "p"}]
    path.write_text(json.dumps({"run_id": "x", "base_url": "http://x", "users": users}))
    assert load_assets(path).users == [User("a@x.org", "p")]
