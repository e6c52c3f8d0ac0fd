"""The Locust users: thin, as all the work is the load's."""

from __future__ import annotations

import time
from typing import ClassVar, Protocol
from weakref import WeakKeyDictionary

import gevent
from locust import User, constant, task
from locust.env import Environment

from treadstone_user.sections import Job
from treadstone_user.steps import Report, Step


def report_to(environment: Environment) -> Report:
    """Have steps become requests of Locust's."""

    def report(step: Step) -> None:
        environment.events.request.fire(
            request_type=step.request_type,
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

    def do(self, job: Job) -> None:
        """Do one piece of work; idle once there is no more."""
        ...


_employers: WeakKeyDictionary[Environment, Employer | None] = WeakKeyDictionary()


def attach(environment: Environment, employer: Employer | None) -> None:
    """Say whom the environment's new users work for; None has them idle."""
    _employers[environment] = employer


class PluginUser(User):
    """A user whose work is the run's; `job` says which."""

    abstract = True
    wait_time = constant(0)
    job: ClassVar[Job]

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._employer = _employers.get(environment)

    @task
    def work(self) -> None:
        """Do one piece of work."""
        if self._employer is None:
            gevent.sleep(3600)
        else:
            self._employer.do(self.job)


class SandboxUser(PluginUser):
    """A user who leads one sandbox after the other through its lifecycle.

    With a scenario, users pull its tasks from the run's queue and idle once it is empty: the
    number of users is concurrency, never the total. Without one, each user goes on until
    Locust stops it.
    """

    abstract = True
    job = Job.LIFECYCLE


class SandboxQueryUser(PluginUser):
    """A user who asks the control plane one thing after the other, as the scenario's `query` says."""

    abstract = True
    job = Job.QUERY


class SandboxStreamUser(PluginUser):
    """A user who follows streams from inside sandboxes, as the scenario's `stream` says."""

    abstract = True
    job = Job.STREAM
