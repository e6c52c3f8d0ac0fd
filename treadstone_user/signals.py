"""Ctrl-C and SIGTERM: the first one finishes a run in order, the second one warns, the third one ends it."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable

import gevent

from treadstone_user.exitcode import ExitCode
from treadstone_user.session import Session

_log = logging.getLogger("treadstone")


class Signals:
    """Heeds the signals of a process that has runs; Locust itself would leave their sandboxes behind.

    session: gives the present run, or the last one.
    give_up: ends a process in which no run has begun, and tells whether that was needed.
    quit_locust: ends the process the way Locust itself does at the end of a run.
    """

    def __init__(
        self,
        *,
        session: Callable[[], Session | None],
        give_up: Callable[[], bool],
        quit_locust: Callable[[], None],
    ) -> None:
        self._session = session
        self._give_up = give_up
        self._quit_locust = quit_locust
        self._initialized = False
        self._warned: Session | None = None
        gevent.signal_handler(signal.SIGINT, self._on_signal, "Ctrl-C")
        gevent.signal_handler(signal.SIGTERM, self._on_signal, "SIGTERM")

    def initialized(self) -> None:
        """From now on Locust runs; before, a signal ends the process with nothing created."""
        self._initialized = True

    def _on_signal(self, name: str) -> None:
        session = self._session()
        if not self._initialized:
            _throw_into_main(KeyboardInterrupt())
        elif session is None or session.finished.is_set():
            if name == "Ctrl-C":  # SIGTERM is Locust's: it quits by itself
                self._end_idle(session)
        elif not session.closing:
            _log.info("%s: the run ends, its sandboxes are removed", name)
            session.interrupt()
            if name == "Ctrl-C":
                session.finished.wait()
                self._quit_locust()
        elif self._warned is not session:
            self._warned = session
            session.interrupt()
            _log.warning("%s: still finishing; once more ends it now and leaves %s", name, session.outlook())
        else:
            _log.error("ended by force, with %s", session.outlook())
            _throw_into_main(SystemExit(int(ExitCode.LEFT_BEHIND)))

    def _end_idle(self, session: Session | None) -> None:
        gave_up = session is None and self._give_up()
        self._quit_locust()
        if gave_up:  # Locust itself waits on for its workers
            sys.stderr.write("interrupted before anything was created\n")
            _throw_into_main(SystemExit(int(ExitCode.INCOMPLETE)))


def _throw_into_main(error: BaseException) -> None:
    """Raise in the main greenlet, where Locust waits for the end."""
    gevent.get_hub().handle_system_error(type(error), error)
