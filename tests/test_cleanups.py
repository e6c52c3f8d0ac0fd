"""Clean-up on many accounts: each by its own list, and what one does not show is gone there alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.runs import json_lines
from tests.scripted import RUN_ID, Scripted, page, sandbox
from treadstone_user.cleanups import Cleanups
from treadstone_user.eventlog import EventLog
from treadstone_user.ledger import Ledger
from treadstone_user.model import EventKind, SandboxPage
from treadstone_user.transports.base import api_error


class _Account:
    """An account with sandboxes that go at once when they are deleted."""

    def __init__(self, name: str, count: int, *, broken: bool = False) -> None:
        self.there = [f"{name}{number}" for number in range(count)]
        self.broken = broken
        self.transport = Scripted(on_list=self._list, on_delete=self.there.remove)

    def _list(self, _: int) -> SandboxPage:
        if self.broken:
            raise api_error(401, "expired")
        return page(*(sandbox(name, "ready") for name in self.there))


def _run(folder: Path, accounts: dict[str | None, _Account]) -> tuple[dict[str, Any], list[str], Path]:
    path = folder / "events.jsonl"
    log, ledger, said = EventLog(path, worker="w"), Ledger(), list[str]()
    log.subscribe(ledger.add)
    for account, one in accounts.items():
        for name in one.there:
            about = {"template": "t", "persist": False, "storage_size": None, "account": account, "task": 1}
            log.write(EventKind.CREATE_OK, **about, sandbox_id=name)
    cleanups = Cleanups(
        transports={account: one.transport for account, one in accounts.items()},
        run_id=RUN_ID,
        persist=None,
        at_once=10,
        log=log,
        report=lambda step: None,
        ledger=ledger,
        say=said.append,
    )
    outcome = cleanups.run()
    log.close()
    return outcome, said, path


def test_all_accounts_are_cleaned_and_counted_together(tmp_path: Path) -> None:
    """Each event tells its account."""
    accounts: dict[str | None, _Account] = {f"a{n}@x.org": _Account(f"s{n}-", n) for n in range(15)}
    outcome, said, path = _run(tmp_path, accounts)
    assert (outcome["found"], outcome["deleted"], outcome["gone"]) == (105, 105, 105)
    assert (outcome["verified"], outcome["remaining"], outcome["problem"]) == (True, {}, None)
    assert not any(one.there for one in accounts.values())
    gone = [event for event in json_lines(path) if event["event"] == "gone"]
    assert all(
        event["sandbox_id"].startswith(event["account"].split("@")[0].replace("a", "s")) for event in gone
    )
    assert said[-1] == "clean-up: 15 of 15 accounts done, 105 sandboxes deleted"


def test_one_that_cannot_be_cleaned_makes_the_whole_not_verified(tmp_path: Path) -> None:
    """The others are clean all the same, and what is left is named."""
    good, bad = _Account("g", 3), _Account("b", 2, broken=True)
    outcome, _, _ = _run(tmp_path, {"g@x.org": good, "b@x.org": bad})
    assert (outcome["verified"], outcome["gone"], good.there) == (False, 3, [])
    assert set(outcome["remaining"]) == {"b0", "b1"}
    assert "401 auth_error" in outcome["problem"]


def test_what_another_accounts_list_does_not_show_is_not_gone(tmp_path: Path) -> None:
    """Its own list cannot be read: nobody knows."""
    outcome, _, path = _run(tmp_path, {"a@x.org": _Account("a", 1), "b@x.org": _Account("b", 1, broken=True)})
    assert [event["sandbox_id"] for event in json_lines(path) if event["event"] == "gone"] == ["a0"]
    assert outcome["gone"] == 1


def test_one_account_says_what_it_does_as_before(tmp_path: Path) -> None:
    """With its passes."""
    _, said, _ = _run(tmp_path, {None: _Account("a", 2)})
    assert said == ["clean-up, pass 1: 2 to delete, 0 on their way"]
