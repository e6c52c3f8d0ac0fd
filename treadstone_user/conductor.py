"""The runs of a process that is no worker: how they start and end between Locust's events."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import gevent
from gevent.event import Event as Flag
from locust.env import Environment
from locust.runners import STATE_SPAWNING, LocalRunner, MasterRunner

from treadstone_user.access import read_accounts
from treadstone_user.balance import Balance
from treadstone_user.begin import Prepared, open_session, prepare
from treadstone_user.crew import Crew
from treadstone_user.exitcode import ExitCode, worst
from treadstone_user.fillin import Rows
from treadstone_user.load import Load
from treadstone_user.messages import Message
from treadstone_user.options import choose_scenario, read_scenario, read_settings
from treadstone_user.orders import Ending
from treadstone_user.relay import MasterRelay
from treadstone_user.report import render_scenario, render_steady
from treadstone_user.roster import Roster, users_for
from treadstone_user.sections import Job
from treadstone_user.session import Session
from treadstone_user.settings import Settings
from treadstone_user.signals import Signals
from treadstone_user.target import open_target
from treadstone_user.transports.base import TreadstoneError
from treadstone_user.user import attach, report_to
from treadstone_user.view import Shown
from treadstone_user.webui import install

_log = logging.getLogger("treadstone")


def _print(text: str) -> None:
    """Print to standard output, whatever it can show."""
    encoding = sys.stdout.encoding or "ascii"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding) + "\n")
    sys.stdout.flush()


class Conductor:
    """One Locust process: its settings, its present run, and its signals."""

    def __init__(self, environment: Environment, web_ui: Any) -> None:
        self._environment = environment
        self._web_ui = web_ui
        self._settings: Settings | None = None
        self._roster = Roster(environment, self._options)
        self._prepared: Prepared | None = None
        self._session: Session | None = None
        self._relay: MasterRelay | None = None
        self._crew: Crew | None = None
        self._watcher: gevent.Greenlet[..., None] | None = None
        self._ramped_up = Flag()
        self._quitting = False
        self._headless, self._code_on_error = False, int(ExitCode.REQUESTS_FAILED)
        self._shown = Shown()
        self._codes: list[ExitCode] = []

    @property
    def _options(self) -> Namespace:
        options: Namespace | None = self._environment.parsed_options
        assert options is not None, "Locust parses its options before init"
        return options

    def start(self) -> None:
        """Decide and check all that can be before the first run; then listen.

        Raises `TreadstoneError` for a mistake of the user's, before any user starts.
        """
        options = self._options
        signals = Signals(
            session=lambda: self._session, give_up=self._discard_prepared, quit_locust=self._quit
        )
        if options.dry_run:
            scenario, file = read_scenario(options)
            users, jobs = options.num_users, self._roster.choose(scenario)
            if scenario.accounts is not None:
                read_accounts(scenario.accounts)
            for part in (scenario.exec, scenario.stream):
                if part is not None and part.data is not None:
                    Rows.load(part.data)
            _print(render_scenario(scenario, jobs) if file else render_steady(scenario, users=users))
            raise SystemExit(ExitCode.OK)
        self._settings = settings = read_settings(options, environment=os.environ, say=_log.info)
        jobs = self._roster.choose(settings.scenario)
        self._fill_in_users(settings, jobs, options)
        if isinstance(self._environment.runner, MasterRunner):
            self._relay = MasterRelay(self._environment.runner, self._on_message)
        if options.headless or options.autostart:
            self._prepared = prepare(settings)
            atexit.register(self._discard_prepared)
        elif settings.base_url is not None:  # a server that is there already is checked at once
            open_target(settings, truth=Path(os.devnull), environment=os.environ, say=_log.info).close()
        if settings.base_url is not None:
            self._environment.host = settings.base_url.url  # the web UI shows it
        if self._web_ui is not None:
            install(self._web_ui, self._shown, base_path=options.web_base_path or "")
        # Frozen: a request to /swarm can overwrite any option.
        self._headless, self._code_on_error = options.headless, options.exit_code_on_error
        signals.initialized()
        self._listen()

    def _fill_in_users(self, settings: Settings, jobs: frozenset[Job], options: Namespace) -> None:
        """A scenario without ``-u`` has a user for each sandbox, and all may start at once."""
        enough = users_for(settings.scenario, jobs)
        if settings.steady or enough is None:
            return
        if options.num_users is None:
            options.num_users = enough
        elif options.headless and options.num_users > enough and jobs == {Job.LIFECYCLE}:
            # The others would have nothing to do, and the run would wait for their ramp-up.
            _log.info("%d users for %d sandboxes are enough", enough, enough)
            options.num_users = enough
        if options.spawn_rate is None:
            options.spawn_rate = min(options.num_users, 100)  # above it, Locust warns

    def _listen(self) -> None:
        events = self._environment.events
        events.test_start.add_listener(self._on_test_start)
        events.spawning_complete.add_listener(self._on_spawning_complete)
        events.test_stopping.add_listener(self._on_test_stopping)
        events.test_stop.add_listener(self._on_test_stop)
        # It fires in reverse: registered here, it comes before the runner's own.
        events.quitting.add_listener(self._on_quitting)

    # Start

    def _on_test_start(self, environment: Environment, **_: Any) -> None:
        settings = self._settings
        assert settings is not None, "listeners are registered once there are settings"
        if isinstance(environment.runner, LocalRunner):
            # In a second run it would still say "stopped", and Stop would do nothing.
            environment.runner.update_state(STATE_SPAWNING)
        self._await_previous(environment)
        self._shown.preparing()
        self._ramped_up.clear()
        self._session = self._crew = None
        load: Load | None = None
        prepared, self._prepared = self._prepared, None
        try:
            if self._web_ui is not None:
                settings = choose_scenario(settings, self._options.scenario, options=self._options)
            jobs = self._roster.choose(settings.scenario)
            opened = open_session(
                settings,
                prepared or prepare(settings),
                options=self._options,
                jobs=jobs,
                report=report_to(environment),
                relay=self._relay,
            )
        except (TreadstoneError, OSError) as error:
            _log.error("the run does not start: %s", error)
            self._shown.not_started(str(error))
            self._codes.append(ExitCode.MISTAKE)
            environment.process_exit_code = int(worst(self._codes))
        else:
            self._session, self._crew, load = opened.session, opened.crew, opened.load
            self._shown.started(opened.session)
        attach(environment, load)
        self._watcher = gevent.spawn(self._watch, self._session)

    def _on_message(self, node: str, message: Message) -> None:
        if self._crew is not None:
            self._crew.receive(node, message)

    def _await_previous(self, environment: Environment) -> None:
        """A web UI lets a run start in the middle of the last one's clean-up: wait for that."""
        previous = self._session
        if previous is not None and not previous.finished.is_set():
            _log.info("waiting for the clean-up of run %s", previous.folder.run_id)
            previous.finish(Ending.STOPPED)
            previous.finished.wait()
            environment.stats.clear_all()

    def _on_spawning_complete(self, **_: Any) -> None:
        self._ramped_up.set()

    def _watch(self, session: Session | None) -> None:
        """End the test once every task is resolved and the ramp-up is over, or if there is no run."""
        if session is not None:
            runner = self._environment.runner
            balance = None
            if isinstance(runner, MasterRunner):
                balance = Balance(runner, wanted=lambda: not session.closing)
            try:
                session.over.wait()
            finally:
                if balance is not None:
                    balance.stop()
        self._ramped_up.wait()
        # From a greenlet of its own: the runner kills those that it knows.
        gevent.spawn(self._end_test)

    def _end_test(self) -> None:
        runner = self._environment.runner
        if runner is None:
            return
        if self._headless:
            runner.quit()
        else:
            runner.stop()

    # End

    def _on_test_stopping(self, **_: Any) -> None:
        session = self._session
        if session is not None:
            session.finish(_natural_ending(session))
            session.drained.wait()

    def _on_test_stop(self, **_: Any) -> None:
        session = self._session
        if session is not None:
            session.finish(_natural_ending(session))
            session.finished.wait()
            self._set_exit_code(session)
        if self._watcher is not None:
            self._watcher.kill()

    def _on_quitting(self, **_: Any) -> None:
        self._discard_prepared()
        session = self._session
        if self._quitting:
            Flag().wait()  # a second SIGTERM quits once more: the first one ends the process
        self._quitting = True
        if session is not None:
            session.finish(Ending.INTERRUPTED)  # on SIGTERM, Locust quits before it stops the test
            session.finished.wait()
            self._set_exit_code(session)

    def _discard_prepared(self) -> bool:
        """Take a run back that was prepared and never began; whether there was one."""
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            prepared.discard()
        return prepared is not None

    def _quit(self) -> None:
        """End the process the way Locust itself does at the end of a run."""
        if self._environment.runner is not None:
            self._environment.runner.quit()
        if self._web_ui is not None:
            self._web_ui.stop()

    def _set_exit_code(self, session: Session) -> None:
        """The worst of all runs of this process; Locust's own option says what failures give."""
        self._codes.append(session.exit_code)
        code = int(worst(self._codes))
        runner = self._environment.runner
        failed = runner is not None and bool(runner.errors or runner.exceptions)
        if code == ExitCode.REQUESTS_FAILED or (code == ExitCode.OK and failed):
            code = self._code_on_error
        self._environment.process_exit_code = code


def _natural_ending(session: Session) -> Ending:
    return Ending.COMPLETED if session.completed else Ending.STOPPED
