"""Streams that fail, and whose doing it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.runs import json_lines
from tests.scripted import missing
from treadstone_user.eventlog import EventLog
from treadstone_user.model import Task
from treadstone_user.plan import NO_VARIANT
from treadstone_user.sections import StreamRules
from treadstone_user.stock import Stock, Stocked
from treadstone_user.streams import Streams
from treadstone_user.transports.base import CallError, api_error
from treadstone_user.transports.dataplane import StreamBroken
from treadstone_user.transports.outputs import Measure
from treadstone_user.trouble import Trouble

BROKEN = StreamBroken("the stream was cut off", Measure("/v1/shell/exec", 0.0).end(1.0, "broken"))
UNREACHABLE = api_error(502, "The sandbox does not answer.")
REFUSED = api_error(401, "Invalid or expired API key.")


def _followed(folder: Path, error: CallError, on_call: Callable[[Stock], None], **more: Any) -> list[Any]:
    """The events of one stream that fails; on_call: what happens meanwhile."""
    stock = Stock([Stocked("a", None, "p", **more)])
    log = EventLog(folder / "events.jsonl", worker="local")

    def stream(*_: Any, **__: Any) -> Any:
        on_call(stock)
        raise error

    accesses: Any = {None: SimpleNamespace(plane=SimpleNamespace(stream=stream))}
    Streams(
        accesses=accesses,
        rules=StreamRules(timeout_sec=0.6),
        rows=None,
        stock=stock,
        log=log,
        report=lambda step: None,
        closing=lambda: False,
        say=lambda line: None,
        trouble=Trouble(lambda reason: None),
        pause=lambda sec: None,
    ).open(Task(-1, NO_VARIANT))
    log.close()
    return json_lines(folder / "events.jsonl")


@pytest.mark.parametrize("error", [BROKEN, UNREACHABLE, missing("a")], ids=["broken", "502", "404"])
@pytest.mark.parametrize("fresh", [False, True])
def test_a_stream_that_our_own_delete_breaks_is_stopped(
    tmp_path: Path, error: CallError, *, fresh: bool
) -> None:
    """A steady load deletes each sandbox once it was ready, whoever reads in it."""
    (event,) = _followed(tmp_path, error, lambda stock: stock.remove("a"), fresh=fresh)
    assert (event["event"], event["ended"]) == ("stream_ok", "stopped")


@pytest.mark.parametrize("error", [BROKEN, UNREACHABLE, missing("a"), REFUSED])
def test_one_that_breaks_by_itself_has_failed(tmp_path: Path, error: CallError) -> None:
    """The sandbox is still there."""
    (event,) = _followed(tmp_path, error, lambda stock: None)
    assert (event["event"], event["error_kind"]) == ("stream_err", error.kind)


def test_a_delete_explains_no_refused_key(tmp_path: Path) -> None:
    """That failed for a reason of its own."""
    (event,) = _followed(tmp_path, REFUSED, lambda stock: stock.remove("a"))
    assert event["event"] == "stream_err"


def test_a_new_sandbox_is_asked_again_until_the_timeout(tmp_path: Path) -> None:
    """Its proxy may lag ready; one that never reaches it is told as such."""
    calls: list[Stock] = []
    (event,) = _followed(tmp_path, UNREACHABLE, calls.append, fresh=True)
    assert (event["event"], event["http_status"], len(calls)) == ("stream_err", 502, 4)
