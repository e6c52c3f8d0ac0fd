"""The Locust users: thin, as all the work is the session's."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import gevent
from locust import User, constant, task
from locust.env import Environment

from treadstone_user.session import Session

_sessions: WeakKeyDictionary[Environment, Session | None] = WeakKeyDictionary()


def attach(environment: Environment, session: Session | None) -> None:
    """Make a session the one that the environment's new users work for; None has them idle."""
    _sessions[environment] = session


class SandboxUser(User):
    """A user who leads one sandbox after the other through its lifecycle.

    With a scenario, users pull its tasks from the run's queue and idle once it is empty: the
    number of users is concurrency, never the total. Without one, each user goes on until
    Locust stops it.
    """

    abstract = True
    wait_time = constant(0)

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._session = _sessions.get(environment)

    @task
    def lifecycle(self) -> None:
        """Take a task and see it through."""
        planned = self._session.plan.take() if self._session else None
        if self._session is None or planned is None:
            # A user that stopped would be replaced at the next step of the ramp-up.
            gevent.sleep(3600)
        else:
            self._session.lead(planned)
