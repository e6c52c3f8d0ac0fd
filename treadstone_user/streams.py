"""Streams: server-sent events from inside sandboxes, and how they flow."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gevent

from treadstone_user.access import Accesses
from treadstone_user.commands import is_early
from treadstone_user.eventlog import EventLog
from treadstone_user.fillin import Rows, fill_in
from treadstone_user.model import EventKind, Task
from treadstone_user.sections import StreamRules
from treadstone_user.steps import Report, Step, describe_failure
from treadstone_user.stock import Stock, Stocked
from treadstone_user.transports.base import CallError, NotFound, Reply
from treadstone_user.transports.dataplane import StreamBroken, StreamSilent
from treadstone_user.transports.outputs import Streamed
from treadstone_user.trouble import Trouble

REQUEST_TYPE = "stream"

_LOOK_SEC = 0.1
_RETRY_SEC = 0.25


class Streams:
    """Opens one stream after the other, each in another sandbox, and records how each one flowed.

    closing: tells whether the run takes no more work.
    trouble: says how much longer to pause after a failure.
    pause: sleeps so many seconds, or to the run's end.
    """

    def __init__(
        self,
        *,
        accesses: Accesses,
        rules: StreamRules,
        rows: Rows | None,
        stock: Stock,
        log: EventLog,
        report: Report,
        closing: Callable[[], bool],
        say: Callable[[str], None],
        trouble: Trouble,
        pause: Callable[[float], None],
    ) -> None:
        self._accesses = accesses
        self._rules = rules
        self._rows = rows
        self._stock = stock
        self._log = log
        self._report = report
        self._closing = closing
        self._say = say
        self._trouble = trouble
        self._pause = pause
        self._waited = False
        self._reached: set[str] = set()

    def open(self, turn: Task) -> bool:
        """Follow one stream to its end, and pause; False where the run ended before it began."""
        sandbox = self._await_sandbox()
        if sandbox is None:
            return False
        self._pause(max(self._rules.pause_sec, self._follow(turn, sandbox)))
        return True

    def _await_sandbox(self) -> Stocked | None:
        while not self._closing():
            sandbox = self._stock.pick()
            if sandbox is not None:
                return sandbox
            if not self._waited:
                self._waited = True
                self._say("streams wait for the first sandbox that is ready")
            gevent.sleep(_LOOK_SEC)
        return None

    def _follow(self, turn: Task, sandbox: Stocked) -> float:
        rules, body = self._rules, self._rules.body
        about: dict[str, Any] = {"sandbox_id": sandbox.id, "path": rules.path}
        if sandbox.account is not None:
            about["account"] = sandbox.account
        if self._rows is not None:
            about["turn"] = -turn.number
            body = fill_in(body, self._rows.of(-turn.number - 1))
        sent = time.monotonic()
        try:
            reply = self._reach(sandbox, body)
        except CallError as error:
            streamed = getattr(error, "streamed", None)
            told = _figures(streamed) if isinstance(streamed, Streamed) else {}
            if self._is_ours(error, sandbox):
                self._log.write(EventKind.STREAM_OK, **about, **{**told, "ended": "stopped"})
                return 0.0
            self._log.write(EventKind.STREAM_ERR, **about, **told, **describe_failure(error))
            self._report(Step(f"stream {rules.path}", error.timing.latency_ms, error.cause, REQUEST_TYPE))
            if isinstance(error, StreamSilent):  # it took its time, and may have been heard all the same
                return 0.0
            if isinstance(error, StreamBroken):  # it was answered
                self._trouble.answered()
                return 0.0
            return self._trouble.failed(error, sent=sent)
        self._trouble.answered()
        streamed = reply.value
        self._log.write(EventKind.STREAM_OK, **about, **_figures(streamed))
        if streamed.first_output_ms is not None:
            self._report(
                Step(f"first output {rules.path}", streamed.first_output_ms, request_type=REQUEST_TYPE)
            )
        self._report(Step(f"stream {rules.path}", streamed.total_ms, request_type=REQUEST_TYPE))
        return 0.0

    def _reach(self, sandbox: Stocked, body: Any) -> Reply[Streamed]:
        """Follow a stream; in a sandbox that is fresh, again while the proxy does not reach it."""
        rules = self._rules
        deadline = time.monotonic() + rules.timeout_sec
        while True:
            try:
                reply = self._accesses[sandbox.account].plane.stream(
                    sandbox.proxy,
                    path=rules.path,
                    method=rules.method,
                    body=body,
                    timeout_sec=rules.timeout_sec,
                    stop=self._closing,
                )
            except CallError as error:
                is_new = sandbox.fresh and sandbox.id not in self._reached and sandbox in self._stock
                if not (is_new and is_early(error)) or self._closing() or time.monotonic() >= deadline:
                    raise
                gevent.sleep(_RETRY_SEC)
            else:
                if sandbox.fresh and reply.value.outputs:
                    self._reached.add(sandbox.id)
                return reply

    def _is_ours(self, error: CallError, sandbox: Stocked) -> bool:
        """Whether we brought the failure about: we deleted the sandbox, or waited no longer for its proxy."""
        if sandbox not in self._stock:
            return isinstance(error, StreamBroken | NotFound) or is_early(error)
        return sandbox.fresh and sandbox.id not in self._reached and is_early(error) and self._closing()


def _figures(streamed: Streamed) -> dict[str, Any]:
    """How a stream flowed, as its event tells it."""
    gaps = streamed.outputs - 1
    flowing_ms = streamed.gaps_sum_ms
    return {
        "ended": streamed.ended,
        "total_ms": streamed.total_ms,
        "first_output_ms": streamed.first_output_ms,
        "outputs": streamed.outputs,
        "characters": streamed.characters,
        "tokens": streamed.tokens,
        "tokens_counted": streamed.tokens_counted,
        "flowing_ms": flowing_ms,
        "mean_gap_ms": flowing_ms / gaps if flowing_ms is not None else None,
        "longest_gap_ms": streamed.gaps_max_ms,
    }
