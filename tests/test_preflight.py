"""Preflight finds out what is missing before anything is created, and says what to do."""

from __future__ import annotations

import os
import re
import socket
import stat
from pathlib import Path

import pytest

from tests.runs import TREADSTONE, clean_environment
from tests.scripted import Scripted, taking_turns
from treadstone_user.model import Template, Variant
from treadstone_user.preflight import check, compare, measure_startup, nowhere
from treadstone_user.transports.base import AuthError as NoCredential
from treadstone_user.transports.base import (
    BadOutput,
    BinaryNotFound,
    CallError,
    ConnectError,
    PreflightError,
    RequestTimeout,
    api_error,
)
from treadstone_user.transports.launch import ColdLauncher

URL = "http://127.0.0.1:8000"
OFFERED = [
    Template("tiny", "250m", "512Mi", ()),
    Template("large", "2", "4Gi", ("5Gi", "10Gi")),
]


def _stateless(template: str, index: int = 0) -> Variant:
    return Variant(index, template, 1)


def _persistent(template: str, size: str, index: int = 0) -> Variant:
    return Variant(index, template, 1, persist=True, storage_size=size)


COMPARED = [
    # what it proves, matrix, problems
    ("what is offered is no problem", [_stateless("tiny"), _persistent("large", "5Gi", 1)], []),
    (
        "an unknown template comes with those that there are",
        [_stateless("huge")],
        ["matrix[0].template: huge is not offered here; there are: large, tiny"],
    ),
    (
        "a size that is not allowed comes with those that are",
        [_persistent("large", "20Gi")],
        ["matrix[0].storage_size: large has no 20Gi here; there are: 5Gi, 10Gi"],
    ),
    (
        "a template without storage says so",
        [_persistent("tiny", "5Gi")],
        ["matrix[0].storage_size: tiny has no 5Gi here; there are: none"],
    ),
    (
        "all problems are told at once, each with its row",
        [_stateless("tiny"), _stateless("a", 1), _persistent("tiny", "5Gi", 2), _persistent("b", "5Gi", 3)],
        [
            "matrix[1].template: a is not offered here; there are: large, tiny",
            "matrix[2].storage_size: tiny has no 5Gi here; there are: none",
            "matrix[3].template: b is not offered here; there are: large, tiny",
        ],
    ),
]


@pytest.mark.parametrize(
    ("matrix", "problems"), [row[1:] for row in COMPARED], ids=[row[0] for row in COMPARED]
)
def test_the_matrix_is_held_against_the_offer(matrix: list[Variant], problems: list[str]) -> None:
    """Each row that the server cannot serve is a sentence with its path and what there is instead."""
    assert compare(matrix, OFFERED) == problems


def test_a_server_without_templates() -> None:
    """Where nothing is offered, that is said."""
    assert compare([_stateless("tiny")], []) == [
        "matrix[0].template: tiny is not offered here; there are: none"
    ]


LARGE = "template large: 2 CPU, 4Gi memory, 5Gi, 10Gi"
SMALL = "template tiny: 250m CPU, 512Mi memory, no storage"
SAID: list[tuple[str, list[Variant], list[str]]] = [
    # what it proves, matrix, the templates that are told
    ("without a matrix all, by name", [], [LARGE, SMALL]),
    ("those that the matrix uses", [_stateless("tiny")], [SMALL]),
    (
        "each once, by name",
        [_stateless("tiny"), _persistent("large", "5Gi", 1), _persistent("large", "10Gi", 2)],
        [LARGE, SMALL],
    ),
]


@pytest.mark.parametrize(("matrix", "templates"), [row[1:] for row in SAID], ids=[row[0] for row in SAID])
def test_a_good_server_tells_who_we_are_and_what_it_offers(
    matrix: list[Variant], templates: list[str]
) -> None:
    """What was found is said, a line each; all templates are found, and those that matter told."""
    said: list[str] = []
    transport = Scripted(on_templates=lambda: OFFERED)
    found = check(transport, base_url=URL, matrix=matrix, say=said.append)
    assert (found.account, found.templates) == ("a@example.com", tuple(OFFERED))
    assert said == [f"logged in at {URL} as a@example.com", *templates]
    assert not transport.of("create")


def test_a_matrix_that_does_not_fit_ends_preflight() -> None:
    """All rows that do not fit are told in one error."""
    matrix = [_stateless("a"), _stateless("b", 1)]
    with pytest.raises(PreflightError) as caught:
        check(Scripted(on_templates=lambda: OFFERED), base_url=URL, matrix=matrix, say=lambda _: None)
    assert str(caught.value).splitlines() == compare(matrix, OFFERED)


ADVICE: list[tuple[str, CallError, list[str]]] = [
    # what it proves, the error, what the advice holds
    (
        "no credential: both ways to have one",
        NoCredential("no API key and no saved session", status=None),
        ["not logged in", f"`treadstone --base-url {URL} auth login`", "TREADSTONE_API_KEY"],
    ),
    (
        "a refused credential: another one",
        api_error(401, "Invalid or expired API key."),
        ["refuses the credential (Invalid or expired API key.)", "valid key", "auth login"],
    ),
    ("nothing listens: address or --local", ConnectError("x"), ["no Treadstone server answers", "--local"]),
    ("nobody answers: the same", RequestTimeout("x"), ["no Treadstone server answers", "(x)"]),
    ("the server fails: its own words", api_error(503, "Down."), [f"{URL} answers 503 server_error: Down."]),
    ("it forbids: its own words", api_error(403, "Not you."), ["answers 403 forbidden: Not you."]),
    ("output that nobody can read", BadOutput("not JSON"), ["cannot be used: bad_output: not JSON"]),
    (
        "a CLI that does not start",
        BinaryNotFound("cannot start x"),
        ["cannot be used: binary_not_found: cannot start x"],
    ),
]


@pytest.mark.parametrize(("error", "holds"), [row[1:] for row in ADVICE], ids=[row[0] for row in ADVICE])
@pytest.mark.parametrize("step", ["on_health", "on_whoami", "on_templates"])
def test_each_error_comes_with_what_to_do(step: str, error: CallError, holds: list[str]) -> None:
    """Whatever fails, the address and the way out are in one message, and the cause is kept."""
    transport = Scripted(on_templates=lambda: OFFERED)
    setattr(transport, step, taking_turns(error))
    with pytest.raises(PreflightError) as caught:
        check(transport, base_url=URL, matrix=[_stateless("tiny")], say=lambda _: None)
    text = str(caught.value)
    assert URL in text
    assert [part for part in holds if part not in text] == [], text
    assert caught.value.__cause__ is error


def test_startup_of_the_real_cli(tmp_path: Path) -> None:
    """A CLI process takes a plausible time until it sends its first byte."""
    environment = clean_environment(tmp_path, TREADSTONE_API_KEY="sk-x")
    with nowhere() as refusing:
        seconds = measure_startup(ColdLauncher(TREADSTONE, environment), base_url=refusing, at_once=1)
    assert 0.05 < seconds < 20


def test_nowhere_refuses_and_nobody_else_can_listen_there() -> None:
    """Calls to it are refused at once, for as long as it is held."""
    with nowhere() as refusing:
        match = re.fullmatch(r"http://127\.0\.0\.1:([1-9]\d*)", refusing)
        assert match
        address = ("127.0.0.1", int(match[1]))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, timeout=5)
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(address)


def _script(path: Path, text: str) -> ColdLauncher:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return ColdLauncher(path, {"PATH": os.environ["PATH"]})


def test_startup_is_measured_in_two_rounds_at_once(tmp_path: Path) -> None:
    """So many processes start together, twice; the time is what one of them took, in seconds."""
    log = tmp_path / "log"
    lines = f"echo start >> {log}; sleep 0.6; echo end >> {log}"
    launcher = _script(tmp_path / "cli", f'{lines}; echo "Error: Connection refused." >&2; exit 1')
    seconds = measure_startup(launcher, base_url=URL, at_once=3)
    assert 0.6 <= seconds < 6
    assert log.read_text().split() == (["start"] * 3 + ["end"] * 3) * 2


def test_startup_with_an_answer_from_nowhere(tmp_path: Path) -> None:
    """A CLI that gets an answer where nothing listens goes through a proxy: that is told."""
    launcher = _script(tmp_path / "cli", """echo '{"status": "ok"}'""")
    with pytest.raises(PreflightError, match="is a proxy configured"):
        measure_startup(launcher, base_url=URL, at_once=1)


def test_startup_asks_where_it_is_told(tmp_path: Path) -> None:
    """The measured calls go to the address that reaches no server, and ask for nothing that needs a login."""
    log = tmp_path / "log"
    launcher = _script(tmp_path / "cli", f'echo "$@" >> {log}; echo "Error: Connection refused." >&2; exit 1')
    measure_startup(launcher, base_url=URL, at_once=1)
    assert log.read_text().splitlines() == [f"--json --base-url {URL} system health"] * 2
