"""The exit codes of a run, named in this one place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any

from treadstone_user.verdict import CLIENT_SATURATED


class ExitCode(IntEnum):
    """What a run's exit code says."""

    OK = 0
    REQUESTS_FAILED = 1
    """Locust's own: a create, a wait or a delete failed, or a user raised."""
    MISTAKE = 2
    """A mistake of the user's: nothing was created."""
    EXPECTATIONS_NOT_MET = 3
    """Reserved."""
    INCOMPLETE = 4
    """Interrupted, or ended before every planned sandbox had its result."""
    LEFT_BEHIND = 5
    """The clean-up could not remove, or not verify, everything."""
    CLIENT_MEASURED = 6
    """With --strict: some figures measure this client and not the server."""


_FROM_WORST = (
    ExitCode.MISTAKE,
    ExitCode.LEFT_BEHIND,
    ExitCode.INCOMPLETE,
    ExitCode.EXPECTATIONS_NOT_MET,
    ExitCode.CLIENT_MEASURED,
    ExitCode.REQUESTS_FAILED,
)


def worst(codes: Iterable[ExitCode]) -> ExitCode:
    """The one code that tells the most serious of several findings."""
    found = set(codes)
    return next((code for code in _FROM_WORST if code in found), ExitCode.OK)


_FAILURES = ("created_err", "failed_status", "poll_timeout", "exec_err", "delete_errors")


def judge(summary: Mapping[str, Any], *, strict: bool = False) -> ExitCode:
    """The exit code that a summary deserves.

    strict: a run that measured its own client has failed.
    """
    overall, cleanup = summary["overall"], summary["cleanup"]
    findings = []
    failed = any(overall[key] for key in _FAILURES)
    others = [*(summary.get("queries") or {}).values(), *(summary.get("streams") or {}).values()]
    if failed or any(one["failed"] for one in others):
        findings.append(ExitCode.REQUESTS_FAILED)
    results = sum(overall[key] for key in ("created_err", "ready", "failed_status", "poll_timeout"))
    planned = summary["planned"]
    if summary["ending"] == "interrupted" or overall["lost"] or (planned is not None and results < planned):
        findings.append(ExitCode.INCOMPLETE)
    if strict and summary["verdict"]["status"] == CLIENT_SATURATED:
        findings.append(ExitCode.CLIENT_MEASURED)
    if cleanup["ran"] and not cleanup["verified"]:
        findings.append(ExitCode.LEFT_BEHIND)
    return worst(findings)
