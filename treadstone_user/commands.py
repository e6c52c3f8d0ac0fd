"""The first command in a ready sandbox: a sandbox is of use once it has answered, not once it is ready."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import gevent

from treadstone_user.access import Access
from treadstone_user.eventlog import EventLog
from treadstone_user.fillin import Rows, fill_in
from treadstone_user.model import EventKind, variant_title
from treadstone_user.sections import ExecRules
from treadstone_user.steps import Report, Step, describe_failure
from treadstone_user.transports.base import CallError, Conflict, Reply
from treadstone_user.transports.dataplane import ExecStopped, Executed

_UNREACHABLE = 502
_INTERRUPTED = {"http_status": None, "error_kind": "interrupted", "error": "the run ended before it answered"}


class FirstCommand:
    """Runs one command in each sandbox through its proxy, again while that does not reach it.

    A sandbox can be ready before its proxy reaches it: then the proxy answers 409 or 502.
    closing: tells whether the run takes no more work.
    """

    def __init__(
        self,
        *,
        rules: ExecRules,
        rows: Rows | None,
        log: EventLog,
        report: Report,
        closing: Callable[[], bool],
    ) -> None:
        self._rules = rules
        self._rows = rows
        self._log = log
        self._report = report
        self._closing = closing

    def run(
        self, access: Access, about: Mapping[str, Any], *, proxy: str, created: float, ready_after: float
    ) -> bool:
        """Run the command, and record the time from the create call to its answer.

        created: when the create call was sent. ready_after: when the sandbox was last seen not ready (both
            monotonic s): no answer can have come before.
        Returns whether it has answered, be it by a failure of its own.
        """
        try:
            return self._run(access, about, proxy=proxy, created=created, ready_after=ready_after)
        except gevent.GreenletExit:  # killed: what was begun is told all the same
            self._log.write(EventKind.EXEC_ERR, **about, **_INTERRUPTED)
            raise

    def _run(
        self, access: Access, about: Mapping[str, Any], *, proxy: str, created: float, ready_after: float
    ) -> bool:
        name = f"3_exec {variant_title(about['template'], about['persist'], about['storage_size'])}"
        command = self._rules.command
        if self._rows is not None:
            command = fill_in(command, self._rows.of(about["task"] - 1))
        deadline = time.monotonic() + self._rules.timeout_sec
        after, tries = ready_after, 0
        while True:
            tries += 1
            asked = time.monotonic()
            error: CallError | None = None
            try:
                left = max(0.1, deadline - asked)
                reply = access.plane.exec(proxy, command, timeout_sec=left, stop=self._closing)
            except CallError as failure:
                error = failure
            waited = {"first_answer_after_ms": (after - created) * 1000, "tries": tries}
            if error is None:
                self._answered(name, {**about, **waited}, reply, created)
                return True
            stopped = isinstance(error, ExecStopped)
            if not stopped and (not is_early(error) or time.monotonic() >= deadline):
                self._log.write(EventKind.EXEC_ERR, **about, **waited, **describe_failure(error))
                self._report(Step(name, error.timing.latency_ms, error.cause))
                return False
            if stopped or self._closing():
                self._log.write(EventKind.EXEC_ERR, **about, **waited, **_INTERRUPTED)
                return False
            after = asked
            gevent.sleep(self._rules.retry_sec)

    def _answered(self, name: str, about: Mapping[str, Any], reply: Reply[Executed], created: float) -> None:
        latency_ms, exit_code = reply.timing.latency_ms, reply.value.exit_code
        if exit_code not in (0, None):
            failed = {
                "http_status": None,
                "error_kind": f"exit_code_{exit_code}",
                "error": "the command failed",
            }
            self._log.write(EventKind.EXEC_ERR, **about, **failed, latency_ms=latency_ms)
            self._report(Step(name, latency_ms, f"exit code {exit_code}"))
            return
        answered_ms = (reply.timing.ended - created) * 1000
        self._log.write(
            EventKind.EXEC_OK,
            **about,
            latency_ms=latency_ms,
            first_answer_ms=answered_ms,
            exit_code=exit_code,
        )
        self._report(Step(name, answered_ms))


def is_early(error: CallError) -> bool:
    """Whether the proxy does not reach the sandbox yet."""
    return isinstance(error, Conflict) or error.status == _UNREACHABLE
