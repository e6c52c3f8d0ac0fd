"""The README is true to the code."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.runs import PYTHON, ROOT
from treadstone_user.exitcode import ExitCode

README = (ROOT / "README.md").read_text()


@pytest.fixture(scope="module")
def options_help() -> str:
    """What `python -m treadstone_user options` prints."""
    done = subprocess.run(
        [PYTHON, "-m", "treadstone_user", "options"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_readme_names_every_option_with_its_variable(options_help: str) -> None:
    """The table holds exactly the options that the plugin adds, each with its variable."""
    documented = set(re.findall(r"^\| `(--[a-z-]+)` \| `(TREADSTONE_[A-Z_]+)` \|", README, re.MULTILINE))
    entries = re.findall(r"^  (--[a-z-]+)(.*?)(?=^  --|\Z)", options_help, re.MULTILINE | re.DOTALL)
    added = {(name, re.findall(r"TREADSTONE_[A-Z_]+", text)[-1]) for name, text in entries}
    assert documented == added
    assert len(added) > 10


def test_readme_names_every_exit_code() -> None:
    """The table of exit codes is the enumeration."""
    documented = [int(code) for code in re.findall(r"^\| (\d) \|", README, re.MULTILINE)]
    assert documented == [code.value for code in ExitCode]


def test_readme_names_every_scenario_and_requirement() -> None:
    """Each shipped scenario and each direct dependency is named."""
    names = [path.stem for path in (ROOT / "scenarios").glob("*.yaml")]
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    names += [line.split("==")[0] for line in lines if "==" in line]
    assert len(names) > 10
    assert [name for name in names if name not in README] == []
