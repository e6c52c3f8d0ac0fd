"""The exit codes of a run, named in this one place."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


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


_FROM_WORST = (
    ExitCode.MISTAKE,
    ExitCode.LEFT_BEHIND,
    ExitCode.INCOMPLETE,
    ExitCode.EXPECTATIONS_NOT_MET,
    ExitCode.REQUESTS_FAILED,
)


def worst(codes: Iterable[ExitCode]) -> ExitCode:
    """The one code that tells the most serious of several findings."""
    found = set(codes)
    return next((code for code in _FROM_WORST if code in found), ExitCode.OK)
