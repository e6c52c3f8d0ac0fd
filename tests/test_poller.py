"""The poller asks once an interval for everybody, and tells each waiter the truth and its bounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count, pairwise

import gevent
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scripted import Scripted, missing, page, rows, sandbox, taking_turns
from treadstone_user.model import Sandbox, SandboxPage
from treadstone_user.poller import Outcome, Poller, Seen, Spans
from treadstone_user.transports.base import MAX_PAGE, CallError, ConnectError, api_error

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


def test_how_far_apart_polls_began_is_kept(watch: MakeWatch) -> None:
    """Polls that take longer than the interval are told; a pause without a waiter is none."""

    def slow(_: int) -> SandboxPage:
        gevent.sleep(4 * INTERVAL)
        return answers.pop(0)

    answers = [page(sandbox("a"))] * 3 + [page(sandbox("a", "ready"))] + [page(sandbox("b", "ready"))]
    watched = watch(Scripted(on_list=slow))
    _all(watched.wait_for("a"))
    gevent.sleep(6 * INTERVAL)
    _all(watched.wait_for("b"))
    periods = list(watched.poller.periods_ms)
    assert len(periods) == 3
    starts = [timing.started for timing in watched.transport.timings]
    assert periods == pytest.approx([(b - a) * 1000 for a, b in pairwise(starts[:4])], abs=10)
    assert min(periods) >= 4 * INTERVAL * 1000


def test_long_lists_are_read_in_small_pages(watch: MakeWatch) -> None:
    """A page's cost is its rows: where the place is known, a poll of few waiters reads few rows."""
    found = _LongList(watch, foreign=4960, creating=40)
    found.before_poll = lambda number: found.get_ready(40 if number == 4 else 0)
    found.until_all_are_ready()
    assert sum(found.transport.rows_given[: len(found.polls[0])]) == 5000, "once, to find them"
    assert sum(found.transport.rows_given[-len(found.polls[-1]) :]) <= 300


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
    """Two gets cost less than the pages."""
    transport = Scripted(
        on_list=_pages(*rows(2500), sandbox("a"), sandbox("b")), on_get=lambda name: sandbox(name, "ready")
    )
    _all(watch(transport).wait_for("a", "b"))
    assert transport.of("list") == [0, 1000, 1100, 2100], "once, to learn how many pages there are"
    assert transport.of("get") == ["a", "b"]


def test_many_waiters_and_few_pages_are_read_from_the_list(watch: MakeWatch) -> None:
    """Three pages cost no more than three gets, and serve whoever comes next."""
    names = ["a", "b", "c"]
    creating = _pages(*rows(2500), *(sandbox(name) for name in names))
    ready = _pages(*rows(2500), *(sandbox(name, "ready") for name in names))
    polls = [creating, ready]

    def answer(offset: int) -> SandboxPage:
        found = polls[0](offset)
        if offset >= 2000:
            polls.pop(0)
        return found

    transport = Scripted(on_list=answer)
    _all(watch(transport).wait_for(*names))
    assert transport.of("list") == [0, 1000, 1100, 2100, 0, 2450], "the second poll knows where they stand"
    assert transport.of("get") == []


def test_those_who_are_done_count_no_more(watch: MakeWatch) -> None:
    """Whether pages or gets cost less goes by who still waits."""
    status = dict.fromkeys(["a", "b", "c"], "ready") | dict.fromkeys(["d", "e"], "creating")
    items = [*rows(2500), *(sandbox(name, state) for name, state in status.items())]
    transport = Scripted(on_list=_pages(*items), on_get=lambda name: sandbox(name, "ready"))
    _all(watch(transport).wait_for(*status))
    assert transport.of("list") == [0, 1000, 1100, 2100]
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


class _LongList:
    """A list in the API's order: what is ready, the latest first, and behind it what is being created."""

    def __init__(self, watched: MakeWatch, *, foreign: int, creating: int) -> None:
        self.ready = [one.id for one in rows(foreign)]
        self.creating = [f"a{number}" for number in range(creating)]
        self.polls: list[list[int]] = []
        self.before_poll: Callable[[int], None] = lambda _: None
        self.behind_page_0: Callable[[int], None] = lambda _: None
        self.transport = Scripted(on_list=self._page, on_get=lambda name: sandbox(name, "ready"))
        self.watch = watched(self.transport)
        self.waits = self.watch.wait_for(*self.creating)

    def _page(self, offset: int) -> SandboxPage:
        if offset == 0:
            self.before_poll(len(self.polls))
            self.polls.append([])
        self.polls[-1].append(offset)
        if offset:
            self.behind_page_0(len(self.polls) - 1)
        names = [*self.ready, *self.creating][
            offset : offset + MAX_PAGE
        ]  # the transport cuts it to its limit
        there = set(self.creating)
        return page(
            *(sandbox(name, "creating" if name in there else "ready") for name in names),
            total=len(self.ready) + len(self.creating),
        )

    def get_ready(self, many: int) -> None:
        """Let the first of those being created get ready: they go to the head of the list."""
        self.ready[:0], self.creating = self.creating[:many][::-1], self.creating[many:]

    def delete(self, many: int) -> None:
        """Let foreign sandboxes go: all that stands behind them moves forward."""
        del self.ready[-many:]

    def until_all_are_ready(self) -> list[Seen]:
        """How each wait ended."""
        return _all(self.waits)


def test_a_long_list_is_read_where_sandboxes_are_being_created(watch: MakeWatch) -> None:
    """Of 5,000 rows with 40 being created, a poll that knows where those stand reads three pages at most."""
    found = _LongList(watch, foreign=4960, creating=40)
    found.before_poll = lambda number: found.get_ready(5 if number else 0)
    seen = found.until_all_are_ready()
    first, *following = found.polls
    assert len(first) <= 6, "the whole list, once, to find them"
    assert [one for one in following if len(one) > 3] == []
    assert max(map(len, following)) == 2, (
        "the page of those who got ready, and the one where they are created"
    )
    assert {one.outcome for one in seen} == {Outcome.READY}
    assert found.transport.of("get") == []
    # A wait of n polls was seen by each of them: five more got ready at each poll from the second on.
    assert [one.polls for one in seen] == [2 + number // 5 for number in range(40)]


@pytest.mark.parametrize("deleted", [100, 700, 1500, 4000])
def test_rows_that_move_forward_are_found_again(deleted: int, watch: MakeWatch) -> None:
    """Deletes between two polls move those being created forward, by any number: none is overlooked."""
    found = _LongList(watch, foreign=4960, creating=40)

    def happen(number: int) -> None:
        if number == 2:
            found.delete(deleted)
        elif number == 5:
            found.get_ready(40)

    found.before_poll = happen
    seen = found.until_all_are_ready()
    assert {(one.outcome, one.polls) for one in seen} == {(Outcome.READY, 6)}
    assert found.transport.of("get") == []
    assert all(len(one) <= 3 for one in found.polls[3:]), "and the poll after that knows the place again"


def test_rows_that_move_back_are_found_again(watch: MakeWatch) -> None:
    """So are those that others who got ready have moved back."""
    found = _LongList(watch, foreign=1960, creating=40)

    def happen(number: int) -> None:
        if number == 2:
            found.ready[:0] = [one.id for one in rows(3000, "more-")]
        elif number == 5:
            found.get_ready(40)

    found.before_poll = happen
    seen = found.until_all_are_ready()
    assert {(one.outcome, one.polls) for one in seen} == {(Outcome.READY, 6)}
    assert all(len(one) <= 3 for one in found.polls[3:])


def test_a_list_that_shrinks_while_it_is_read_costs_no_further_calls(watch: MakeWatch) -> None:
    """Rows that are no longer there are not asked for, though some who got ready meanwhile are unseen."""
    found = _LongList(watch, foreign=4960, creating=40)

    def happen(number: int) -> None:
        if number == 2 and len(found.polls[2]) == 2:  # the first page has been read, the second is on its way
            found.delete(2000)
            found.get_ready(6)

    found.behind_page_0 = happen
    found.before_poll = lambda number: found.get_ready(40 if number == 3 else 0)
    seen = found.until_all_are_ready()
    assert len(found.polls[2]) <= 5, "three pages' worth of rows are there, and one place was stale"
    assert [offset for offset in found.polls[2] if offset >= 3000] == [4910], "the stale place and no other"
    assert found.transport.of("get") == [f"a{number}" for number in range(6)]
    assert [one.polls for one in seen] == [3] * 6 + [4] * 34


def test_a_list_that_shows_nothing_is_given_up(watch: MakeWatch) -> None:
    """Pages without rows, whatever total they tell, are read once each; all are asked for one by one."""
    names = [f"a{number}" for number in range(40)]
    transport = Scripted(on_list=lambda _: page(total=5000), on_get=lambda name: sandbox(name, "ready"))
    _all(watch(transport).wait_for(*names))
    assert sorted(transport.of("list")) == [0, 1000, 2000, 3000, 4000]
    assert transport.of("get") == names


PAGES = st.lists(st.tuples(st.integers(0, 12_000), st.integers(1, MAX_PAGE)), max_size=12)


def _unread(pages: list[tuple[int, int]], total: int) -> set[int]:
    return set(range(total)).difference(*(range(start, start + length) for start, length in pages))


@given(
    pages=PAGES, aheads=st.lists(st.integers(0, 12_000), min_size=1, max_size=6), total=st.integers(0, 9000)
)
def test_reading_on_covers_every_row_and_ends(
    pages: list[tuple[int, int]], aheads: list[int], total: int
) -> None:
    """Whatever has been read and wherever reading would go on, every row is read in the end."""
    spans = Spans()
    for start, length in pages:
        spans.add(start, start + length)
    unread = _unread(pages, total)
    for number in count():
        following = spans.next_page(aheads[number % len(aheads)], total)
        if following is None:
            break
        assert following in unread, "each page begins with a row that was not read"
        spans.add(following, following + MAX_PAGE)
        unread -= set(range(following, following + MAX_PAGE))
    assert not unread
    assert spans.missing_pages(total) == 0


@given(pages=PAGES, total=st.integers(0, 9000))
def test_missing_pages_are_enough(pages: list[tuple[int, int]], total: int) -> None:
    """So many pages read what is unread, and one less would not wherever a gap is whole."""
    spans = Spans()
    for start, length in pages:
        spans.add(start, start + length)
    wanted, read = spans.missing_pages(total), 0
    while (following := spans.next_page(-1, total)) is not None:
        spans.add(following, following + MAX_PAGE)
        read += 1
    assert read <= wanted
    assert (wanted == 0) == (not _unread(pages, total))


def test_where_reading_goes_on() -> None:
    """Ahead, if that is unread; else backwards from the end of the last gap, a page at a time."""
    spans = Spans()
    assert (spans.next_page(0, 0), spans.missing_pages(0)) == (None, 0)
    assert (spans.next_page(0, 2500), spans.missing_pages(2500)) == (0, 3)
    spans.add(0, 1000)
    assert spans.next_page(2250, 5000) == 2250
    spans.add(2250, 3250)
    assert spans.missing_pages(5000) == 2 + 2
    assert spans.next_page(3250, 5000) == 3250
    spans.add(3250, 4250)
    assert spans.next_page(4250, 5000) == 4250
    spans.add(4250, 5000)
    assert spans.next_page(5000, 5000) == 1250
    spans.add(1250, 2250)
    assert spans.next_page(2250, 5000) == 1000, "the gap is smaller than a page"
    spans.add(1000, 2000)
    assert spans.next_page(2000, 5000) is None
