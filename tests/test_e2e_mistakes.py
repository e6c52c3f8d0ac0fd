"""Mistakes of the user's: one clear message, exit code 2, no sandbox, no folder, no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runs import TREADSTONE, Run, finished, json_lines, scenario_file
from tests.servers import API_KEY, LocalServer

FIVE_MISTAKES = """
name: five mistakes
matrix:
  - {template: aio-sandbox-tiny, count: 0}
  - {template: aio-sandbox-small, count: 2, persist: true}
concurency: 5
auto_stop_interval: -1
auto_delete_interval: 0
"""


def refused(folder: Path, *arguments: str, **environment: str) -> str:
    """Run Locust, which must refuse; returns the error lines."""
    code, run = finished(folder, *arguments, environment=environment)
    assert code == 2, run.output
    assert "Traceback" not in run.output
    assert run.all == []
    return "\n".join(line for line in run.output.splitlines() if line.startswith("error: "))


def test_five_mistakes_in_a_scenario_are_all_told_with_their_paths(tmp_path: Path) -> None:
    """All problems at once, each with its path; the server never hears of the run."""
    path = tmp_path / "five.yaml"
    path.write_text(FIVE_MISTAKES)
    requests = tmp_path / "requests.jsonl"
    with LocalServer(requests=requests) as server:
        said = refused(
            tmp_path, "--scenario", str(path), "--base-url", server.base_url, TREADSTONE_API_KEY=API_KEY
        )
    for where in (
        "matrix[0].count",
        "matrix[1].storage_size",
        "concurency",
        "auto_stop_interval",
        "auto_delete_interval",
    ):
        assert where in said
    assert len(said.splitlines()) == 5
    assert json_lines(requests) == []


def test_dry_run_prints_the_expansion_and_sends_nothing(tmp_path: Path) -> None:
    """Exit code 0, the matrix with its total, no request, no folder."""
    requests = tmp_path / "requests.jsonl"
    with LocalServer(requests=requests) as server:
        code, run = finished(
            tmp_path, "--scenario", "mixed_burst", "--base-url", server.base_url, "--dry-run"
        )
    assert code == 0
    assert "aio-sandbox-medium" in run.output
    assert "100" in run.output
    assert json_lines(requests) == []
    assert run.all == []


def test_dry_run_prints_to_a_terminal_that_knows_only_ascii(tmp_path: Path) -> None:
    """What cannot be shown is replaced."""
    ascii_only = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    code, run = finished(tmp_path, "--scenario", "pilot_stateless", "--dry-run", environment=ascii_only)
    assert code == 0, run.output
    assert "aio-sandbox-tiny" in run.output


def test_scenario_names_are_found_from_anywhere(tmp_path: Path) -> None:
    """In a folder without scenarios/, a name means one of the project's own."""
    arguments = ["--headless", "--scenario", "pilot_stateless", "--dry-run"]
    with Run(tmp_path, *arguments, cwd=tmp_path) as run:
        assert run.wait() == 0, run.output
    assert "15" in run.output


# fmt: off
CASES = [
    # what the user gives                                      what the message holds
    (["--scenario", "/nowhere/x.yaml"],                        ["no scenario file", "pilot_stateless"]),
    (["--scenario", "{folder}/broken.yaml"],                   ["broken.yaml", "line 2, column 1"]),
    (["--local", "--binary", "/nowhere/treadstone"],           ["/nowhere/treadstone"]),
    (["--local", "--binary", "/bin/echo"],                     ["/bin/echo", "is not the treadstone CLI"]),
    (["--local", "--binary", "{treadstone}", "--binary-version", "0.0.1"], ["0.9.3", "0.0.1"]),
    (["--base-url", "http://127.0.0.1:9"],                     ["no Treadstone server answers", "--local"]),
    (["--base-url", "127.0.0.1:8000"],                         ["--base-url", "is not an address like"]),
    (["--base-url", "http://u:p@127.0.0.1:1"],                 ["leave user and password out"]),
    (["--base-url", "http://127.0.0.1:1", "--host", "http://127.0.0.1:2"], ["disagree"]),
    (["--scenario", "pilot_stateless"],                        ["no server was named", "--local"]),
    (["--scenario", "stateless_burst", "--base-url", "https://treadstone.example.com"],
                                                               ["100 sandboxes", "--approve-remote"]),
    (["-u", "21", "--base-url", "https://treadstone.example.com"], ["21 sandboxes", "--approve-remote"]),
    (["--local", "--base-url", "http://127.0.0.1:1"],          ["--local starts a server of its own"]),
    (["--local-profile", "ready=1"],                           ["add --local"]),
    (["--local", "--local-profile", "ready=never bogus=1"],    ["the local server did not start", "bogus"]),
    (["--local", "--scenario", "pilot_stateless", "--template", "x"], ["--template is for a steady load"]),
    (["--local", "--treadstone-config", "/nowhere/c.yaml"],    ["/nowhere/c.yaml"]),
    (["--local", "--results-dir", "/dev/null/x"],              ["/dev/null/x"]),
    (["--local", "--template", "aio-sandbox-huge"],            ["aio-sandbox-huge is not offered"]),
]
# fmt: on


@pytest.mark.parametrize(("arguments", "expected"), CASES, ids=[" ".join(case[0])[:60] for case in CASES])
def test_mistake_gets_one_clear_message(tmp_path: Path, arguments: list[str], expected: list[str]) -> None:
    """Each message says what is wrong and what to do."""
    (tmp_path / "broken.yaml").write_text("name: [unclosed\n")
    filled = [text.format(folder=tmp_path, treadstone=TREADSTONE) for text in arguments]
    said = refused(tmp_path, *filled)
    for text in expected:
        assert text in said


def test_refused_key_is_told_as_such(tmp_path: Path) -> None:
    """A wrong key and no key at all are two different messages, and the key is not shown."""
    with LocalServer() as server:
        scenario = scenario_file(tmp_path, 1)
        arguments = ["--scenario", scenario, "--base-url", server.base_url]
        wrong = refused(tmp_path / "1", *arguments, TREADSTONE_API_KEY="sk-wrong-0123456789")
        none = refused(tmp_path / "2", *arguments)
    assert "refuses the credential" in wrong
    assert "sk-wrong" not in wrong
    assert "auth login" in none
    assert "TREADSTONE_API_KEY" in none


def test_storage_that_a_template_does_not_offer_is_told_before_the_run(tmp_path: Path) -> None:
    """Preflight compares the scenario with the server's templates."""
    matrix = [{"template": "aio-sandbox-gigantic", "count": 1}, {"template": "none-such", "count": 1}]
    said = refused(tmp_path, "--scenario", scenario_file(tmp_path, matrix), "--local")
    assert "matrix[0].template" in said
    assert "matrix[1].template" in said
