"""The Locust users: thin, as all the work is the load's."""

from __future__ import annotations

import time
from typing import Protocol
from weakref import WeakKeyDictionary

import gevent
from locust import User, constant, task
from locust.env import Environment

from treadstone_user.steps import Report, Step

REQUEST_TYPE = "sandbox"


def report_to(environment: Environment) -> Report:
    """Have steps become requests of Locust's."""

    def report(step: Step) -> None:
        environment.events.request.fire(
            request_type=REQUEST_TYPE,
            name=step.name,
            response_time=step.response_ms,
            response_length=0,
            exception=step.failure,
            context={},
            start_time=time.time() - step.response_ms / 1000,
        )

    return report


class Employer(Protocol):
    """Whom users work for."""

    def work(self) -> None:
        """Take a task and see it through; idle once there are no more."""
        ...


_employers: WeakKeyDictionary[Environment, Employer | None] = WeakKeyDictionary()


def attach(environment: Environment, employer: Employer | None) -> None:
    """Say whom the environment's new users work for; None has them idle."""
    _employers[environment] = employer


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
        self._employer = _employers.get(environment)

    @task
    def lifecycle(self) -> None:
        """Take a task and see it through."""
        if self._employer is None:
            gevent.sleep(3600)
        else:
            self._employer.work()
