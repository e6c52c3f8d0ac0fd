"""The config file is read strictly, and never holds a credential."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadstone_user.configfile import ConfigFile, load_config
from treadstone_user.transports.base import ConfigError

ROOT = Path(__file__).parent.parent

READ = [
    # what it proves, the file's text, the settings
    ("both keys are read", "base_url: http://x\nbinary_version: 0.9.3\n", ConfigFile("http://x", "0.9.3")),
    ("each key may be left out", "base_url: http://x\n", ConfigFile("http://x", None)),
    ("null is as good as nothing", "base_url:\n", ConfigFile()),
    ("an empty file says nothing", "", ConfigFile()),
    ("a file of comments says nothing", "# base_url: http://x\n", ConfigFile()),
    ("an empty document says nothing", "---\n", ConfigFile()),
]

REFUSED = [
    # what it proves, the file's text, what the error says
    (
        "unknown keys come with the one that was meant",
        "bas_url: x",
        "bas_url: unknown key; did you mean base_url?",
    ),
    (
        "a duplicate key comes with both lines",
        "base_url: a\nbase_url: b",
        "base_url: given twice, on line 1 and on line 2",
    ),
    ("a number is not a version", "binary_version: 0.9", "binary_version: must be text, not 0.9"),
    ("a list is no file of settings", "- base_url", "must hold keys and values, not a list"),
    ("unreadable YAML comes with its place", "base_url: [", "line 1, column 12: "),
    ("an API key has no place here", "api_key: sk-1", "set the environment variable TREADSTONE_API_KEY"),
]


@pytest.mark.parametrize(("text", "config"), [row[1:] for row in READ], ids=[row[0] for row in READ])
def test_reads(text: str, config: ConfigFile, tmp_path: Path) -> None:
    file = tmp_path / "treadstone.config.yaml"
    file.write_text(text)
    assert load_config(file, required=True) == config


@pytest.mark.parametrize(("text", "says"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refuses(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "treadstone.config.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(file, required=False)
    assert f"{file}: " in str(caught.value)
    assert says in str(caught.value)


def test_tells_all_problems_at_once_and_never_a_credential(tmp_path: Path) -> None:
    """One problem a line, and the key's value in none of them."""
    file = tmp_path / "c.yaml"
    file.write_text("api_key: sk-secret\nbase_url: 7\nversion: 1\n")
    with pytest.raises(ConfigError) as caught:
        load_config(file, required=True)
    told = str(caught.value)
    assert [line.split(": ")[1] for line in told.splitlines()] == ["api_key", "version", "base_url"]
    assert "sk-secret" not in told


def test_a_missing_file_is_empty_unless_it_was_named(tmp_path: Path) -> None:
    assert load_config(tmp_path / "no.yaml", required=False) == ConfigFile()
    with pytest.raises(ConfigError, match=r"no\.yaml: there is no such file"):
        load_config(tmp_path / "no.yaml", required=True)


def test_a_directory_is_no_config_file(tmp_path: Path) -> None:
    """It is told even where a missing file would do."""
    with pytest.raises(ConfigError, match="is not a file"):
        load_config(tmp_path, required=False)


def test_the_example_can_be_copied_as_it_is() -> None:
    config = load_config(ROOT / "treadstone.config.example.yaml", required=True)
    assert config == ConfigFile("https://api.treadstone-ai.dev", "latest")
