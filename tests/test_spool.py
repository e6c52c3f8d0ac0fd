"""A worker's spool holds what the master has not got, and nothing for long that it has."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadstone_user.eventlog import read_events
from treadstone_user.model import EventKind
from treadstone_user.spool import Spool
from treadstone_user.transports.base import ConfigError


def _spool(folder: Path) -> Spool:
    return Spool(folder / "spool" / "w1.jsonl", worker="w1", began=0.0, on_broken=lambda error: None)


def test_events_stay_until_they_are_acknowledged(tmp_path: Path) -> None:
    """In the file, and in the order in which they go to the master."""
    spool = _spool(tmp_path)
    for task in (1, 2, 3):
        spool.log.write(EventKind.POLL_ERR, task=task)
    assert [event["task"] for event in spool.pending(2)] == [1, 2]
    spool.acknowledge(2)
    assert [event["task"] for event in spool.pending(500)] == [3]
    assert not spool.delivered
    assert [event["seq"] for event in read_events(spool.path)][-1] == 3


def test_the_file_is_emptied_once_all_is_acknowledged_and_goes_on(tmp_path: Path) -> None:
    """A long run does not keep all of its events twice."""
    spool = _spool(tmp_path)
    spool.log.write(EventKind.POLL_ERR, task=1)
    spool.acknowledge(1)
    assert spool.path.read_bytes() == b""
    spool.log.write(EventKind.POLL_ERR, task=2)
    assert [(event["seq"], event["task"]) for event in read_events(spool.path)] == [(2, 2)]


def test_an_old_acknowledgement_changes_nothing(tmp_path: Path) -> None:
    """Messages may come late."""
    spool = _spool(tmp_path)
    for task in (1, 2):
        spool.log.write(EventKind.POLL_ERR, task=task)
    spool.acknowledge(1)
    spool.acknowledge(0)
    spool.acknowledge(1)
    assert [event["task"] for event in spool.pending(500)] == [2]


def test_closed_it_is_gone_with_its_folder_if_all_is_acknowledged(tmp_path: Path) -> None:
    """Else it stays: nobody else knows what is in it."""
    first, second = (
        _spool(tmp_path),
        Spool(tmp_path / "spool" / "w2.jsonl", worker="w2", began=0.0, on_broken=lambda error: None),
    )
    second.log.write(EventKind.POLL_ERR, task=1)
    first.close()
    assert not first.path.exists()
    second.close()
    assert second.path.exists()
    second.acknowledge(1)
    second.close()
    assert not second.path.parent.exists()


def test_a_folder_that_cannot_be_made_is_a_mistake_to_be_told(tmp_path: Path) -> None:
    """With its path."""
    (tmp_path / "spool").write_text("a file")
    with pytest.raises(ConfigError, match=r"spool"):
        _spool(tmp_path)
