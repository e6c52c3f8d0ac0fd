"""The master's view of its workers: who takes part, which tasks they have in hand, what became of them.

Knows nothing of Locust: `send` takes a message to a worker, `receive` is given theirs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import gevent
from gevent.event import Event as Flag

from treadstone_user import __version__
from treadstone_user.dealing import Dealing
from treadstone_user.eventlog import EventLog, describe_task, read_events
from treadstone_user.load import DRAIN_SEC
from treadstone_user.member import Member, State
from treadstone_user.messages import Answer, Assignment, Join, Message, Refusal, Report
from treadstone_user.model import TASK_ENDS, Event, EventKind
from treadstone_user.plan import Plan, is_turn
from treadstone_user.shares import deal
from treadstone_user.verdict import pool_clients

MISSING_SEC = 5.0
"""A worker that Locust has missed for so long is given up; Locust itself takes 4 s to miss it."""

_TEND_SEC = 0.5
_DRAIN_SEC = DRAIN_SEC + 15.0


class Crew:
    """Deals the tasks and the concurrency of a run among workers, and gathers their events.

    plan, turns: the tasks, and the turns where a file's rows are dealt.
    budget: how many calls all workers together may have in flight.
    assignment: what a worker is told when it joins, given its name.
    spools: where the spools of workers on this machine lie.
    send: takes a message to a worker, by its node.
    present: the nodes that Locust has not missed.
    on_useless: called when no worker that is there takes tasks any more, or ever did.
    """

    def __init__(
        self,
        *,
        run_id: str,
        plan: Plan,
        turns: Plan | None,
        log: EventLog,
        budget: int,
        assignment: Callable[[str], Assignment],
        spools: Path,
        send: Callable[[str, Message], None],
        present: Callable[[], Collection[str]],
        on_useless: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self._run_id = run_id
        self._dealing = Dealing(plan, turns)
        self._log = log
        self._budget = budget
        self._assignment = assignment
        self._spools = spools
        self._send = send
        self._present = present
        self._on_useless = on_useless
        self._say = say
        self._closing = self._over = False
        self._members: dict[str, Member] = {}
        self._moved = Flag()
        self._tender = gevent.spawn(self._tend)

    # What workers say

    def receive(self, node: str, message: Message) -> None:
        """Take in a message of a worker."""
        if isinstance(message, Join):
            self._on_join(node, message)
            return
        member = self._members.get(node)
        if member is None or member.state is State.LOST:
            return  # of another run, or its tasks are told lost already
        if isinstance(message, Refusal):
            self._refuse(member, message.problem)
        elif isinstance(message, Report):
            self._on_report(member, message)

    def _on_join(self, node: str, join: Join) -> None:
        known = self._members.get(node)
        if known is None:
            known = Member(f"w{len(self._members) + 1}", node, join.host, join.machine, join.pid)
            self._members[node] = known
        if join.version != __version__:
            self._refuse(known, f"it runs version {join.version}, and the master {__version__}")
        elif known.state is not State.LOST:
            self._send(node, self._assignment(known.name))

    def _take_in(self, member: Member, clock_error_ms: float) -> None:
        """A worker is ready for tasks."""
        member.clock_error_ms = clock_error_ms
        member.state = State.DRAINED if self._closing else State.WORKING  # too late, it has nothing to tell
        if not self._closing:
            self._say(f"{member.title} takes part")
            if idle := self._dealing.idle(len(self._working())):
                self._say(
                    f"there are fewer accounts than workers: {idle} of them will have nothing to do, and "
                    "their share of the concurrency lies idle; name a store with more accounts, or use fewer"
                )
            self._share_out()

    def _refuse(self, member: Member, problem: str) -> None:
        if member.state is not State.REFUSED:
            member.state, member.problem = State.REFUSED, problem
            self._say(f"{member.title} takes no tasks: {problem}")
        self._heed_useless()

    def _heed_useless(self) -> None:
        """Without a worker that takes tasks, or may yet, a run would wait for ever."""
        there = [self._members.get(node) for node in self._present()]
        may = (State.PREPARING, State.WORKING)
        if there and not self._closing and all(one is not None and one.state not in may for one in there):
            self._on_useless()

    def _on_report(self, member: Member, report: Report) -> None:
        if member.state is State.PREPARING:
            self._take_in(member, report.clock_error_ms)
        if member.state not in (State.WORKING, State.DRAINED):
            return
        for line in report.events if not self._over else ():
            self._on_event(member, json.loads(line))
        if report.number > member.heard:
            member.heard, before = report.number, (member.share.holds, member.has_users, *member.precedence)
            self._settle(member, report)
            if report.problem is not None and member.problem is None:
                member.problem = report.problem
                self._say(f"{member.title} takes no more tasks: {report.problem}")
            member.hold(report.holds, report.heard)
            if (member.share.holds, member.has_users, *member.precedence) != before:
                self._share_out()
            if report.client is not None and member.state is State.WORKING:
                self._on_drained(member, report.client)
        self._deal()
        self._answer(member)

    def _on_event(self, member: Member, event: Event) -> None:
        """Write an event that is not in the log yet; events come in order, without a gap."""
        if event["seq"] != member.seq + 1:
            return
        member.seq += 1
        number, kind = event.get("task"), event["event"]
        if number is not None:
            if kind == EventKind.CREATE_SUBMITTED:
                member.submitted.add(number)
            elif kind == EventKind.CREATE_OK:
                member.sandboxes[number] = event["sandbox_id"]
            if kind in TASK_ENDS:
                member.ended.add(number)
        self._log.take_over(event)

    def _settle(self, member: Member, report: Report) -> None:
        member.got, member.want, member.want_turns = report.got, report.want, report.want_turns
        member.has_users = member.has_users or report.want > 0
        for number in report.done:
            if (task := member.in_hand.pop(number, None)) is not None:
                self._dealing.resolved(task)

    def _on_drained(self, member: Member, client: Mapping[str, Any]) -> None:
        member.state, member.client = State.DRAINED, client
        self._dealing.put_back(member)
        if not self._closing:
            self._say(f"{member.title} has left; it began {len(member.submitted)} sandboxes")
        self._share_out()
        self._moved.set()
        self._heed_useless()

    # What workers are told

    def _deal(self) -> None:
        """Give tasks to all who want some, as long as there are any."""
        for member in self._working():
            if self._dealing.deal(member):
                self._answer(member)

    def _share_out(self) -> None:
        """Deal the concurrency anew, and tell everybody whose share has changed."""
        working = self._working()
        before = [member.share.granted for member in working]
        users = [member for member in working if member.has_users] or working
        held = 0
        for idle in working:
            if idle not in users:
                idle.share.granted = 0
                held += idle.share.holds
        deal(self._budget - held, [one.share for one in sorted(users, key=lambda one: one.precedence)])
        for member, granted in zip(working, before, strict=True):
            if member.share.granted != granted:
                self._answer(member)
        self._deal()

    def _answer(self, member: Member) -> None:
        tasks = member.dealt[member.got :]
        answer = Answer(
            run_id=self._run_id,
            number=member.tell_share(),
            heard=member.heard,
            acknowledged=member.seq,
            first=member.got,
            tasks=[(task.number, task.variant.index, task.account) for task in tasks],
            share=member.share.granted,
            neighbours=sum(one.machine == member.machine for one in self._working()),
            drain=self._closing,
        )
        self._send(member.node, answer)

    def _working(self) -> list[Member]:
        return [member for member in self._members.values() if member.state is State.WORKING]

    # The end

    def close(self) -> None:
        """Deal no more tasks, and have all workers end what they have begun; returns at once."""
        if not self._closing:
            self._closing = True
            self._dealing.close()
            for member in self._working():
                self._answer(member)

    def drain(self) -> dict[str, Any]:
        """Wait until every worker has told everything, or is lost; returns what they saw of themselves."""
        self.close()
        end = time.monotonic() + _DRAIN_SEC
        while self._working() and time.monotonic() < end:
            self._moved.wait(timeout=_TEND_SEC)
            self._moved.clear()
        for member in self._working():
            self._lose(member, "it has not ended its calls in time")
        self._tender.kill()
        self._over = True
        told = [member for member in self._members.values() if member.client is not None]
        return pool_clients([(member.name, member.machine, member.client or {}) for member in told])

    def describe(self) -> dict[str, Any]:
        """What run.json says of the workers."""
        took_part = [m for m in self._members.values() if m.state in (State.DRAINED, State.LOST)]
        nodes = {member.name: member.describe() for member in self._members.values()}
        return {"workers": len(took_part), "worker_nodes": nodes}

    def health(self) -> list[dict[str, Any]]:
        """How the workers fare at this moment."""
        return [member.health() for member in self._members.values()]

    def _tend(self) -> None:
        """Give up workers that are missing for long."""
        while True:
            gevent.sleep(_TEND_SEC)
            present, now = set(self._present()), time.monotonic()
            for member in list(self._members.values()):
                if member.node in present or member.state not in (State.WORKING, State.PREPARING):
                    member.missing_since = None
                elif member.missing_since is None:
                    member.missing_since = now
                elif now - member.missing_since > MISSING_SEC:
                    self._lose(member, "it went without a word")

    def _lose(self, member: Member, reason: str) -> None:
        """Give a worker up: what it has in hand ends here; what it made is removed by its label."""
        for event in self._left_in_spool(member):
            self._on_event(member, event)
        member.state, member.problem = State.LOST, reason
        open_tasks = [
            task
            for task in member.in_hand.values()
            if task.number not in member.ended and not is_turn(task)  # what a turn said, it said
        ]
        for task in open_tasks:
            self._log.write(
                EventKind.LOST,
                **describe_task(task),
                sandbox_id=member.sandboxes.get(task.number),
                lost_worker=member.name,
                submitted=task.number in member.submitted,
            )
        for task in member.in_hand.values():
            self._dealing.resolved(task)
        member.in_hand.clear()
        self._say(f"{member.title} is lost ({reason}): {len(open_tasks)} tasks in its hands end with it")
        self._share_out()
        self._moved.set()
        self._heed_useless()

    def _left_in_spool(self, member: Member) -> list[Event]:
        """Events of a lost worker that it wrote and never sent, where its file is on this machine."""
        try:
            return list(read_events(self._spools / f"{member.name}.jsonl"))
        except OSError:
            return []
