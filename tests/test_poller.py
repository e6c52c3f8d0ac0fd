"""The poller asks once an interval for everybody, and tells each waiter the truth and its bounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import pairwise

import gevent
import pytest

from tests.scripted import Scripted, missing, page, rows, sandbox, taking_turns
from treadstone_user.model import Sandbox, SandboxPage
from treadstone_user.poller import Outcome, Poller, Seen
from treadstone_user.transports.base import CallError, ConnectError, api_error

INTERVAL = 0.05
LONG = 20.0
type Wait = gevent.Greenlet[..., Seen]


class _Watch:
    """A poller over a scripted transport, with those who wait for it."""

    def __init__(self, transport: Scripted) -> None:
        self.transport = transport
        self.failures: list[CallError] = []
        self.poller = Poller(transport, interval_sec=INTERVAL, on_failure=self.failures.append)
        self.began = time.monotonic()

    def wait_for(self, *names: str, timeout: float = LONG) -> list[Wait]:
        """Have somebody wait for each sandbox, which was created just now."""
        now = time.monotonic()
        waits: list[Wait] = [
            gevent.spawn(self.poller.wait, name, status="creating", after=now, deadline=now + timeout)
            for name in names
        ]
        gevent.idle()
        return waits


@pytest.fixture(name="watch")
def _watch() -> Iterator[Callable[..., _Watch]]:
    made: list[_Watch] = []

    def make(transport: Scripted) -> _Watch:
        made.append(_Watch(transport))
        return made[-1]

    yield make
    for watch in made:
        watch.poller.stop()


MakeWatch = Callable[..., _Watch]


def _all(waits: list[Wait]) -> list[Seen]:
    gevent.joinall(waits, timeout=LONG, raise_error=True)
    return [wait.get(timeout=0) for wait in waits]


def _pages(*items: Sandbox) -> Callable[[int], SandboxPage]:
    """A list that keeps still, of as many pages as it takes."""
    return lambda offset: page(*items[offset : offset + 1000], total=len(items))


def test_one_list_an_interval_serves_all_however_many(watch: MakeWatch) -> None:
    """A hundred waiters cost as many calls as one, and all of them learn at once."""
    names = [f"a{number}" for number in range(100)]
    creating = page(*(sandbox(name) for name in names))
    ready = page(*(sandbox(name, "ready") for name in names))
    transport = Scripted(on_list=taking_turns(creating, creating, ready))
    watched = watch(transport)
    seen = _all(watched.wait_for(*names))
    assert transport.calls == [("list", 0)] * 3
    assert {(one.outcome, one.status, one.polls) for one in seen} == {(Outcome.READY, "ready", 3)}


def test_polls_keep_to_their_interval(watch: MakeWatch) -> None:
    """The first poll comes an interval after the wait begins, the others an interval apart."""
    transport = Scripted(on_list=taking_turns(*[page(sandbox("a"))] * 4, page(sandbox("a", "ready"))))
    watched = watch(transport)
    _all(watched.wait_for("a"))
    starts = [watched.began, *(timing.started for timing in transport.timings)]
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    assert min(gaps) >= INTERVAL / 2


def test_nobody_waits_nobody_asks(watch: MakeWatch) -> None:
    """Without a waiter no call is made, and a later one is served all the same."""
    transport = Scripted(on_list=lambda _: page(sandbox("a", "ready"), sandbox("b", "ready")))
    watched = watch(transport)
    _all(watched.wait_for("a"))
    gevent.sleep(4 * INTERVAL)
    assert len(transport.calls) == 1
    assert [one.outcome for one in _all(watched.wait_for("b"))] == [Outcome.READY]
    assert len(transport.calls) == 2


def test_a_row_that_slips_between_two_pages_is_asked_for_by_itself(watch: MakeWatch) -> None:
    """Rows move while the list is read: who stands on no page may be there all the same."""
    foreign = rows(1000)

    def slipping(offset: int) -> SandboxPage:
        # The sandbox moved to the first page after that had been read, and pushed a row to the second.
        return page(*foreign, total=1001) if offset == 0 else page(foreign[-1], total=1001)

    transport = Scripted(on_list=slipping, on_get=lambda name: sandbox(name, "ready"))
    (seen,) = _all(watch(transport).wait_for("slipped"))
    assert transport.calls == [("list", 0), ("list", 1000), ("get", "slipped")]
    assert (seen.outcome, seen.polls) == (Outcome.READY, 1)


def test_a_sandbox_that_is_nowhere_is_deleted(watch: MakeWatch) -> None:
    """Who is on no page and not to be had by itself is gone, which is a failure at once."""
    transport = Scripted(on_list=lambda _: page(), on_get=taking_turns(missing("a")))
    (seen,) = _all(watch(transport).wait_for("a"))
    assert (seen.outcome, seen.status, seen.polls) == (Outcome.FAILED, "deleted", 1)


def test_pages_are_read_no_further_than_needed(watch: MakeWatch) -> None:
    """Once all waiters have been seen, the rest of the list is left unread."""
    transport = Scripted(on_list=_pages(sandbox("a", "ready"), *rows(2500)))
    _all(watch(transport).wait_for("a"))
    assert transport.calls == [("list", 0)]


def test_few_waiters_and_many_pages_are_asked_for_one_by_one(watch: MakeWatch) -> None:
    """Two gets cost less than three pages."""
    transport = Scripted(
        on_list=_pages(*rows(2500), sandbox("a"), sandbox("b")), on_get=lambda name: sandbox(name, "ready")
    )
    _all(watch(transport).wait_for("a", "b"))
    assert transport.of("list") == [0, 1000, 2000], "once, to learn how many pages there are"
    assert transport.of("get") == ["a", "b"]


def test_many_waiters_and_few_pages_are_read_from_the_list(watch: MakeWatch) -> None:
    """Three pages cost no more than three gets, and serve whoever comes next."""
    names = ["a", "b", "c"]
    creating = _pages(*rows(2500), *(sandbox(name) for name in names))
    ready = _pages(*rows(2500), *(sandbox(name, "ready") for name in names))
    polls = [creating, ready]

    def answer(offset: int) -> SandboxPage:
        found = polls[0](offset)
        if offset == 2000:
            polls.pop(0)
        return found

    transport = Scripted(on_list=answer)
    _all(watch(transport).wait_for(*names))
    assert transport.of("list") == [0, 1000, 2000] * 2
    assert transport.of("get") == []


def test_those_who_are_done_count_no_more(watch: MakeWatch) -> None:
    """Whether pages or gets cost less goes by who still waits."""
    status = dict.fromkeys(["a", "b", "c"], "ready") | dict.fromkeys(["d", "e"], "creating")
    items = [*rows(2500), *(sandbox(name, state) for name, state in status.items())]
    transport = Scripted(on_list=_pages(*items), on_get=lambda name: sandbox(name, "ready"))
    _all(watch(transport).wait_for(*status))
    assert transport.of("list") == [0, 1000, 2000]
    assert transport.of("get") == ["d", "e"]


def test_who_joins_while_others_are_asked_for_disturbs_nobody(watch: MakeWatch) -> None:
    """Waits begin and end at any moment of a poll."""
    joined: list[Wait] = []

    def get(name: str) -> Sandbox:
        if not joined:
            joined.extend(watched.wait_for("late"))
        return sandbox(name, "ready")

    transport = Scripted(on_list=_pages(*rows(2500), sandbox("a"), sandbox("b")), on_get=get)
    watched = watch(transport)
    _all([*watched.wait_for("a", "b"), *joined])
    assert [one.outcome for one in _all(joined)] == [Outcome.READY]
    assert transport.of("get") == ["a", "b", "late"]


def test_a_failed_poll_is_told_and_the_next_interval_tries_again(watch: MakeWatch) -> None:
    """A failure ends no wait: it is reported, and the next answer counts."""
    failures = [ConnectError("refused"), api_error(502, "Bad gateway")]
    transport = Scripted(on_list=taking_turns(*failures, page(sandbox("a", "ready"))))
    watched = watch(transport)
    (seen,) = _all(watched.wait_for("a"))
    assert watched.failures == failures
    assert (seen.outcome, seen.polls) == (Outcome.READY, 1), "a poll without an answer showed nothing"
    assert transport.timings[0].started - watched.began >= 2 * INTERVAL, "and not faster than ever"


def test_a_page_that_fails_keeps_what_the_others_showed(watch: MakeWatch) -> None:
    """Who was seen before a page failed is not asked to wait for it."""

    def answer(offset: int) -> SandboxPage:
        if offset:
            raise api_error(500, "An unexpected error occurred.")
        return page(sandbox("a", "ready"), *rows(999), total=1500)

    watched = watch(Scripted(on_list=answer))
    first, second = watched.wait_for("a", "b", timeout=3 * INTERVAL)
    assert [one.outcome for one in _all([first, second])] == [Outcome.READY, Outcome.TIMEOUT]
    assert watched.failures


def test_a_get_that_fails_hides_no_other_sandbox(watch: MakeWatch) -> None:
    """One sandbox that cannot be asked for is reported; those behind it are asked for all the same."""

    def get(name: str) -> Sandbox:
        if name == "broken":
            raise api_error(500, "An unexpected error occurred.")
        return sandbox(name, "ready")

    transport = Scripted(on_list=_pages(*rows(2500), sandbox("broken"), sandbox("b")), on_get=get)
    watched = watch(transport)
    _, other = watched.wait_for("broken", "b")
    assert [one.outcome for one in _all([other])] == [Outcome.READY]
    assert [error.status for error in watched.failures][:1] == [500]


def test_a_deadline_holds_though_the_poller_hangs(watch: MakeWatch) -> None:
    """A wait ends at its own deadline, whatever the poll in flight is doing."""

    def hang(_: int) -> SandboxPage:
        gevent.sleep(LONG)
        return page()

    watched = watch(Scripted(on_list=hang))
    waits = watched.wait_for("a", timeout=0.2)
    (seen,) = _all(waits)
    assert (seen.outcome, seen.status, seen.polls) == (Outcome.TIMEOUT, "creating", 0)
    assert 0.2 <= seen.at - seen.after < 1.5


def test_who_has_given_up_is_asked_for_no_more(watch: MakeWatch) -> None:
    """After its deadline a sandbox costs no calls."""
    transport = Scripted(on_list=lambda _: page(sandbox("a")))
    watched = watch(transport)
    _all(watched.wait_for("a", timeout=2.5 * INTERVAL))
    asked = len(transport.calls)
    gevent.sleep(3 * INTERVAL)
    assert len(transport.calls) == asked


def test_the_bounds_of_ready(watch: MakeWatch) -> None:
    """`after` is when the last request that showed it not ready was sent, `at` when ready was answered."""

    def slowly(answer: SandboxPage) -> Callable[[int], SandboxPage]:
        def answering(_: int) -> SandboxPage:
            gevent.sleep(0.02)
            return answer

        return answering

    answers = [slowly(page(sandbox("a", status))) for status in ("creating", "creating", "ready")]
    transport = Scripted(on_list=lambda offset: answers.pop(0)(offset))
    (seen,) = _all(watch(transport).wait_for("a"))
    _, second, third = transport.timings
    assert (seen.after, seen.at) == (second.started, third.ended)


def test_the_lower_bound_before_any_poll(watch: MakeWatch) -> None:
    """Ready at the first look, it was not ready when the create was sent: that is all there is to know."""
    transport = Scripted(on_list=lambda _: page(sandbox("a", "ready")))
    sent = time.monotonic() - 5
    seen = watch(transport).poller.wait("a", status="creating", after=sent, deadline=sent + LONG)
    assert (seen.after, seen.at) == (sent, transport.timings[0].ended)


def test_a_list_that_was_sent_before_the_create_proves_nothing(watch: MakeWatch) -> None:
    """Who joins while a list is being read is neither missed by it nor asked for because of it."""
    joined: list[Wait] = []

    def answer(_: int) -> SandboxPage:
        if not joined:
            joined.extend(watched.wait_for("late"))
            return page(sandbox("early", "ready"))
        return page(sandbox("late", "ready"))

    transport = Scripted(on_list=answer)
    watched = watch(transport)
    _all(watched.wait_for("early"))
    assert [(one.outcome, one.polls) for one in _all(joined)] == [(Outcome.READY, 1)]
    assert transport.calls == [("list", 0)] * 2


def test_interrupting_ends_all_waits_present_and_future(watch: MakeWatch) -> None:
    """Once interrupted, nobody waits any more, and nobody begins to."""
    transport = Scripted(on_list=lambda _: page(sandbox("a"), sandbox("b")))
    watched = watch(transport)
    waits = watched.wait_for("a", "b")
    gevent.sleep(2.5 * INTERVAL)
    watched.poller.interrupt()
    seen = _all(waits) + _all(watched.wait_for("c"))
    assert {one.outcome for one in seen} == {Outcome.INTERRUPTED}
    assert [one.polls > 0 for one in seen] == [True, True, False], "what was seen so far is kept"
    asked = len(transport.calls)
    gevent.sleep(2 * INTERVAL)
    assert len(transport.calls) == asked


def test_an_interrupt_changes_no_result(watch: MakeWatch) -> None:
    """The first end stands: what was ready before the interrupt stays ready."""
    watched = watch(Scripted(on_list=lambda _: page(sandbox("a", "ready"))))
    (wait,) = watched.wait_for("a")
    while not watched.transport.calls:
        gevent.sleep(0.001)
    watched.poller.interrupt()
    assert [one.outcome for one in _all([wait])] == [Outcome.READY]


ENDS = ["error", "stopped", "cold", "deleting", "deleted", "hibernating", ""]
"""All that is neither creating nor ready; the last two are in no document."""


@pytest.mark.parametrize("status", ENDS)
def test_any_other_status_is_a_failure_at_once(status: str, watch: MakeWatch) -> None:
    """A sandbox that cannot get ready any more is resolved with its status, not waited for."""
    transport = Scripted(on_list=taking_turns(page(sandbox("a")), page(sandbox("a", status))))
    (seen,) = _all(watch(transport).wait_for("a"))
    assert (seen.outcome, seen.status, seen.polls) == (Outcome.FAILED, status, 2)


@pytest.mark.parametrize(("status", "outcome"), [("ready", Outcome.READY), ("error", Outcome.FAILED)])
def test_what_the_create_showed_needs_no_poll(status: str, outcome: Outcome, watch: MakeWatch) -> None:
    """A create that answers with an end is the end, without a call."""
    transport = Scripted()
    now = time.monotonic()
    seen = watch(transport).poller.wait("a", status=status, after=now, deadline=now + LONG)
    assert (seen.outcome, seen.status, seen.after, seen.polls) == (outcome, status, now, 0)
    assert transport.calls == []
