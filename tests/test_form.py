"""What Locust's start form offers, and what it may choose.

In a process of their own, as importing Locust changes the one that does.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.runs import PYTHON, ROOT
from treadstone_user.scenario import scenario_names

NAMES = scenario_names(ROOT / "scenarios")
STEADY = "none: a steady load"
FILE = "tests/elsewhere.yaml"

OFFER = """
import json, sys
from locust import argument_parser
from treadstone_user.options import add_options

def parser(*_, **__):
    made = argument_parser.get_empty_argument_parser(add_help=False)
    add_options(made)
    return made

argument_parser.get_parser = parser
print(json.dumps([argument_parser.ui_extra_args_dict(arguments) for arguments in json.loads(sys.argv[1])]))
"""

CHOOSE = """
import argparse, json, sys
from dataclasses import replace
from pathlib import Path
from treadstone_user.options import choose_scenario
from treadstone_user.settings import BaseUrl, Settings, steady_scenario
from treadstone_user.transports.base import TreadstoneError

def choose(given, url, approved, chosen):
    before = Settings(
        scenario=steady_scenario("tiny"), scenario_file=given, scenario_option=given, template="tiny",
        approved=approved, base_url=url and BaseUrl(url, "--base-url"), local_profile=None, binary=None,
        warm_cli=None, results_dir=Path("results"), cleanup=True, strict=False, at_once=None,
    )
    try:
        after = choose_scenario(before, chosen, options=argparse.Namespace(num_users=1))
    except TreadstoneError as error:
        return str(error)
    assert replace(after, scenario=before.scenario, scenario_file=given) == before, "nothing else changes"
    return [after.scenario_file, after.scenario.total]

print(json.dumps([choose(*case) for case in json.loads(sys.argv[1])]))
"""


def answers(script: str, cases: list[Any]) -> list[Any]:
    """What a script says of each case."""
    command = [str(PYTHON), "-c", script, json.dumps(cases)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found: list[Any] = json.loads(done.stdout)
    return found


def test_form_offers_names_a_steady_load_and_what_the_command_line_says() -> None:
    """A select shows its first choice where its default is none of them: it would start another run."""
    offered = answers(OFFER, [[], ["--scenario", NAMES[2]], ["--scenario", FILE]])
    assert [list(options) for options in offered] == [["scenario"]] * 3, "no path, program or server"
    assert [(one["scenario"]["choices"], one["scenario"]["default_value"]) for one in offered] == [
        ([STEADY, *NAMES], None),
        ([STEADY, *NAMES], NAMES[2]),
        ([STEADY, *NAMES, FILE], FILE),
    ]


def choices(
    *chosen: str, given: str | None = None, url: str | None = None, approved: bool = False
) -> list[Any]:
    """The scenario file and total of each choice, or why it is refused."""
    return answers(CHOOSE, [[given, url, approved, one] for one in chosen])


def test_form_may_choose_each_scenario_by_its_name() -> None:
    """And nothing else changes with it."""
    assert [file for file, _ in choices(*NAMES)] == [f"scenarios/{name}.yaml" for name in NAMES]


def test_form_may_choose_what_the_command_line_said_or_a_steady_load() -> None:
    """A file of the command line stays as it was read, wherever it is."""
    assert choices(FILE, STEADY, given=FILE) == [[FILE, 1], [None, 1]]


def test_anything_else_is_refused() -> None:
    """A request can say what it likes: no path is read, though it may lead to a scenario."""
    name = NAMES[0]
    paths = ["../../etc/passwd", "/etc/passwd", f"scenarios/{name}", f"../scenarios/{name}", FILE, ".", "\0"]
    for refusal in choices(*paths, f"{name}.yaml", f" {name}", name.upper(), "no_such_scenario"):
        assert "in scenarios/; there are: mixed_burst, " in refusal


@pytest.mark.parametrize(
    ("url", "approved", "allowed"),
    [
        ("https://treadstone.example", False, False),
        ("https://treadstone.example", True, True),
        ("http://127.0.0.1:9", False, True),
    ],
)
def test_many_sandboxes_on_another_machine_want_approval_whoever_asks(
    url: str, approved: bool, allowed: bool
) -> None:
    """What the form chooses is checked as what the command line says; a few are always allowed."""
    few, many = choices("pilot_stateless", "stateless_burst", url=url, approved=approved)
    assert few[1] == 15
    assert (many[1] == 100) if allowed else ("more than 20 there want approval" in many)
