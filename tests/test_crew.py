"""Master and workers over a line that loses and repeats messages: each task and each event once."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import gevent
import pytest

from tests.scripted import RUN_ID, TINY, Scripted, accesses, page
from treadstone_user import __version__, engagement
from treadstone_user.crew import Crew
from treadstone_user.engagement import Engagement
from treadstone_user.eventlog import EventLog
from treadstone_user.load import LoadRules
from treadstone_user.messages import Answer, Assignment, Join, Message, Report, from_values, to_values
from treadstone_user.model import Sandbox, Task, Variant
from treadstone_user.plan import FixedPlan
from treadstone_user.scenario import Scenario
from treadstone_user.sections import Job
from treadstone_user.spool import Spool
from treadstone_user.stock import Stock
from treadstone_user.transports.base import CreateSpec

ENDS = ("create_err", "ready", "failed_status", "poll_timeout", "interrupted", "lost")


class Line:
    """Carries messages both ways; loses some, and brings some twice."""

    def __init__(self, *, losses: float = 0.0, repeats: float = 0.0, seed: int = 0) -> None:
        self._chance = random.Random(seed)
        self._losses, self._repeats = losses, repeats
        self.cut: set[str] = set()

    def carry(self, node: str, message: Message, deliver: Callable[[Message], None]) -> None:
        """Bring a message a little later, once, twice or never."""
        values = json.loads(json.dumps(to_values(message)))
        for _ in range(1 + (self._chance.random() < self._repeats)):
            if node not in self.cut and self._chance.random() >= self._losses:
                gevent.spawn_later(0.001, self._deliver, node, values, deliver)

    def _deliver(self, node: str, values: dict[str, Any], deliver: Callable[[Message], None]) -> None:
        if node not in self.cut:
            deliver(from_values(values))


class Worker:
    """A worker of a crew: an engagement over a scripted transport, with users that work."""

    numbers = itertools.count(1)

    def __init__(
        self, crew: MakeCrew, users: int, *, create_sec: float = 0.01, status: str = "ready"
    ) -> None:
        self.node = f"node{next(self.numbers)}"
        self.created: list[str] = []
        self.in_flight = self.most_in_flight = 0
        self._create_sec = create_sec
        self._status = status
        self.crew = crew
        crew.workers[self.node] = self
        transport = Scripted(on_create=self._create, on_list=lambda _: page(*self._list()), on_get=self._get)
        self._places = transport.places
        self.engagement: Engagement | None = None
        self._transport = transport
        self._users = users
        crew.greenlets.append(gevent.spawn(self._join))

    def _join(self) -> None:
        join = Join(version=__version__, host="here", machine="m", pid=1)
        while self.engagement is None:
            self.crew.line.carry(self.node, join, lambda message: self.crew.crew.receive(self.node, message))
            gevent.sleep(0.05)

    def _create(self, _: CreateSpec) -> Sandbox:
        self.crew.in_flight += 1
        self.crew.most_in_flight = max(self.crew.most_in_flight, self.crew.in_flight)
        gevent.sleep(self._create_sec)
        self.crew.in_flight -= 1
        name = f"{self.node}-{len(self.created)}"
        self.created.append(name)
        return Sandbox(id=name, template=TINY, status="creating")

    def _list(self) -> list[Sandbox]:
        return [self._get(name) for name in self.created]

    def _get(self, name: str) -> Sandbox:
        return Sandbox(id=name, template=TINY, status=self._status)

    def assigned(self, assignment: Assignment) -> None:
        """Take part."""
        if self.engagement is not None:
            return

        def send(message: Message) -> None:
            self.crew.line.carry(
                self.node, message, lambda arrived: self.crew.crew.receive(self.node, arrived)
            )

        self.engagement = Engagement(
            run_id=RUN_ID,
            clock_error_ms=0.1,
            rules=LoadRules(self.crew.scenario, "loadtest:x", steady=False, ask_later=True),
            accesses=accesses(self._transport),
            stock=Stock(),
            spool=lambda on_broken: Spool(
                self.crew.folder / "spool" / f"{assignment.worker}.jsonl",
                worker=assignment.worker,
                began=0.0,
                on_broken=on_broken,
            ),
            report=lambda step: None,
            send=send,
            on_drained=lambda: None,
            say=lambda line: None,
        )
        for _ in range(self._users):
            self.crew.greenlets.append(gevent.spawn(self._work))

    def _work(self) -> None:
        assert self.engagement is not None
        while True:
            self.engagement.load.do(Job.LIFECYCLE)

    def kill(self) -> None:
        """Go without a word."""
        self.crew.line.cut.add(self.node)
        self.crew.present.discard(self.node)
        assert self.engagement is not None
        self.engagement._speaker.kill()


class MakeCrew:
    """A master's crew over a log in a folder."""

    def __init__(self, folder: Path, line: Line, *, tasks: int, budget: int) -> None:
        self.folder, self.line = folder, line
        self.workers: dict[str, Worker] = {}
        self.present: set[str] = set()
        self.greenlets: list[gevent.Greenlet[..., None]] = []
        self.said: list[str] = []
        self.in_flight = self.most_in_flight = 0
        self.useless = 0
        variant = Variant(0, TINY, tasks)
        self.scenario = Scenario(name="x", description="", matrix=(variant,), poll_interval_sec=0.05)
        self.plan = FixedPlan([Task(number, variant) for number in range(1, tasks + 1)])
        self.log = EventLog(folder / "events.jsonl", worker="master")
        self.crew = Crew(
            run_id=RUN_ID,
            plan=self.plan,
            turns=None,
            log=self.log,
            budget=budget,
            assignment=self._assignment,
            spools=folder / "spool",
            send=self._send,
            present=lambda: self.present,
            on_useless=self._on_useless,
            say=self.said.append,
        )

    def _on_useless(self) -> None:
        self.useless += 1

    def _assignment(self, name: str) -> Assignment:
        return Assignment(
            RUN_ID,
            name,
            0.0,
            self.scenario.snapshot(),
            False,
            ["lifecycle"],
            False,
            "http://x",
            "http",
            "m",
            None,
            None,
        )

    def _send(self, node: str, message: Message) -> None:
        worker = self.workers[node]

        def deliver(arrived: Message) -> None:
            if isinstance(arrived, Assignment):
                worker.assigned(arrived)
            elif isinstance(arrived, Answer) and worker.engagement is not None:
                worker.engagement.receive(arrived)

        self.line.carry(node, message, deliver)

    def worker(self, users: int = 5, **more: Any) -> Worker:
        """Add a worker."""
        worker = Worker(self, users, **more)
        self.present.add(worker.node)
        return worker

    def drain(self) -> list[dict[str, Any]]:
        """End the run; returns all events of the log."""
        with gevent.Timeout(20):
            self.crew.drain()
        self.log.close()
        return [json.loads(line) for line in (self.folder / "events.jsonl").read_text().splitlines()]

    def close(self) -> None:
        """End everything."""
        gevent.killall(self.greenlets)


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., MakeCrew]]:
    """Make crews that end with the test; lost messages are said again soon."""
    monkeypatch.setattr(engagement, "_REPORT_SEC", 0.05)
    monkeypatch.setattr("treadstone_user.crew.MISSING_SEC", 0.2)
    monkeypatch.setattr("treadstone_user.crew._TEND_SEC", 0.05)
    with ExitStack() as stack:

        def make(line: Line | None = None, *, tasks: int = 30, budget: int = 6) -> MakeCrew:
            crew = MakeCrew(tmp_path, line or Line(), tasks=tasks, budget=budget)
            stack.callback(crew.close)
            return crew

        yield make


def assert_each_once(events: list[dict[str, Any]], tasks: int) -> None:
    """Each event stands once and in its worker's order; each task is begun once and ends once."""
    numbered: dict[str, list[int]] = {}
    for event in events:
        numbered.setdefault(event["worker"], []).append(event["seq"])
    assert all(seqs == list(range(1, len(seqs) + 1)) for seqs in numbered.values())
    begun = Counter(event["task"] for event in events if event["event"] == "create_submitted")
    ended = Counter(event["task"] for event in events if event["event"] in ENDS)
    assert set(begun.values()) <= {1}
    assert sorted(ended.elements()) == list(range(1, tasks + 1))


@pytest.mark.parametrize("seed", range(5))
def test_each_task_and_each_event_once_though_messages_are_lost_and_repeated(
    make: Callable[..., MakeCrew], seed: int
) -> None:
    """A third of all messages is lost, and a third comes twice."""
    crew = make(Line(losses=0.33, repeats=0.33, seed=seed))
    workers = [crew.worker() for _ in range(3)]
    assert crew.plan.finished.wait(timeout=20)
    events = crew.drain()
    assert_each_once(events, 30)
    assert Counter(event["event"] for event in events) == {
        "create_submitted": 30,
        "create_ok": 30,
        "ready": 30,
    }
    assert sum(len(worker.created) for worker in workers) == 30
    assert crew.most_in_flight <= 6
    end = time.monotonic() + 20  # the last answers may be lost, too
    while (crew.folder / "spool").exists():
        assert time.monotonic() < end, "what is acknowledged is not kept"
        gevent.sleep(0.05)


def test_the_budget_holds_while_workers_join(make: Callable[..., MakeCrew]) -> None:
    """A late worker gets its share once the others have given it back."""
    crew = make(tasks=60, budget=4)
    workers = [crew.worker(users=10, create_sec=0.03)]
    for _ in range(3):
        gevent.sleep(0.1)
        workers.append(crew.worker(users=10, create_sec=0.03))
    assert crew.plan.finished.wait(timeout=20)
    crew.drain()
    assert crew.most_in_flight == 4
    assert all(worker.created for worker in workers)


def test_the_concurrency_goes_to_workers_that_have_users(make: Callable[..., MakeCrew]) -> None:
    """Locust may put the only user anywhere: the others get no share, and the run goes on."""
    crew = make(tasks=6, budget=1)
    for _ in range(2):
        crew.worker(users=0)
    worker = crew.worker(users=1)
    assert crew.plan.finished.wait(timeout=20)
    assert len(worker.created) == 6
    health = {row["who"][:2]: row["figures"]["share_of_concurrency"] for row in crew.crew.health()}
    assert health == {"w1": 0, "w2": 0, "w3": 1}


def test_sandboxes_that_are_waited_for_hold_no_tasks_up(make: Callable[..., MakeCrew]) -> None:
    """The budget is of calls: a worker begins the next create while it waits for the last sandbox."""
    crew = make(tasks=8, budget=2)
    worker = crew.worker(users=8, status="creating")
    end = time.monotonic() + 10
    while len(worker.created) < 8:
        assert time.monotonic() < end, f"{len(worker.created)} of 8"
        gevent.sleep(0.01)
    assert crew.most_in_flight == 2


def test_tasks_of_a_lost_worker_end_as_lost_and_its_spool_is_read(make: Callable[..., MakeCrew]) -> None:
    """What it wrote and never sent is in its file; what it had in hand has an end; the run goes on."""
    crew = make(tasks=20, budget=4)
    dead, alive = crew.worker(create_sec=0.3), crew.worker(create_sec=0.05)
    while crew.in_flight < 4:
        gevent.sleep(0.01)
    dead.kill()
    assert crew.plan.finished.wait(timeout=20)
    gevent.sleep(0.1)
    events = crew.drain()
    assert_each_once(events, 20)
    lost = [event for event in events if event["event"] == "lost"]
    assert lost
    assert {event["lost_worker"] for event in lost} == {"w1"}
    assert len(alive.created) >= 10
    created_by_dead = {e["sandbox_id"] for e in events if e["event"] == "create_ok" and e["worker"] == "w1"}
    assert created_by_dead <= set(dead.created)
    assert any("is lost" in line for line in crew.said)


def test_a_worker_that_comes_back_after_it_was_given_up_changes_nothing(
    make: Callable[..., MakeCrew],
) -> None:
    """Its tasks have their end already."""
    crew = make(tasks=12, budget=4)
    late, _ = crew.worker(create_sec=0.5), crew.worker(create_sec=0.02)
    while crew.in_flight < 4:
        gevent.sleep(0.01)
    crew.line.cut.add(late.node)
    crew.present.discard(late.node)
    assert crew.plan.finished.wait(timeout=20)
    crew.line.cut.clear()
    gevent.sleep(0.3)
    assert_each_once(crew.drain(), 12)


def test_a_worker_that_leaves_gives_back_what_it_has_not_begun(make: Callable[..., MakeCrew]) -> None:
    """Others make those sandboxes; what it began ends as interrupted or otherwise, and is told."""
    crew = make(tasks=30, budget=4)
    leaving, _ = crew.worker(create_sec=0.05), crew.worker(create_sec=0.05)
    while not leaving.created:
        gevent.sleep(0.01)
    assert leaving.engagement is not None
    leaving.engagement.drain()
    assert leaving.engagement.over.wait(timeout=5)
    assert crew.plan.finished.wait(timeout=20)
    events = crew.drain()
    assert_each_once(events, 30)
    assert not [event for event in events if event["event"] == "lost"]
    assert any("has left" in line for line in crew.said)


def test_nothing_is_created_after_the_drain(make: Callable[..., MakeCrew]) -> None:
    """Calls in flight end and are told; nobody begins anything more."""
    crew = make(tasks=500, budget=6)
    workers = [crew.worker(users=20) for _ in range(2)]
    gevent.sleep(0.3)
    events = crew.drain()
    created = sum(len(worker.created) for worker in workers)
    gevent.sleep(0.2)
    assert sum(len(worker.created) for worker in workers) == created
    submitted = [event for event in events if event["event"] == "create_submitted"]
    ends = [event for event in events if event["event"] in ENDS]
    assert len(submitted) == len(ends) == created < 500
    assert {node["state"] for node in crew.crew.describe()["worker_nodes"].values()} == {"drained"}


def test_a_worker_of_another_version_is_refused(make: Callable[..., MakeCrew]) -> None:
    """It is told, and where nobody else is there the run cannot go on."""
    crew = make()
    crew.present.add("old")
    crew.crew.receive("old", Join(version="0.0.1", host="here", machine="m", pid=7))
    assert crew.said == [
        f"worker w1 (here, pid 7) takes no tasks: it runs version 0.0.1, and the master {__version__}"
    ]
    assert crew.useless == 1


def test_a_worker_whose_spool_cannot_be_written_takes_no_more_tasks(
    make: Callable[..., MakeCrew], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk: it says so, its events arrive all the same, and the others go on."""
    crew = make(tasks=20, budget=4)
    full, _ = crew.worker(), crew.worker(create_sec=0.05)
    while full.engagement is None or not full.created:
        gevent.sleep(0.005)
    full.engagement._spool.log._file.close()
    full.engagement._spool.log._file = Path("/dev/full").open("a")  # noqa: SIM115
    assert crew.plan.finished.wait(timeout=20)
    assert_each_once(crew.drain(), 20)
    assert any("takes no more tasks" in line and "cannot be written" in line for line in crew.said)


def test_a_run_whose_only_worker_takes_no_more_tasks_cannot_go_on(make: Callable[..., MakeCrew]) -> None:
    """It is still there, so Locust would wait; but tasks are left that nobody takes."""
    crew = make(tasks=50, budget=2)
    worker = crew.worker(create_sec=0.05)
    while not worker.created:
        gevent.sleep(0.01)
    assert worker.engagement is not None
    worker.engagement.drain()
    assert worker.engagement.over.wait(timeout=5)
    assert crew.useless == 1
    assert not crew.plan.finished.is_set()


def test_a_worker_that_is_cut_off_begins_nothing_more(
    make: Callable[..., MakeCrew], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The master may have given it up and cleaned up: tasks that wait there for a place stay there."""
    monkeypatch.setattr(engagement, "_LEASE_SEC", 0.3)
    crew = make(tasks=30, budget=1)
    worker = crew.worker(users=10, create_sec=0.5)
    while not worker.created:
        gevent.sleep(0.01)
    gevent.sleep(0.1)  # the second create is on its way, and a third task waits for its place
    crew.line.cut.add(worker.node)
    gevent.sleep(1.6)
    assert len(worker.created) == 2


def test_a_run_whose_last_worker_dies_beside_a_refused_one_ends(make: Callable[..., MakeCrew]) -> None:
    """The refused one is still there, so Locust goes on."""
    crew = make(tasks=50, budget=2)
    crew.present.add("old")
    crew.crew.receive("old", Join(version="0.0.1", host="here", machine="m", pid=7))
    crew.useless = 0
    worker = crew.worker(create_sec=0.05)
    while not worker.created:
        gevent.sleep(0.01)
    worker.kill()
    end = time.monotonic() + 5
    while not crew.useless:
        assert time.monotonic() < end
        gevent.sleep(0.05)


class ByHand:
    """A crew whose one worker is this test: it sends reports and reads answers."""

    def __init__(self, crew: MakeCrew) -> None:
        self.crew = crew
        self.answers: list[Answer] = []
        self._to_others = crew.crew._send
        crew.crew._send = self._hear
        crew.present.add("hand")
        crew.crew.receive("hand", Join(version=__version__, host="here", machine="m", pid=1))
        self._number = 0

    def _hear(self, node: str, message: Message) -> None:
        if node != "hand":
            self._to_others(node, message)
        elif isinstance(message, Answer):
            self.answers.append(message)

    def report(self, *events: dict[str, Any], **more: Any) -> Answer:
        """Send a report with these events; returns the answer to it."""
        self._number += 1
        state: dict[str, Any] = {"done": [], "got": 0, "want": 0, "want_turns": 0, "holds": 0, "client": None}
        state |= {"clock_error_ms": 0.1, "problem": None, "heard": len(self.answers), **more}
        lines = [json.dumps(event) for event in events]
        self.crew.crew.receive("hand", Report(RUN_ID, self._number, events=lines, **state))
        return self.answers[-1]


def _event(seq: int, kind: str, task: int, **more: Any) -> dict[str, Any]:
    about = {"task": task, "template": TINY, "persist": False}
    return {"event": kind, "worker": "w1", "seq": seq, **about, **more}


def test_tasks_that_a_worker_that_left_has_not_begun_go_to_another_one(
    make: Callable[..., MakeCrew],
) -> None:
    """They waited for their place there, or came when it had closed already."""
    crew = make(tasks=3, budget=3)
    worker = ByHand(crew)
    assert [number for number, *_ in worker.report(want=2, holds=3).tasks] == [1, 2]
    worker.report(client={"cores": 1, "cpu_sec": 0, "cpu_cli_sec": 0, "cpu_of_all_cores": 0})
    assert [task.number for task in iter(lambda: crew.plan.take(wait=False), None)] == [1, 2, 3]


def test_a_share_on_its_way_counts_as_held(make: Callable[..., MakeCrew]) -> None:
    """A worker that has not heard of its smaller share may use the larger one in a moment."""
    crew = make(tasks=20, budget=6)
    worker = ByHand(crew)
    assert worker.report(want=6, holds=0).share == 6
    first = len(worker.answers)
    other = crew.worker(users=6)
    gevent.sleep(0.1)
    assert (worker.answers[-1].share, other.created) == (3, []), "told, and not heard yet"
    worker.report(want=0, holds=6, got=6, heard=first)
    gevent.sleep(0.1)
    assert other.created == []
    worker.report(want=0, holds=3, got=6)
    gevent.sleep(0.1)
    assert other.created


def test_a_task_that_has_ended_is_not_lost_with_its_worker(make: Callable[..., MakeCrew]) -> None:
    """As in a steady load: it was ready, and its delete was still to come."""
    crew = make(tasks=2, budget=2)
    worker = ByHand(crew)
    worker.report(want=2, holds=2)
    worker.report(
        _event(1, "create_submitted", 1),
        _event(2, "create_ok", 1, sandbox_id="a"),
        _event(3, "ready", 1, sandbox_id="a", ready_latency_ms=1, ready_after_ms=0),
        got=2,
    )
    crew.present.clear()
    assert crew.plan.finished.wait(timeout=5)
    events = crew.drain()
    assert_each_once(events, 2)
    lost = [(e["task"], e["submitted"], e["lost_worker"]) for e in events if e["event"] == "lost"]
    assert lost == [(2, False, "w1")]


def test_what_a_lost_worker_wrote_and_never_sent_is_read_from_its_spool(
    make: Callable[..., MakeCrew],
) -> None:
    """Where the file is on this machine; what it had sent stands in the log once all the same."""
    crew = make(tasks=2, budget=2)
    worker = ByHand(crew)
    worker.report(want=2, holds=2)
    first, second = _event(1, "create_submitted", 1), _event(2, "create_ok", 1, sandbox_id="a")
    third = _event(3, "ready", 1, sandbox_id="a", ready_latency_ms=1, ready_after_ms=0)
    worker.report(first, got=2)
    spool = crew.folder / "spool" / "w1.jsonl"
    spool.parent.mkdir()
    spool.write_text("".join(json.dumps(event) + "\n" for event in (first, second, third)) + '{"torn')
    crew.present.clear()
    assert crew.plan.finished.wait(timeout=5)
    events = crew.drain()
    assert_each_once(events, 2)
    assert [e["event"] for e in events if e["task"] == 1] == ["create_submitted", "create_ok", "ready"]
