"""The plugin in a Locust worker: takes part in the master's runs, and leaves in good order."""

from __future__ import annotations

import logging
import os
import signal
from typing import Any

import gevent
from locust.env import Environment
from locust.runners import WorkerRunner

from treadstone_user.exitcode import ExitCode
from treadstone_user.forks import on_orphaned
from treadstone_user.options import read_means
from treadstone_user.relay import WorkerRelay
from treadstone_user.user import attach, report_to
from treadstone_user.worker import Worker

_DELIVER_SEC = 10.0

_log = logging.getLogger("treadstone")


class WorkerPlugin:
    """One worker process. Raises `TreadstoneError` for a mistake of the user's."""

    def __init__(self, environment: Environment, runner: WorkerRunner) -> None:
        options = environment.parsed_options
        assert options is not None, "Locust parses its options before init"
        self._runner = runner
        self._left: gevent.Greenlet[..., None] | None = None
        self._relay = WorkerRelay(runner, lambda message: self._worker.receive(message))
        self._worker = Worker(
            read_means(options, environment=os.environ, say=_log.info),
            send=self._relay.send,
            report=report_to(environment),
            on_drained=self._relay.send_stats,
            say=_log.info,
        )
        gevent.signal_handler(signal.SIGINT, self._on_interrupt)
        if options.processes:
            on_orphaned(self._on_interrupt)
        environment.events.test_start.add_listener(self._on_test_start)
        # It fires in reverse: registered here, it comes before the runner's own.
        environment.events.quitting.add_listener(self._on_quitting)

    def _on_test_start(self, environment: Environment, **_: Any) -> None:
        attach(environment, self._worker)
        self._worker.begin()

    def _on_interrupt(self) -> None:
        """Ctrl-C: as SIGTERM, which Locust heeds itself, but for the process's end."""
        if self._left is None:
            self._leave()
            self._runner.quit()

    def _on_quitting(self, environment: Environment, **_: Any) -> None:
        self._leave()
        environment.process_exit_code = int(ExitCode.OK)  # the master judges the run

    def _leave(self) -> None:
        if self._left is None:
            self._left = gevent.spawn(self._leave_once)
        self._left.join()

    def _leave_once(self) -> None:
        undelivered = self._worker.leave(within_sec=_DELIVER_SEC)
        if undelivered is not None:
            _log.error("the master has not got all events; the others are in %s", undelivered)
