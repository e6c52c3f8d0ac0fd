"""The credential of a call: the CLI's own rules, and nothing of it in any text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from treadstone_user.transports.base import ConfigError
from treadstone_user.transports.credentials import Credential, find_credential, read_cli_config

URL = "https://treadstone.example.com"
KEY, OTHER_KEY, TOKEN = "sk-of-the-environment", "sk-of-the-config-file", "token-of-the-session"


def _home(folder: Path, *, config: str | bytes | None = None, session: str | bytes | None = None) -> Path:
    """A home with the CLI's files in it."""
    place = folder / ".config" / "treadstone"
    place.mkdir(parents=True)
    for name, content in (("config.toml", config), ("session.json", session)):
        if content is not None:
            (place / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


CONFIG = f'[default]\napi_key = "{OTHER_KEY}"\n'
SESSION = json.dumps({URL: TOKEN, "https://other.example.com": "another"})

# fmt: off
FOUND: list[tuple[str, str | None, str | None, str | None, tuple[str, str] | None]] = [
    # what it proves,                       environment, config.toml, session.json, header and value
    ("the environment goes first",          KEY,  CONFIG, SESSION, ("Authorization", f"Bearer {KEY}")),
    ("it needs no file",                    KEY,  None,   None,    ("Authorization", f"Bearer {KEY}")),
    ("then the config file",                None, CONFIG, SESSION, ("Authorization", f"Bearer {OTHER_KEY}")),
    ("an empty variable is none",           "",   CONFIG, SESSION, ("Authorization", f"Bearer {OTHER_KEY}")),
    ("then the saved session",              None, None,   SESSION, ("Cookie", f"session={TOKEN}")),
    ("a config file without a key",         None, "[default]\nbase_url = 'x'\n", SESSION,
                                                                   ("Cookie", f"session={TOKEN}")),
    ("an empty key in it",                  None, "[default]\napi_key = ''\n", SESSION,
                                                                   ("Cookie", f"session={TOKEN}")),
    ("a key outside of its table",          None, f"api_key = '{OTHER_KEY}'\n", None, None),
    ("a table that is none",                None, "default = 5\n", None, None),
    ("a session of another server",         None, None, '{"https://other.example.com": "another"}', None),
    ("a session that was ended",            None, None, json.dumps({URL: ""}), None),
    ("sessions that are a list",            None, None, "[]", None),
    ("nothing anywhere",                    None, None, None, None),
]
# fmt: on


@pytest.mark.parametrize(
    ("key", "config", "session", "expected"), [row[1:] for row in FOUND], ids=[row[0] for row in FOUND]
)
def test_where_the_credential_is_found(
    key: str | None, config: str | None, session: str | None, expected: tuple[str, str] | None, tmp_path: Path
) -> None:
    """The environment's key, else the config file's, else the session saved for this very server."""
    environment = {"HOME": str(_home(tmp_path, config=config, session=session))}
    if key is not None:
        environment["TREADSTONE_API_KEY"] = key
    found = find_credential(environment, URL)
    assert (found and (found.header, found.value)) == expected


# fmt: off
BROKEN: list[tuple[str, dict[str, str | bytes], str]] = [
    # what it proves,             files,                                                      the one named
    ("no TOML",                   {"config": f"[default\napi_key = '{OTHER_KEY}'"},           "config.toml"),
    ("no text",                   {"config": b"\xff\xfe" + OTHER_KEY.encode()},               "config.toml"),
    ("a key that stands twice",   {"config": f"{CONFIG}api_key = '{OTHER_KEY}'"},             "config.toml"),
    ("no JSON",                   {"session": f'{{"{URL}": "{TOKEN}"'},                       "session.json"),
    ("an empty file",             {"session": ""},                                            "session.json"),
    ("bytes that are no text",    {"session": b"\xff" + TOKEN.encode()},                      "session.json"),
]
# fmt: on


@pytest.mark.parametrize(("files", "named"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_a_broken_file_is_named(files: dict[str, str | bytes], named: str, tmp_path: Path) -> None:
    """What cannot be read ends the run with the file's path, and with nothing of what is in it."""
    home = _home(tmp_path, **files)
    with pytest.raises(ConfigError) as caught:
        find_credential({"HOME": str(home)}, URL)
    assert str(home / ".config" / "treadstone" / named) in str(caught.value)
    assert not [secret for secret in (OTHER_KEY, TOKEN) if secret in str(caught.value)]


@pytest.mark.parametrize("name", ["config.toml", "session.json"])
def test_a_folder_in_place_of_a_file_is_named(name: str, tmp_path: Path) -> None:
    """A path that is there and no file is a mistake to be told, too."""
    (tmp_path / ".config" / "treadstone" / name).mkdir(parents=True)
    with pytest.raises(ConfigError, match=f"{name} cannot be read"):
        find_credential({"HOME": str(tmp_path)}, URL)


def test_a_key_of_the_environment_needs_no_readable_file(tmp_path: Path) -> None:
    """Where the environment has a key, no file is asked, as the files may be anything."""
    home = _home(tmp_path, config="[", session="{")
    found = find_credential({"HOME": str(home), "TREADSTONE_API_KEY": KEY}, URL)
    assert found == Credential("Authorization", f"Bearer {KEY}")


def test_a_home_that_is_not_there(tmp_path: Path) -> None:
    """A home without the CLI's folder, or none at all, has no credential and no settings."""
    for home in (tmp_path, tmp_path / "nowhere"):
        assert find_credential({"HOME": str(home)}, URL) is None
        assert read_cli_config({"HOME": str(home)}) == {}


@pytest.mark.parametrize("environment", [{}, {"HOME": ""}])
def test_without_a_variable_home_is_that_of_the_user(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service may run without HOME: the system knows its home, as the CLI does."""
    monkeypatch.setattr(Path, "home", lambda: _home(tmp_path, config=CONFIG))
    found = find_credential(environment, URL)
    assert found == Credential("Authorization", f"Bearer {OTHER_KEY}")


def test_no_text_of_a_credential_holds_its_secret() -> None:
    """However it is written, into a log or a traceback, the header is told and the secret is not."""
    credential = Credential("Authorization", f"Bearer {KEY}")
    texts = [repr(credential), str(credential), f"{credential}", f"{[credential]}", f"{ {'a': credential} }"]
    assert not [text for text in texts if KEY in text]
    assert "Authorization" in repr(credential)
