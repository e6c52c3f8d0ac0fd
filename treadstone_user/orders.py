"""What a run is to do, who does it, where it stands, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from treadstone_user.scenario import Scenario
from treadstone_user.sections import Job


class Ending(StrEnum):
    """Why a run ended."""

    COMPLETED = "completed"
    """Every planned sandbox has its result."""
    INCOMPLETE = "incomplete"
    """Nothing is left to do, but tasks were lost with their worker."""
    STOPPED = "stopped"
    """Locust's run time was reached, or somebody stopped the test in the web UI."""
    FAILED = "failed"
    """It could not go on: its own events could not be written, or no worker could take part."""
    INTERRUPTED = "interrupted"
    """Ctrl-C or SIGTERM, before all was over."""


class Phase(StrEnum):
    """Where a run stands."""

    RUNNING = "running"
    DRAINING = "ending what was begun"
    ASKING = "asking the server for its own times"
    CLEANING = "cleaning up"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class Orders:
    """What a run is to do; the same for every run of a process.

    steady: one lifecycle after the other without a total, each deleted as it goes.
    cleanup: False for ``--no-cleanup``.
    local: whether the server is the run's own and ends with it.
    strict: whether measuring its own client makes a run fail.
    jobs: what users do.
    """

    scenario: Scenario
    steady: bool
    jobs: frozenset[Job]
    cleanup: bool
    local: bool
    strict: bool

    @property
    def planned(self) -> int | None:
        """How many sandboxes are planned; None where the load is steady."""
        if Job.LIFECYCLE not in self.jobs:
            return 0
        return None if self.steady else self.scenario.total

    @property
    def persist(self) -> bool | None:
        """The one `persist` of all matrix rows, None where there are both."""
        kinds = {variant.persist for variant in self.scenario.matrix}
        return kinds.pop() if len(kinds) == 1 else None


class Hands(Protocol):
    """Who makes a run's sandboxes: the load of this process, or a crew of workers."""

    def close(self) -> None:
        """Begin nothing more; returns at once."""
        ...

    def drain(self) -> dict[str, Any]:
        """Wait until all that was begun has its end in the log; returns what the client saw of itself."""
        ...

    def describe(self) -> dict[str, Any]:
        """What run.json says of who made the load."""
        ...

    def health(self) -> list[dict[str, Any]]:
        """How those who make the load fare at this moment: `who`, `state` and `figures` of each."""
        ...
