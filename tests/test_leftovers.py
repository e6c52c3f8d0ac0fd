"""What earlier runs have left is told, and only a label of our form counts."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.scripted import TINY, Scripted, page, rows, sandbox
from treadstone_user.leftovers import count_by_run, started_at, tell_backstop, tell_leftovers
from treadstone_user.model import Sandbox, Variant
from treadstone_user.scenario import Scenario
from treadstone_user.transports.base import api_error


@pytest.mark.parametrize(
    ("run_id", "moment"),
    [
        ("20261201-010203", datetime(2026, 12, 1, 1, 2, 3, tzinfo=UTC)),
        ("20261201-010203-12", datetime(2026, 12, 1, 1, 2, 3, tzinfo=UTC)),
        ("20261301-010203", None),
        ("20261201", None),
        ("20261201-010203-", None),
        ("20261201-010203 or 1", None),
        ("", None),
    ],
)
def test_a_run_tells_by_its_id_when_it_began(run_id: str, moment: datetime | None) -> None:
    """And what is no run's id tells nothing."""
    assert started_at(run_id) == moment


def _labelled(name: str, label: str | None) -> Sandbox:
    return Sandbox(
        id=name, template=TINY, status="ready", labels={} if label is None else {"loadtest": label}
    )


def test_sandboxes_are_counted_by_run_and_only_ours() -> None:
    """Somebody else may use the same key for something else."""
    found = count_by_run(
        [
            _labelled("a", "run-20261201-010203"),
            _labelled("b", "run-20261130-010203"),
            _labelled("c", "run-20261201-010203"),
            _labelled("d", "run-mine"),
            _labelled("e", "20261201-010203"),
            _labelled("f", None),
        ]
    )
    assert found == {"20261130-010203": 1, "20261201-010203": 2}


def test_a_run_that_starts_says_what_earlier_ones_left() -> None:
    """With the command that removes it; nothing is said where nothing is there."""
    said: list[str] = []
    left = [sandbox(f"s{number}", "ready", run_id=f"2026010{number}-000000") for number in range(1, 6)]
    tell_leftovers([Scripted(on_list=lambda _: page(*left, *rows(3)))], said.append)
    assert said == [
        "sandboxes of other runs are there (5, of 20260101-000000, 20260102-000000, 20260103-000000, ...); "
        "unless these still go on: python -m treadstone_user sweep --all"
    ]
    said.clear()
    tell_leftovers([Scripted(on_list=lambda _: page(*rows(3)))], said.append)
    assert said == []


def test_that_it_is_not_known_is_said_too() -> None:
    """A list that fails stops no run."""
    said: list[str] = []

    def fail(_: int) -> None:
        raise api_error(500, "An unexpected error occurred.")

    tell_leftovers([Scripted(on_list=fail)], said.append)  # type: ignore[arg-type]
    assert said == [
        "whether earlier runs have left something is not known: 500 server_error: "
        "An unexpected error occurred."
    ]


SCENARIO = Scenario(name="x", description="", matrix=(Variant(0, TINY, 1),))


@pytest.mark.parametrize(
    ("stop", "delete", "begins"),
    [
        (60, -1, ["auto_delete_interval is -1"]),
        (0, 60, ["auto_stop_interval is 0"]),
        (60, 60, []),
    ],
)
def test_what_the_server_would_do_about_a_killed_run_is_said(
    stop: int, delete: int, begins: list[str]
) -> None:
    """And what it would take to have it remove what is left."""
    said: list[str] = []
    tell_backstop(replace(SCENARIO, auto_stop_interval=stop, auto_delete_interval=delete), said.append)
    assert [line[: len(start)] for line, start in zip(said, begins, strict=True)] == begins
