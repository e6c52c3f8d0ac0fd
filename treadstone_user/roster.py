"""Which user classes a run has, and what they do."""

from __future__ import annotations

from argparse import Namespace
from typing import cast

from locust import User
from locust.env import Environment
from locust.runners import MasterRunner

from treadstone_user.scenario import Scenario
from treadstone_user.sections import Job
from treadstone_user.transports.base import ConfigError
from treadstone_user.user import PluginUser


class Roster:
    """The user classes of one process's runs.

    Classes that the command line or the web UI's class picker names are taken as they are, and so are those
    of a locustfile's own that are none of the plugin's.
    """

    def __init__(self, environment: Environment, options: Namespace) -> None:
        self._environment = environment
        # Frozen: a request to /swarm can overwrite any option.
        self._named = bool(options.user_classes) or bool(options.class_picker)

    def choose(self, scenario: Scenario) -> frozenset[Job]:
        """Have users be of the classes that a scenario has work for, in its proportions.

        Returns what they do. Raises `ConfigError` where there is nothing to do.
        """
        jobs, environment = scenario.jobs, self._environment
        # Locust says that these are users; they are classes.
        there = cast(list[type[User]], list((environment.available_user_classes or {}).values()))
        before = [(one, one.weight) for one in environment.user_classes]
        if not self._named and there:
            environment.user_classes[:] = [one for one in there if _has_work(one, jobs)]
        for one in environment.user_classes:
            if issubclass(one, PluginUser):
                one.weight = jobs.get(one.job) or 1  # one that is named has users, whatever its weight
        if not environment.user_classes:
            raise ConfigError(f"no user class of the locustfile does what {scenario.name} is for")
        found = frozenset(one.job for one in environment.user_classes if issubclass(one, PluginUser))
        if Job.LIFECYCLE in found and not scenario.matrix:
            raise ConfigError(
                f"{scenario.name} has no matrix, so there are no sandboxes to make: "
                "name other user classes, such as QueryUser, or add one"
            )
        if [(one, one.weight) for one in environment.user_classes] != before:
            _tell_dispatcher(environment)
        return found


def _has_work(user_class: type[User], jobs: dict[Job, int]) -> bool:
    return not issubclass(user_class, PluginUser) or user_class.job in jobs


def _tell_dispatcher(environment: Environment) -> None:
    """Locust's master makes its dispatcher before it says that a test starts, and keeps it for the next."""
    runner = environment.runner
    dispatcher = getattr(runner, "_users_dispatcher", None)
    if isinstance(runner, MasterRunner) and dispatcher is not None:
        runner._users_dispatcher = environment.dispatcher_class(
            worker_nodes=dispatcher._worker_nodes, user_classes=environment.user_classes
        )


def users_for(scenario: Scenario, jobs: frozenset[Job]) -> int | None:
    """How many users it takes to have one for each planned sandbox; None where none is planned."""
    if Job.LIFECYCLE not in jobs or not scenario.matrix:
        return None
    weights = {job: scenario.weights.get(job) or 1 for job in jobs}
    return -(-scenario.total * sum(weights.values()) // weights[Job.LIFECYCLE])
