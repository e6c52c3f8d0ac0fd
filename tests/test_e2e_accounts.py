"""Runs over many accounts: none beyond its plan, what a plan refuses is foretold, and all is removed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.prepared import ADMIN, Prep
from tests.runs import ROOT, TREADSTONE, Run, clean_environment, finished, json_lines, scenario_file
from tests.servers import API_KEY, LocalServer

TINY = "aio-sandbox-tiny"
PROFILE = "plans=free ready=uniform(0.2,0.6) gone=uniform(0,0.2)"


@pytest.fixture(scope="module", name="prep")
def _prep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prep]:
    """Twenty accounts with keys, each for five at once, on a server that enforces plans."""
    folder = tmp_path_factory.mktemp("prep")
    with LocalServer(
        profile=PROFILE, requests=folder / "requests.jsonl", truth=folder / "truth.jsonl"
    ) as server:
        prep = Prep(server, folder)
        prep.ready(20)
        yield prep


def _refused(prep: Prep) -> int:
    return sum(line.get("status") == 429 for line in json_lines(prep.folder / "requests.jsonl"))


def _at(prep: Prep) -> tuple[str, ...]:
    return ("--base-url", prep.server.base_url, "--transport", "http")


@pytest.mark.parametrize("processes", [(), ("--processes", "2")], ids=["one process", "two workers"])
def test_a_hundred_over_twenty_accounts_meet_no_limit(
    prep: Prep, tmp_path: Path, processes: tuple[str, ...]
) -> None:
    """Five each, none refused; with workers, no account is in two workers' hands at a time."""
    before = _refused(prep)
    scenario = scenario_file(tmp_path, 100, concurrency=20, accounts=str(prep.store))
    code, run = finished(tmp_path, "--scenario", scenario, *_at(prep), *processes)
    assert code == 0, run.output
    assert "20 accounts (20 pro) have room for 100 sandboxes at once" in run.output
    result = run.only
    assert (result.overall["created_ok"], result.overall["ready"], _refused(prep)) == (100, 100, before)
    told = result.summary["by_account"]
    assert {account["created_ok"] for account in told.values()} == {5}
    assert len(told) == 20
    assert (result.summary["cleanup"]["gone"], result.summary["cleanup"]["verified"]) == (100, True)
    assert (result.run["accounts"], result.run["foretold"]) == (20, {})
    in_hand: dict[str, str] = {}
    open_tasks: Counter[str] = Counter()
    for event in sorted(result.events(), key=lambda event: float(event["t_ms"])):
        if event["event"] == "create_submitted":
            owner = in_hand.setdefault(event["account"], event["worker"])
            if not open_tasks[event["account"]]:
                owner = in_hand[event["account"]] = event["worker"]
            assert owner == event["worker"], "two workers at one account"
            open_tasks[event["account"]] += 1
        elif event["event"] == "ready":
            open_tasks[event["account"]] -= 1
    keys = [key["key"] for key in prep.content["api_keys"]]
    for path in result.path.rglob("*"):
        if path.is_file():
            assert not any(key in path.read_text() for key in keys), path
    assert not any(key in run.output for key in keys)


def test_the_cli_makes_them_as_each_account(prep: Prep, tmp_path: Path) -> None:
    """The real CLI, with the key of each account in its environment."""
    scenario = scenario_file(tmp_path, 12, accounts=str(prep.store))
    code, run = finished(
        tmp_path, "--scenario", scenario, "--base-url", prep.server.base_url, "--binary", str(TREADSTONE)
    )
    assert code == 0, run.output
    told = run.only.summary["by_account"]
    assert {account["ready"] for account in told.values()} == {1}
    assert len(told) == 12


@pytest.mark.parametrize(
    "how", [["RUN"], ["RUN", "--base-url", "URL"], ["--all", "--yes", "--base-url", "URL"]]
)
def test_a_killed_run_is_swept_on_all_its_accounts(prep: Prep, tmp_path: Path, how: list[str]) -> None:
    """By the store that its scenario names, whoever the environment's account is."""
    scenario = scenario_file(tmp_path, 30, accounts=str(prep.store))
    with Run(tmp_path, "--headless", "--scenario", scenario, *_at(prep)) as run:
        run.until_event("ready", 10)
        run.send(signal.SIGKILL)
        run.wait()
    result = run.only
    done = subprocess.run(
        [
            *(sys.executable, "-m", "treadstone_user", "sweep", "--results-dir", str(run.results)),
            *({"RUN": result.path.name, "URL": prep.server.base_url}.get(word, word) for word in how),
        ],
        cwd=ROOT,
        env=clean_environment(tmp_path / "home", TREADSTONE_API_KEY=API_KEY),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for key in prep.content["api_keys"]:
        assert prep.ask("/v1/sandboxes", key["key"])["total"] == 0
    assert result.summary["cleanup"]["verified"] is True


def test_accounts_of_another_server_are_refused(prep: Prep, tmp_path: Path) -> None:
    """Their keys are for their server alone."""
    scenario = scenario_file(tmp_path, 1, accounts=str(prep.store))
    with LocalServer(requests=tmp_path / "requests.jsonl") as other:
        code, run = finished(
            tmp_path, "--scenario", scenario, "--base-url", other.base_url, "--transport", "http"
        )
    assert (code, json_lines(tmp_path / "requests.jsonl")) == (2, [])
    assert f"are of {prep.server.base_url}, and this goes to {other.base_url}" in run.output


def test_a_key_that_is_refused_is_told_with_what_makes_another_one(tmp_path: Path) -> None:
    """It is the store's, not the environment's; and a dry run reads the store, too."""
    with LocalServer() as server:
        prep = Prep(server, tmp_path / "prep")
        prep.ready(1)
        (key,) = prep.content["api_keys"]
        prep.ask(f"/v1/auth/api-keys/{key['key_id']}", key["key"], "DELETE")
        scenario = scenario_file(tmp_path, 1, accounts=str(prep.store))
        code, run = finished(tmp_path, "--scenario", scenario, *_at(prep))
        assert code == 2
        assert f"python -m prep.api_keys --store {prep.store}" in run.output
        prep.store.write_text("{")
        code, run = finished(tmp_path / "dry", "--scenario", scenario, "--dry-run")
        assert (code, "cannot be read as a store" in run.output) == (2, True)


def test_accounts_without_a_key_are_told_before_anything_runs(prep: Prep, tmp_path: Path) -> None:
    """With the command that makes keys; likewise a store that is not there."""
    other = Prep(prep.server, tmp_path)
    assert other.run("users", "--prefix", "keyless")[0] == 0
    scenario = scenario_file(tmp_path, 1, accounts=str(other.store))
    code, run = finished(tmp_path, "--scenario", scenario, *_at(prep))
    assert (code, run.all) == (2, [])
    assert "1 of 1 accounts" in run.output
    assert "python -m prep.api_keys" in run.output
    code, run = finished(
        tmp_path / "2", "--scenario", scenario_file(tmp_path / "2", 1, accounts="nowhere.json"), *_at(prep)
    )
    assert code == 2
    assert "accounts: there is no file 'nowhere.json'" in run.output


FORETOLD = [
    # what is refused; the matrix; auto-stop in minutes; creates by status
    ("all but one at once", [{"template": TINY, "count": 100}], 60, {"429": 99}),
    ("storage", [{"template": TINY, "count": 3, "persist": True, "storage_size": "5Gi"}], 60, {"402": 3}),
    ("no auto-stop", [{"template": TINY, "count": 2}], 0, {"400": 2}),
    (
        "some of everything",
        [
            {"template": TINY, "count": 2},
            {"template": "aio-sandbox-small", "count": 2},
            {"template": TINY, "count": 1, "persist": True, "storage_size": "5Gi"},
        ],
        60,
        {"403": 2, "429": 2},
    ),
]


@pytest.mark.parametrize(
    ("matrix", "auto_stop", "refused"), [row[1:] for row in FORETOLD], ids=[row[0] for row in FORETOLD]
)
def test_what_a_free_account_refuses_is_foretold_and_comes_true(
    tmp_path: Path, matrix: list[dict[str, object]], auto_stop: int, refused: dict[str, int]
) -> None:
    """By preflight, by prep.setup, and then by the server, with the same numbers."""
    scenario = scenario_file(tmp_path, matrix, concurrency=1, auto_stop_interval=auto_stop)
    with LocalServer(profile=PROFILE) as server:
        environment = {"TREADSTONE_API_KEY": API_KEY}
        setup = subprocess.run(
            [sys.executable, "-m", "prep.setup", "--base-url", server.base_url, "--scenario", scenario],
            cwd=ROOT,
            env=clean_environment(tmp_path, TREADSTONE_BINARY=str(TREADSTONE), **environment),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert setup.returncode == 1, setup.stderr
        code, run = finished(
            tmp_path,
            *("--scenario", scenario, "--base-url", server.base_url, "--transport", "http"),
            environment=environment,
        )
    assert code == 1
    result = run.only
    assert result.run["foretold"] == result.overall["create_errors"] == refused
    for status, count in refused.items():
        assert f"{count} of {result.run['planned']} creates will be refused with {status}" in setup.stdout
        assert f"{count} of {result.run['planned']} creates will be refused with {status}" in run.output


def test_the_platforms_caps_are_foretold_to_its_admin(tmp_path: Path) -> None:
    """503, by prep.setup: only an admin may know of them."""
    scenario = scenario_file(tmp_path, 5)
    with LocalServer(profile="max_sandboxes=3") as server:
        setup = subprocess.run(
            [sys.executable, "-m", "prep.setup", "--base-url", server.base_url, "--scenario", scenario],
            cwd=ROOT,
            env=clean_environment(
                tmp_path,
                TREADSTONE_BINARY=str(TREADSTONE),
                TREADSTONE_API_KEY=API_KEY,
                **ADMIN,
            ),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert setup.returncode == 1
    assert "2 of 5 creates will be refused with 503: the platform is capped at 3 sandboxes" in setup.stdout
