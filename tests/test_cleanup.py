"""The clean-up ends when a whole list shows nothing of the run, and says so when it cannot."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import gevent
import pytest

from tests.runs import json_lines
from tests.scripted import RUN_ID, Scripted, missing, page, rows, sandbox, taking_turns
from treadstone_user.cleanup import Cleanup, Outcome, list_all
from treadstone_user.eventlog import EventLog
from treadstone_user.ledger import Fate, Ledger, about_itself
from treadstone_user.model import Sandbox, SandboxPage
from treadstone_user.retry import backoff
from treadstone_user.steps import Step
from treadstone_user.transports.base import ConnectError, api_error


class _Account:
    """An account with sandboxes. A deleted one goes away after so many further lists.

    refusals: what deletes of a sandbox answer, in order, before they are accepted.
    """

    def __init__(
        self,
        *sandboxes: Sandbox,
        lingers: int = 0,
        refusals: Mapping[str, list[Exception]] | None = None,
    ) -> None:
        self.there = {one.id: one for one in sandboxes}
        self.transport = Scripted(on_list=self.list, on_delete=self.delete)
        self._going: dict[str, int] = {}
        self._lingers = lingers
        self._refusals = {name: list(errors) for name, errors in (refusals or {}).items()}

    def list(self, offset: int) -> SandboxPage:
        """A page of what is there."""
        if offset == 0:
            for name in [name for name, left in self._going.items() if left == 0]:
                del self._going[name], self.there[name]
            self._going = {name: left - 1 for name, left in self._going.items()}
        everything = list(self.there.values())
        return page(*everything[offset : offset + 1000], total=len(everything))

    def delete(self, name: str) -> None:
        """Accept a delete, or refuse it as told."""
        if self._refusals.get(name):
            raise self._refusals[name].pop(0)
        if name not in self.there:
            raise missing(name)
        self.there[name] = sandbox(name, "deleting")
        self._going[name] = self._lingers


class _Recorded:
    """A clean-up with what it wrote and said."""

    def __init__(self, folder: Path, transport: Scripted, **more: Any) -> None:
        self._path = folder / "events.jsonl"
        self._log = EventLog(self._path, worker="local")
        self.steps: list[Step] = []
        self.said: list[str] = []
        self.ledger = Ledger()
        self._log.subscribe(self.ledger.add)
        orders: dict[str, Any] = {"persist": False, "at_once": 5, "ledger": self.ledger, **more}
        self.cleanup = Cleanup(
            transport=transport,
            run_id=RUN_ID,
            log=self._log,
            report=self.steps.append,
            say=self.said.append,
            **orders,
        )

    def run(self) -> Outcome:
        """Run it to its end."""
        return self.cleanup.run()

    @property
    def events(self) -> list[tuple[str, str, int | None]]:
        """Kind, sandbox and HTTP status of each call's event."""
        events = [event for event in json_lines(self._path) if event["event"] != "gone"]
        return [(e["event"], e["sandbox_id"], e["http_status"]) for e in events]

    @property
    def gone(self) -> list[str]:
        """The sandboxes that were seen gone."""
        return [e["sandbox_id"] for e in json_lines(self._path) if e["event"] == "gone"]


Recorded = Callable[..., _Recorded]


@pytest.fixture(name="recorded")
def _recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    """Make clean-ups that wait a hundredth of their time between passes."""
    monkeypatch.setattr(
        "treadstone_user.cleanup.backoff", lambda attempt, **more: backoff(attempt, **more) / 100
    )
    with gevent.Timeout(10):
        yield lambda transport, **more: _Recorded(tmp_path, transport, **more)


def test_deletes_and_lists_until_none_is_left(recorded: Recorded) -> None:
    """A delete that was accepted is a promise; only a list without the sandbox ends the clean-up."""
    account = _Account(sandbox("a", "ready"), sandbox("b", "creating"), sandbox("c", "error"), lingers=3)
    outcome = recorded(account.transport).run()
    assert account.there == {}
    assert account.transport.of("delete") == ["a", "b", "c"], "once each: what is on its way is left to go"
    assert account.transport.of("list") == [0] * 5
    assert outcome.describe() == {
        "ran": True,
        "passes": 5,
        "found": 3,
        "deleted": 3,
        "already_gone": 0,
        "failed": 0,
        "gone": 3,
        "remaining": {},
        "kept": {},
        "verified": True,
        "problem": None,
    }


def test_nothing_there_is_proved_by_one_list(recorded: Recorded) -> None:
    """A run that left nothing costs one call."""
    account = _Account(sandbox("foreign", "ready", run_id=None))
    outcome = recorded(account.transport).run()
    assert (outcome.verified, outcome.passes, outcome.found) == (True, 1, set())
    assert account.transport.calls == [("list", 0)]


def test_a_late_sandbox_is_found(recorded: Recorded) -> None:
    """One that shows up only after the others are gone is deleted like them."""
    account = _Account(sandbox("a", "ready"))
    delete = account.delete

    def and_another_comes(name: str) -> None:
        delete(name)
        if name == "a":
            account.there["late"] = sandbox("late")

    account.transport.on_delete = and_another_comes
    outcome = recorded(account.transport).run()
    assert (outcome.found, outcome.verified, account.there) == ({"a", "late"}, True, {})


def test_only_the_runs_own_sandboxes_are_deleted(recorded: Recorded) -> None:
    """What carries another run's label, a label of another name, or none, is never touched."""
    foreign = [
        sandbox("other run", "ready", run_id="20260101-000000-2"),
        sandbox("longer", "ready", run_id=RUN_ID + "0"),
        sandbox("shorter", "ready", run_id=RUN_ID[:-1]),
        sandbox("unlabelled", "ready", run_id=None),
        Sandbox("other key", "aio-sandbox-tiny", "ready", labels={"test": f"run-{RUN_ID}"}),
        Sandbox("bare id", "aio-sandbox-tiny", "ready", labels={"loadtest": RUN_ID}),
    ]
    account = _Account(*foreign, sandbox("ours", "ready"))
    outcome = recorded(account.transport).run()
    assert account.transport.of("delete") == ["ours"]
    assert list(account.there) == [one.id for one in foreign]
    assert outcome.verified


KINDS: list[tuple[bool | None, list[str], dict[str, str]]] = [
    # persist of all rows, what is deleted, what is kept
    (False, ["plain"], {"data": "persistent, which the scenario does not make"}),
    (True, ["data"], {"plain": "not persistent, which the scenario does not make"}),
    (None, ["data", "plain"], {}),
]


@pytest.mark.parametrize(("persist", "deleted", "kept"), KINDS)
def test_what_the_scenario_does_not_make_is_kept(
    persist: bool | None, deleted: list[str], kept: dict[str, str], recorded: Recorded
) -> None:
    """A sandbox of the other kind was not made by this run, whatever its label: it stays and is told."""
    account = _Account(sandbox("data", "ready", persist=True, storage_size="5Gi"), sandbox("plain", "ready"))
    outcome = recorded(account.transport, persist=persist).run()
    assert sorted(account.transport.of("delete")) == deleted
    assert (outcome.kept, outcome.verified, outcome.found) == (kept, True, set(deleted))


GONE = [
    # HTTP status of a delete
    404,  # it is gone
    409,  # it is on its way: from deleting to deleting
]


@pytest.mark.parametrize("status", GONE)
def test_gone_or_going_counts_as_removed(status: int, recorded: Recorded) -> None:
    """404 and 409 say what was asked for: no failure for Locust, a delete_ok with its status."""
    account = _Account(sandbox("a", "ready"), refusals={"a": [api_error(status, "no")]})
    made = recorded(account.transport)
    assert made.run().verified
    assert made.events[0] == ("delete_ok", "a", status)
    assert [step.failure for step in made.steps] == [None] * len(made.steps)


def test_a_refused_delete_is_told_and_tried_again(recorded: Recorded) -> None:
    """Each delete that failed is an event and a failure of Locust's; the next pass tries again."""
    errors: list[Exception] = [api_error(500, "An unexpected error occurred."), ConnectError("broken")]
    account = _Account(sandbox("a", "ready"), sandbox("b", "ready"), refusals={"a": errors})
    made = recorded(account.transport)
    outcome = made.run()
    assert outcome.verified
    assert made.events == [
        ("delete_err", "a", 500),
        ("delete_ok", "b", None),
        ("delete_err", "a", None),
        ("delete_ok", "a", None),
    ]
    assert {step.name for step in made.steps} == {"4_delete aio-sandbox-tiny"}
    failures = [step.failure for step in made.steps]
    assert failures == ["500 server_error", None, "connect_error", None]


def test_many_are_deleted_at_once_but_no_more_than_allowed(recorded: Recorded) -> None:
    """Deletes run side by side, as many as the scenario's concurrency."""
    account = _Account(*(sandbox(f"a{number}", "ready") for number in range(10)))
    delete, running, most = account.delete, 0, 0

    def slowly(name: str) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        gevent.sleep(0.01)
        running -= 1
        delete(name)

    account.transport.on_delete = slowly
    assert recorded(account.transport, at_once=4).run().verified
    assert most == 4


def test_a_list_that_cannot_be_read_is_tried_again(recorded: Recorded) -> None:
    """A failed list proves nothing; it is said, and the next pass tries again."""
    account = _Account(sandbox("a", "ready"))
    lists = [api_error(500, "An unexpected error occurred."), ConnectError("broken")]

    def failing(offset: int) -> SandboxPage:
        if lists:
            raise lists.pop(0)
        return account.list(offset)

    account.transport.on_list = failing
    made = recorded(account.transport)
    assert made.run().verified
    assert made.said[:2] == [
        "clean-up: the list of sandboxes cannot be read: "
        "500 server_error: An unexpected error occurred.; it is tried for 120 s",
        "clean-up: the list of sandboxes cannot be read: connect_error: broken; it is tried for 120 s",
    ]


FOREIGN = rows(1001)
TORN: list[tuple[str, list[SandboxPage]]] = [
    # what it proves, the pages
    (
        "a row slipped to a page already read",
        [page(*FOREIGN[:1000], total=1001), page(FOREIGN[999], total=1001)],
    ),
    (
        "one came while it was read",
        [page(*FOREIGN[:1000], total=1001), page(FOREIGN[1000], total=1002), page(total=1002)],
    ),
    ("one went while it was read", [page(*FOREIGN[:1000], total=1002), page(FOREIGN[1000], total=1001)]),
    ("the second page is empty", [page(*FOREIGN[:1000], total=1001), page(total=1001)]),
]


@pytest.mark.parametrize("pages", [row[1] for row in TORN], ids=[row[0] for row in TORN])
def test_pages_that_do_not_fit_together_prove_nothing(pages: list[SandboxPage], recorded: Recorded) -> None:
    """A list that changed while it was read may have hidden a sandbox: it is read again."""
    assert not list_all(Scripted(on_list=taking_turns(*pages))).whole
    hidden = page(*FOREIGN[:999], sandbox("ours", "ready"))
    transport = Scripted(on_list=taking_turns(*pages, hidden, page()), on_delete=taking_turns(None))
    outcome = recorded(transport).run()
    assert transport.of("list") == [*[0, 1000, 1001][: len(pages)], 0, 0]
    assert transport.of("delete") == ["ours"]
    assert (outcome.verified, outcome.passes) == (True, 3)


def test_pages_that_fit_together_are_whole() -> None:
    """A list of several pages whose rows add up to its total is taken for the truth."""
    transport = Scripted(on_list=lambda offset: page(*FOREIGN[offset : offset + 1000], total=1001))
    listing = list_all(transport)
    assert (len(listing.sandboxes), listing.whole) == (1001, True)
    assert transport.of("list") == [0, 1000]


STUCK: list[tuple[str, str, list[Exception], str]] = [
    # what it proves, status in the list, what deletes answer, the reason that is told
    ("it never goes away", "deleting", [], "still deleting"),
    (
        "its delete is always refused",
        "ready",
        [api_error(500, "x")] * 9999,
        "delete failed: 500 server_error",
    ),
    ("nothing answers its delete", "ready", [ConnectError("x")] * 9999, "delete failed: connect_error"),
]


@pytest.mark.parametrize(
    ("status", "refusals", "reason"), [row[1:] for row in STUCK], ids=[row[0] for row in STUCK]
)
def test_gives_up_and_names_what_remains(
    status: str, refusals: list[Exception], reason: str, recorded: Recorded
) -> None:
    """Without any progress the clean-up ends after a while, with each sandbox that stayed and why."""
    account = _Account(sandbox("stuck", status), sandbox("b", "ready"), refusals={"stuck": refusals})
    began = time.monotonic()
    outcome = recorded(account.transport, give_up_sec=0.3).run()
    assert 0.3 <= time.monotonic() - began < 3
    assert (outcome.verified, outcome.problem) == (False, "1 still in the list")
    assert outcome.remaining == {"stuck": reason}
    assert outcome.found == {"stuck", "b"}
    assert "b" not in account.there, "one that is stuck keeps no other"


def test_gives_up_when_no_list_can_be_read(recorded: Recorded) -> None:
    """A server that is gone for good ends the clean-up as unproved, not as clean."""
    outcome = recorded(Scripted(on_list=taking_turns(ConnectError("refused"))), give_up_sec=0.2).run()
    assert not outcome.verified
    assert outcome.problem == "the list of sandboxes cannot be read: connect_error: refused"


def test_gives_up_when_the_list_never_keeps_still(recorded: Recorded) -> None:
    """A list that changes each time it is read ends the clean-up as unproved, too."""

    def moving(offset: int) -> SandboxPage:
        return page(*FOREIGN[:1000], total=1001) if offset == 0 else page(FOREIGN[0], total=1001)

    outcome = recorded(Scripted(on_list=moving), give_up_sec=0.2).run()
    assert not outcome.verified
    assert outcome.problem == "the list changed while it was read (1000 sandboxes)"


def test_progress_keeps_it_going(recorded: Recorded) -> None:
    """As long as sandboxes go away it does not give up, however long that takes in all."""
    account = _Account(*(sandbox(f"a{number}", "deleting") for number in range(12)))

    def one_goes(offset: int) -> SandboxPage:
        gevent.sleep(0.1)
        found = account.list(offset)
        if account.there:
            account.there.popitem()
        return found

    account.transport.on_list = one_goes
    outcome = recorded(account.transport, give_up_sec=0.5).run()
    assert (outcome.verified, len(outcome.found)) == (True, 12)
    assert outcome.passes == 13


def test_an_empty_list_too_early_proves_nothing(recorded: Recorded) -> None:
    """A create without an answer may still make its sandbox: until then an empty list is no proof."""
    account, settled = _Account(), time.monotonic() + 0.3
    born: list[str] = []

    def late(offset: int) -> SandboxPage:
        if not born and time.monotonic() > settled - 0.15:
            born.append("late")
            account.there["late"] = sandbox("late")
        return account.list(offset)

    account.transport.on_list = late
    outcome = recorded(account.transport, not_before=settled).run()
    assert (outcome.found, outcome.verified, account.there) == ({"late"}, True, {})
    assert time.monotonic() >= settled


def test_gives_up_before_an_empty_list_may_prove_anything(recorded: Recorded) -> None:
    """If that moment never comes, the reason is told."""
    outcome = recorded(_Account().transport, not_before=time.monotonic() + 60, give_up_sec=0.1).run()
    assert outcome.problem == "a create without an answer may still make a sandbox"
    assert not outcome.verified


def test_passes_are_said(recorded: Recorded) -> None:
    """Each pass that found something says how many are deleted now and how many are on their way."""
    account = _Account(sandbox("a", "ready"), sandbox("b", "deleting"), lingers=1)
    account.delete("b")
    made = recorded(account.transport)
    made.run()
    assert made.said == [
        "clean-up, pass 1: 1 to delete, 1 on their way",
        "clean-up, pass 2: 0 to delete, 1 on their way",
    ]


def test_a_sandbox_without_a_task_is_named_by_itself() -> None:
    """A sandbox that the run does not know is told by what the server says of it."""
    found = about_itself(sandbox("a", "ready", persist=True, storage_size="5Gi"))
    assert found == {
        "task": None,
        "template": "aio-sandbox-tiny",
        "persist": True,
        "storage_size": "5Gi",
        "sandbox_id": "a",
    }
    assert about_itself(sandbox("a", storage_size="5Gi"))["storage_size"] is None


def test_a_refused_credential_ends_it_soon(recorded: Recorded) -> None:
    """Three lists in a row that answer 401: waiting for two minutes helps nobody."""
    transport = Scripted(on_list=taking_turns(api_error(401, "Invalid or expired API key.")))
    outcome = recorded(transport).run()
    assert (outcome.verified, outcome.passes) == (False, 3)
    assert "401 auth_error" in str(outcome.problem)


def test_gone_is_what_a_whole_list_shows_no_more(recorded: Recorded) -> None:
    """A delete that was accepted is told gone once, and only then."""
    account = _Account(sandbox("a", "ready"), sandbox("b", "ready"), lingers=2)
    cleaned = recorded(account.transport)
    cleaned.run()
    assert sorted(cleaned.gone) == ["a", "b"]
    assert cleaned.ledger.of(Fate.GONE) == ["a", "b"]


def test_pages_that_do_not_fit_together_show_nobody_gone(recorded: Recorded) -> None:
    """A row may have slipped past between two pages."""
    cleaned = recorded(Scripted(on_list=taking_turns(page(total=1), page(total=1), page())))
    cleaned.ledger.add({"event": "delete_ok", "sandbox_id": "a", **dict.fromkeys(("task", "template"), None)})
    cleaned.cleanup._one_pass()
    assert cleaned.gone == []
    cleaned.run()
    assert cleaned.gone == ["a"]


def test_what_happened_to_the_deletes_is_counted(recorded: Recorded) -> None:
    """Accepted, answered as gone, and failed so far."""
    refusals: dict[str, list[Exception]] = {"b": [api_error(500, "x")], "c": [api_error(409, "deleting")]}
    account = _Account(*(sandbox(name, "ready") for name in "abc"), refusals=refusals)
    found = recorded(account.transport).run().describe()
    assert (found["deleted"], found["already_gone"], found["failed"], found["found"]) == (3, 1, 0, 3)


def test_what_is_still_shown_is_not_gone(recorded: Recorded) -> None:
    """A sandbox that is being deleted stands in the list for a while."""
    account = _Account(sandbox("a", "ready"), lingers=2)
    cleaned = recorded(account.transport)
    for _ in range(3):
        cleaned.cleanup._one_pass()
        assert cleaned.gone == []
    cleaned.cleanup._one_pass()
    assert cleaned.gone == ["a"]


def test_a_server_that_is_away_is_waited_for_however_often_it_fails(recorded: Recorded) -> None:
    """Only a refused credential ends it before its time."""
    answers = taking_turns(*[ConnectError("refused")] * 8, page())
    outcome = recorded(Scripted(on_list=answers)).run()
    assert (outcome.verified, outcome.passes) == (True, 9)
