"""Bad days of the server: what the user sees of each, what is counted, and that nothing is left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.runs import Result, finished, scenario_file

COUNT = 16


def _run(
    folder: Path, profile: str, *more: str, count: int = COUNT, **scenario: Any
) -> tuple[int, Result, str]:
    """A run over HTTP on a day such as the profile says."""
    file = scenario_file(folder, count, **{"poll_interval_sec": 0.3, **scenario})
    whole = f"ready=uniform(0.3,1.2) gone=uniform(0.1,0.3) seed=3 {profile}"
    arguments = ["--scenario", file, "--transport", "http", "--local", "--local-profile", whole, *more]
    code, run = finished(folder, *arguments)
    assert "Traceback" not in run.output
    return code, run.only, run.output


def _all_gone(result: Result) -> None:
    assert all(line["gone"] for line in result.truth)
    assert result.summary["cleanup"]["verified"]
    assert result.summary["cleanup"]["remaining"] == {}


def _lost_creates(result: Result, said: str) -> None:
    lost = result.overall["create_errors"]["connect_error"]
    assert 0 < lost < COUNT
    assert len(result.truth) == COUNT, "they were made, though nobody was told"
    assert result.summary["cleanup"]["found"] == COUNT
    assert result.summary["cleanup"]["unanswered_creates"] == lost
    assert "1_create aio-sandbox-tiny: connect_error" in said


def _failed_deletes(result: Result, said: str) -> None:
    assert result.overall["delete_errors"]["500"] > 0
    assert result.overall["deleted_err"] == result.summary["cleanup"]["failed"] == 0, "in the end all were"
    assert result.summary["cleanup"]["deleted"] == COUNT
    assert "4_delete aio-sandbox-tiny: 500 server_error" in said


def _refused_as_gone(result: Result, said: str) -> None:
    cleanup = result.summary["cleanup"]
    assert cleanup["already_gone"] > 0
    assert result.overall["delete_errors"] == {}
    assert cleanup["gone"] == COUNT, "a 404 or 409 is no proof: the list is"


def _throttled_deletes(result: Result, said: str) -> None:
    assert result.summary["cleanup"]["deleted"] == COUNT, "asked again when the server said"


def _failed_polls(kind: str) -> Callable[[Result, str], None]:
    def check(result: Result, said: str) -> None:
        assert result.summary["polls_failed"][kind] > 0
        assert result.overall["ready"] == result.overall["created_ok"]
        assert "a poll failed, and is tried again each interval" in said

    return check


def _garbled(*kinds: str) -> Callable[[Result, str], None]:
    def check(result: Result, said: str) -> None:
        seen = set(result.overall["create_errors"]) | set(result.summary["polls_failed"])
        assert seen
        assert seen <= set(kinds), seen
        assert len(result.truth) == COUNT
        assert result.overall["ready"] == result.overall["created_ok"]

    return check


def _as_if_nothing(result: Result, said: str) -> None:
    assert result.overall["ready"] == COUNT
    assert result.overall["create_errors"] == result.summary["polls_failed"] == {}


DAYS: list[tuple[str, str, Callable[[Result, str], None], set[int]]] = [
    # what happens; the profile; what is seen; exit codes
    ("creates whose answer is lost", "lost=25%", _lost_creates, {1}),
    ("deletes that answer 500", "delete=500:30%", _failed_deletes, {1}),
    ("deletes that answer 409", "delete=409:30%", _refused_as_gone, {0}),
    ("deletes that answer 404", "delete=404:30%", _refused_as_gone, {0}),
    ("deletes that answer 429 with Retry-After", "delete=429:20%", _throttled_deletes, {0}),
    ("deletes whose answer is lost", "lost_delete=25%", lambda result, said: None, {0, 1}),
    ("lists that answer 500", "list=500:40%", _failed_polls("500"), {0}),
    ("half a body", "garble=cut:25%", _garbled("connect_error", "bad_output"), {0, 1}),
    ("truncated JSON", "garble=json:25%", _garbled("bad_output"), {0, 1}),
    ("a proxy's page with 502", "garble=html:25%", _garbled("502"), {0, 1}),
    ("a proxy's page with 200", "garble=page:25%", _garbled("bad_output"), {0, 1}),
    ("connections that are reset", "garble=reset:25%", _garbled("connect_error", "bad_output"), {0, 1}),
    ("bodies of 10 MB", "garble=big:25%", _as_if_nothing, {0}),
]


@pytest.mark.parametrize(
    ("profile", "check", "codes"), [row[1:] for row in DAYS], ids=[row[0].replace(" ", "-") for row in DAYS]
)
def test_a_bad_day(
    tmp_path: Path, profile: str, check: Callable[[Result, str], None], codes: set[int]
) -> None:
    """All that was made is gone afterwards, whatever was answered."""
    code, result, said = _run(tmp_path, profile)
    _all_gone(result)
    check(result, said)
    assert code in codes, said


def test_a_trickle_is_waited_for(tmp_path: Path) -> None:
    """An answer that comes a few bytes a second is an answer."""
    _, result, said = _run(tmp_path, "garble=slow:15%", count=6)
    _all_gone(result)
    assert result.overall["ready"] == 6, said


def test_a_key_that_expires_is_told_at_once(tmp_path: Path) -> None:
    """Not after the timeout: the run ends, and says what it could not remove and how."""
    code, result, said = _run(tmp_path, "expire=4 latency=fixed(0.2)", count=400)
    assert code == 5
    assert "the server refuses the credential" in said
    assert result.summary["ending"] == "failed"
    assert result.summary["polls_failed"]["401"] >= 3
    assert result.run["duration_sec"] < 60
    assert not result.summary["cleanup"]["verified"]
    assert "401 auth_error" in result.summary["cleanup"]["problem"]


@pytest.mark.parametrize(("clause", "phase"), [("down=0.8+4", "poll"), ("down_delete=0+4", "clean-up")])
def test_a_server_that_is_away_for_a_while(tmp_path: Path, clause: str, phase: str) -> None:
    """Nothing is lost by it, and the gap is visible in the figures."""
    code, result, said = _run(tmp_path, clause, concurrency=16)
    _all_gone(result)
    assert result.overall["ready"] == COUNT, said
    if phase == "poll":
        assert result.summary["polls_failed"]["connect_error"] >= 5
        assert result.overall["ready_uncertainty_ms"]["max"] > 3000
    else:
        assert code in (0, 1)
        assert result.summary["cleanup"]["passes"] > 2
        assert "the list of sandboxes cannot be read" in said


def test_fifteen_hundred_are_removed_though_the_list_moves(tmp_path: Path) -> None:
    """Two pages whose rows move between them while sandboxes get ready, are deleted and go."""
    code, result, said = _run(
        tmp_path, "delete=500:5%", "-u", "1500", "-r", "100", count=1500, concurrency=60, poll_interval_sec=1
    )
    _all_gone(result)
    assert code in (0, 1)
    assert len(result.truth) == result.summary["cleanup"]["found"] == 1500, said


def test_a_run_that_measured_its_client_fails_if_strict(tmp_path: Path) -> None:
    """The cold CLI on a small machine: a warning, and with --strict an exit code."""
    file = scenario_file(tmp_path, 6, concurrency=6)
    arguments = ["--scenario", file, "--no-warm-cli", "--local", "--local-profile", "ready=fixed(0.3)"]
    assert finished(tmp_path / "plain", *arguments)[0] == 0
    code, run = finished(tmp_path / "strict", *arguments, "--strict")
    assert code == 6, run.output
    assert run.only.summary["verdict"]["status"] == "client_saturated"
