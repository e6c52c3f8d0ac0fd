"""An exit code tells the most serious of what a run found."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from treadstone_user.exitcode import ExitCode, judge, worst
from treadstone_user.summary import summarize

SERIOUS = [
    ExitCode.MISTAKE,
    ExitCode.LEFT_BEHIND,
    ExitCode.INCOMPLETE,
    ExitCode.EXPECTATIONS_NOT_MET,
    ExitCode.CLIENT_MEASURED,
    ExitCode.REQUESTS_FAILED,
    ExitCode.OK,
]
"""From the most serious to none."""


def test_codes_are_the_documented_numbers() -> None:
    """Scripts rely on the numbers."""
    assert {code.name: int(code) for code in ExitCode} == {
        "OK": 0,
        "REQUESTS_FAILED": 1,
        "MISTAKE": 2,
        "EXPECTATIONS_NOT_MET": 3,
        "INCOMPLETE": 4,
        "LEFT_BEHIND": 5,
        "CLIENT_MEASURED": 6,
    }


def test_worst_of_two_in_any_order() -> None:
    """Of two findings the more serious is told, whichever came first."""
    assert set(SERIOUS) == set(ExitCode), "a new code needs a place among them"
    for one, other in permutations(ExitCode, 2):
        expected = min(one, other, key=SERIOUS.index)
        assert worst([one, other]) is expected


def test_worst_of_nothing() -> None:
    """Without a finding all is well."""
    assert worst([]) is ExitCode.OK


CLEAN = {"ran": True, "verified": True}
TASK = {"template": "t", "persist": False}
REFUSED = {"event": "create_err", **TASK, "http_status": 429}
FAILED = {"event": "failed_status", **TASK, "last_status": "error"}
LOST = {"event": "lost", **TASK, "submitted": True}
LATE = {"event": "poll_timeout", **TASK}
READY = {"event": "ready", **TASK, "ready_latency_ms": 1000}
KEPT = {"event": "delete_err", **TASK, "sandbox_id": "a", "http_status": 500}

JUDGED: list[tuple[str, list[dict[str, Any]], dict[str, Any], ExitCode]] = [
    # what it proves, events, run.json, code
    ("all planned are ready and gone", [READY, READY], {"planned": 2}, ExitCode.OK),
    ("a steady load has no total", [READY], {"planned": None}, ExitCode.OK),
    ("a steady load that lost a task with its worker", [READY, LOST], {"planned": None}, ExitCode.INCOMPLETE),
    ("a refused create", [READY, REFUSED], {"planned": 2}, ExitCode.REQUESTS_FAILED),
    ("a sandbox that failed", [READY, FAILED], {"planned": 2}, ExitCode.REQUESTS_FAILED),
    ("a sandbox that was late", [READY, LATE], {"planned": 2}, ExitCode.REQUESTS_FAILED),
    ("a delete that failed", [READY, KEPT], {"planned": 1}, ExitCode.REQUESTS_FAILED),
    ("fewer results than planned", [READY], {"planned": 2}, ExitCode.INCOMPLETE),
    ("fewer than planned and a failure", [REFUSED], {"planned": 2}, ExitCode.INCOMPLETE),
    ("interrupted", [READY], {"planned": 1, "ending": "interrupted"}, ExitCode.INCOMPLETE),
    (
        "not all gone outweighs the rest",
        [REFUSED],
        {"planned": 2, "cleanup": {"ran": True, "verified": False}},
        ExitCode.LEFT_BEHIND,
    ),
    (
        "no clean-up was wanted, so none is missed",
        [READY],
        {"planned": 1, "cleanup": {"ran": False, "reason": "--no-cleanup"}},
        ExitCode.OK,
    ),
]


@pytest.mark.parametrize(
    ("events", "run", "code"), [row[1:] for row in JUDGED], ids=[row[0] for row in JUDGED]
)
def test_a_run_is_judged_by_its_summary(
    events: list[dict[str, Any]], run: dict[str, Any], code: ExitCode
) -> None:
    """The exit code follows from the summary alone."""
    scenario = {"ready_timeout_sec": 900, "poll_interval_sec": 1}
    whole = {"run_id": "r", "scenario": scenario, "ending": "completed", "cleanup": CLEAN, **run}
    assert judge(summarize(events, whole)) is code


@pytest.mark.parametrize(("strict", "code"), [(False, ExitCode.OK), (True, ExitCode.CLIENT_MEASURED)])
def test_a_client_that_measured_itself_fails_only_if_strict(strict: bool, code: ExitCode) -> None:
    """Without it, the report says so and the run has not failed."""
    lag = {"p50": 1.0, "p95": 2.0, "p99": 50.0, "max": 900.0}
    client = {"loop_lag_ms": lag, "stalled_share": 0.1}
    run = {
        "run_id": "r",
        "scenario": {},
        "ending": "completed",
        "cleanup": CLEAN,
        "planned": 1,
        "client": client,
    }
    assert judge(summarize([READY], run), strict=strict) is code
