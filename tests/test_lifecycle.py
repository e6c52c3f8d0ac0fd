"""A sandbox's life: each step is in the log before it is done, and in Locust once it is over."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.runs import json_lines
from tests.scripted import TINY, Scripted, accesses, missing, page, sandbox, taking_turns
from treadstone_user.eventlog import EventLog
from treadstone_user.lifecycle import Lifecycle, Rules
from treadstone_user.model import TASK_ENDS, Sandbox, Task, Variant
from treadstone_user.pollers import Pollers
from treadstone_user.steps import Step
from treadstone_user.stock import Stock
from treadstone_user.transports.base import (
    BadOutput,
    CallError,
    ConnectError,
    CreateSpec,
    RequestTimeout,
    api_error,
)

ID = "sb0123456789abcdef"
LABEL = "loadtest:run-20260101-000000"
TASK = Task(7, Variant(2, TINY, 3))
LARGE = Task(8, Variant(3, "aio-sandbox-large", 3, persist=True, storage_size="5Gi"))
INTERVAL = 0.01


class _Led:
    """Leads one sandbox, and keeps what was written and reported."""

    def __init__(self, folder: Path, transport: Scripted) -> None:
        self.path = folder / "events.jsonl"
        self.log = EventLog(self.path, worker="local")
        self.transport = transport
        self.accesses = accesses(transport)
        self.poller = Pollers(self.accesses, interval_sec=INTERVAL, on_failure=lambda *_: None)
        self.steps: list[Step] = []
        self.closing = False

    def lead(
        self, task: Task = TASK, *, timeout: float = 10, delete: bool = False, ask: bool = False
    ) -> None:
        """Lead it through its life."""
        Lifecycle(
            accesses=self.accesses,
            pollers=self.poller,
            command=None,
            stock=Stock(),
            log=self.log,
            rules=Rules(LABEL, timeout, 60, -1, delete_after_ready=delete, ask_server_times=ask),
            report=self.steps.append,
            closing=lambda: self.closing,
        ).lead(task)

    @property
    def events(self) -> list[dict[str, Any]]:
        """What stands in the file."""
        return json_lines(self.path)

    @property
    def kinds(self) -> list[str]:
        """The kinds of the events in order."""
        return [event["event"] for event in self.events]

    @property
    def told(self) -> list[tuple[str, str | None]]:
        """Name and failure of each step."""
        return [(step.name, step.failure) for step in self.steps]


Lead = Callable[[Scripted], _Led]


@pytest.fixture(name="led")
def _led(tmp_path: Path) -> Iterator[Lead]:
    made: list[_Led] = []

    def make(transport: Scripted) -> _Led:
        made.append(_Led(tmp_path, transport))
        return made[-1]

    yield make
    for one in made:
        one.poller.stop()


def _transport(*statuses: str, **more: Any) -> Scripted:
    """A server that accepts a create, shows these statuses in turn, and accepts a delete."""
    pages = [page(sandbox(ID, status)) for status in statuses]
    answers = {"on_create": taking_turns(sandbox(ID)), "on_delete": taking_turns(None)}
    return Scripted(**{**answers, "on_list": taking_turns(*pages or [page()]), **more})


def test_a_create_is_on_disk_before_it_is_sent(led: Lead) -> None:
    """Whatever happens during the call, the file tells already that a sandbox may come of it."""
    there: list[str] = []

    def create(_: CreateSpec) -> Sandbox:
        there.extend(one.kinds)
        return sandbox(ID)

    one = led(_transport("ready", on_create=create))
    one.lead()
    assert there == ["create_submitted"]


def test_a_create_that_cannot_be_written_down_is_not_sent(led: Lead) -> None:
    """If the log cannot be written, no sandbox is created that nobody would know of."""
    one = led(_transport("ready"))
    one.log.close()
    with pytest.raises(ValueError, match="closed file"):
        one.lead()
    assert one.transport.calls == []


def test_a_create_that_a_full_disk_kept_out_of_the_log_is_not_sent(led: Lead) -> None:
    """So it is where the log breaks at this very event: nothing is sent, and nothing is reported."""
    one = led(_transport("ready"))
    one.log.broken = True
    one.lead()
    assert (one.transport.calls, one.steps) == ([], [])


def test_a_create_that_was_called_off_leaves_no_trace(led: Lead) -> None:
    """A create that gets its place when the run ends is neither written, sent nor reported."""
    one = led(_transport("ready"))
    one.closing = True
    one.lead()
    assert (one.events, one.transport.calls, one.steps) == ([], [], [])


def test_a_create_says_all_that_the_scenario_does(led: Lead) -> None:
    """The call carries the variant, the run's label and both intervals."""
    one = led(_transport("ready"))
    one.lead(LARGE)
    assert one.transport.of("create") == [CreateSpec(LARGE.variant, LABEL, 60, -1)]


def test_a_life_that_goes_well(led: Lead) -> None:
    """Submitted, created, ready: three events that name the task, and two steps."""
    one = led(_transport("creating", "ready", queued=0.25))
    one.lead()
    assert one.kinds == ["create_submitted", "create_ok", "ready"]
    assert one.told == [(f"1_create {TINY}", None), (f"2_ready {TINY}", None)]
    about = {"task": 7, "profile_idx": 2, "template": TINY, "persist": False, "storage_size": None}
    assert [{name: event[name] for name in about} for event in one.events] == [about] * 3
    submitted, created, ready = one.events
    assert "sandbox_id" not in submitted
    assert created["sandbox_id"] == ready["sandbox_id"] == ID
    assert submitted["queue_ms"] == created["queue_ms"] == 250
    assert ready["polls"] == 2


def test_ready_counts_from_the_start_of_the_create_call(led: Lead) -> None:
    """The create's own time is part of the time to ready, the wait for a place is not; bounds enclose it."""

    def create(_: CreateSpec) -> Sandbox:
        time.sleep(0.2)
        return sandbox(ID)

    one = led(_transport("creating", "ready", on_create=create, queued=5.0))
    one.lead()
    _, created, ready = one.events
    create_call, first, second = one.transport.timings
    assert created["latency_ms"] == pytest.approx(create_call.latency_ms, abs=0.06)
    assert ready["ready_latency_ms"] == pytest.approx((second.ended - create_call.started) * 1000, abs=0.06)
    assert ready["ready_after_ms"] == pytest.approx((first.started - create_call.started) * 1000, abs=0.06)
    assert 200 <= ready["ready_after_ms"] <= ready["ready_latency_ms"] < 5000
    assert [step.response_ms for step in one.steps] == pytest.approx(
        [created["latency_ms"], ready["ready_latency_ms"]], abs=0.06
    )


def test_ready_at_the_first_look_has_no_lower_bound(led: Lead) -> None:
    """Never seen unready, it may have been ready any time after the create was sent."""
    one = led(_transport("ready"))
    one.lead()
    assert one.events[-1]["ready_after_ms"] == 0


REFUSED: list[tuple[CallError, int | None, str, str]] = [
    # error, http_status, error_kind, Locust's text
    (api_error(429, f"Limit reached by {ID}."), 429, "quota_exceeded", "429 quota_exceeded"),
    (api_error(402, "x"), 402, "quota_exceeded", "402 quota_exceeded"),
    (api_error(403, "x"), 403, "forbidden", "403 forbidden"),
    (api_error(401, "x"), 401, "auth_error", "401 auth_error"),
    (api_error(404, "x"), 404, "not_found", "404 not_found"),
    (api_error(409, "A sandbox named 'twin' already exists."), 409, "conflict", "409 conflict"),
    (api_error(422, "x"), 422, "invalid", "422 invalid"),
    (api_error(500, "x"), 500, "server_error", "500 server_error"),
    (ConnectError(f"exit code 1, said {ID}"), None, "connect_error", "connect_error"),
    (RequestTimeout("x"), None, "request_timeout", "request_timeout"),
    (BadOutput("x"), None, "bad_output", "bad_output"),
]


@pytest.mark.parametrize(("error", "status", "kind", "text"), REFUSED, ids=[row[3] for row in REFUSED])
def test_a_refused_create_ends_its_task(
    error: CallError, status: int | None, kind: str, text: str, led: Lead
) -> None:
    """A create that failed is never repeated; its event has the API's words, Locust's text only its kind."""
    one = led(_transport(on_create=taking_turns(error), queued=0.25))
    one.lead()
    assert len(one.transport.calls) == 1
    assert one.kinds == ["create_submitted", "create_err"]
    event = one.events[-1]
    assert (event["http_status"], event["error_kind"], event["error"]) == (status, kind, str(error))
    assert (event["task"], event["queue_ms"]) == (7, 250)
    assert one.told == [(f"1_create {TINY}", text)]


@pytest.mark.parametrize("status", ["error", "stopped", "deleted", "hibernating"])
def test_a_sandbox_that_failed_ends_its_task(status: str, led: Lead) -> None:
    """A sandbox that can no longer get ready is told with its status."""
    one = led(_transport("creating", status))
    one.lead()
    assert one.kinds == ["create_submitted", "create_ok", "failed_status"]
    assert one.events[-1]["last_status"] == status
    assert one.events[-1]["waited_ms"] == pytest.approx(one.steps[-1].response_ms, abs=0.06)
    assert one.told[1:] == [(f"2_ready {TINY}", f"status {status}")]


def test_a_sandbox_that_is_late_ends_its_task(led: Lead) -> None:
    """The timeout counts from the start of the create call, and is told with the last status."""
    one = led(_transport("creating"))
    one.lead(timeout=0.25)
    assert one.kinds == ["create_submitted", "create_ok", "poll_timeout"]
    event = one.events[-1]
    assert (event["last_status"], event["sandbox_id"]) == ("creating", ID)
    assert 250 <= event["waited_ms"] < 2000
    assert event["polls"] > 0
    assert one.told[1:] == [(f"2_ready {TINY}", "not ready after 0.25 s")]


def test_an_interrupted_wait_is_no_failure(led: Lead) -> None:
    """The server did nothing wrong: there is an event, and no request of Locust's."""
    one = led(_transport("creating"))
    one.poller.interrupt()
    one.lead(delete=True)
    assert one.kinds == ["create_submitted", "create_ok", "interrupted"]
    assert one.told == [(f"1_create {TINY}", None)]
    assert not one.transport.of("delete"), "that is the clean-up's"


@pytest.mark.parametrize("status", ["ready", "error", "creating"])
def test_a_steady_load_deletes_as_it_goes(status: str, led: Lead) -> None:
    """However its wait ended, each sandbox is deleted before the next one is created."""
    one = led(_transport(status))
    one.lead(timeout=0.1, delete=True)
    assert one.kinds[-1] == "delete_ok"
    assert one.transport.of("delete") == [ID]
    assert one.told[-1] == (f"4_delete {TINY}", None)
    assert one.events[-1]["task"] == 7


def test_a_scenario_deletes_nothing_before_its_end(led: Lead) -> None:
    """By default all sandboxes of a scenario are there at the same time."""
    one = led(_transport("ready"))
    one.lead(delete=False)
    assert one.transport.of("delete") == []
    assert one.transport.of("get") == [], "and asks for no times unless told to"


TOLD = {"created_at": "2026-01-01T00:00:01.250000+00:00", "started_at": "2026-01-01T00:00:09.500000+00:00"}


def test_the_servers_own_times_are_asked_for_once_it_is_ready(led: Lead) -> None:
    """One get for each sandbox, after ready and before its delete; it is no step of Locust's."""
    one = led(_transport("creating", "ready", on_get=taking_turns(sandbox(ID, "ready", **TOLD))))
    one.lead(ask=True, delete=True)
    assert one.kinds == ["create_submitted", "create_ok", "ready", "server_times", "delete_ok"]
    assert [what for what, _ in one.transport.calls] == ["create", "list", "list", "get", "delete"]
    event = one.events[3]
    assert {name: event[name] for name in TOLD} == TOLD
    assert (event["server_ready_ms"], event["sandbox_id"], event["task"]) == (8250.0, ID, 7)
    assert [name for name, _ in one.told] == [f"1_create {TINY}", f"2_ready {TINY}", f"4_delete {TINY}"]


def test_no_answer_on_the_servers_times_costs_nothing_else(led: Lead) -> None:
    """A get that fails is written down without a figure: no failure of the sandbox, and none of Locust's."""
    one = led(_transport("ready", on_get=taking_turns(api_error(500, "x"))))
    one.lead(ask=True, delete=True)
    assert one.kinds == ["create_submitted", "create_ok", "ready", "server_times", "delete_ok"]
    event = one.events[3]
    assert (event["server_ready_ms"], event["http_status"], event["error_kind"]) == (
        None,
        500,
        "server_error",
    )
    assert [failure for _, failure in one.told] == [None] * 3


@pytest.mark.parametrize("status", ["error", "creating"])
def test_who_never_got_ready_is_not_asked_for_its_times(status: str, led: Lead) -> None:
    """There is no time to ask for."""
    one = led(_transport(status))
    one.lead(timeout=0.1, ask=True)
    assert "server_times" not in one.kinds
    assert one.transport.of("get") == []


DELETES: list[tuple[CallError, str, str | None]] = [
    # what the delete answers, event, Locust's text
    (missing(ID), "delete_ok", None),
    (api_error(409, "Cannot go from deleting to deleting"), "delete_ok", None),
    (api_error(500, f"{ID} failed"), "delete_err", "500 server_error"),
    (ConnectError(f"{ID}"), "delete_err", "connect_error"),
]


@pytest.mark.parametrize(("error", "kind", "text"), DELETES)
def test_deletes_that_fail(error: CallError, kind: str, text: str | None, led: Lead) -> None:
    """Gone or going is what was asked for; anything else is an event and a failure."""
    one = led(_transport("ready", on_delete=taking_turns(error)))
    one.lead(delete=True)
    assert one.kinds[-1] == kind
    assert one.events[-1]["http_status"] == error.status
    assert one.told[-1] == (f"4_delete {TINY}", text)


LIVES: list[Scripted] = [
    _transport("ready"),
    _transport("error"),
    _transport("creating"),
    _transport(on_get=taking_turns(missing(ID))),
    *(_transport("ready", on_create=taking_turns(error)) for error, *_ in REFUSED),
    *(_transport("ready", on_delete=taking_turns(error)) for error, *_ in DELETES),
]


@pytest.mark.parametrize("transport", LIVES)
def test_every_life_ends_once_and_keeps_ids_out_of_tables(transport: Scripted, led: Lead) -> None:
    """A task ends in exactly one event; names and failures hold no id, or Locust's tables would grow."""
    one = led(transport)
    one.lead(timeout=0.1, delete=True)
    assert len([kind for kind in one.kinds if kind in set(TASK_ENDS)]) == 1
    assert one.kinds[0] == "create_submitted"
    texts = [text for step in one.steps for text in (step.name, step.failure or "")]
    assert not [text for text in texts if re.search(r"sb[0-9a-f]|task|\d{5}", text)]


def test_a_persistent_sandbox_has_a_name_of_its_own(led: Lead) -> None:
    """Storage makes a different kind of sandbox: Locust's names say so in each step."""
    one = led(_transport("ready"))
    one.lead(LARGE, delete=True)
    title = "aio-sandbox-large +5Gi"
    assert [step.name for step in one.steps] == [f"1_create {title}", f"2_ready {title}", f"4_delete {title}"]
    assert {(event["persist"], event["storage_size"]) for event in one.events} == {(True, "5Gi")}
