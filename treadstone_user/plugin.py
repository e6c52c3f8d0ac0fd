"""The plugin's entry: its options, and what it is to be in this process."""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

from locust.argument_parser import LocustArgumentParser
from locust.env import Environment
from locust.event import Events
from locust.runners import MasterRunner, WorkerRunner

from treadstone_user.conductor import Conductor
from treadstone_user.exitcode import ExitCode
from treadstone_user.forks import end_with_this_process
from treadstone_user.localserver import KEY_VARIABLE, new_key
from treadstone_user.options import add_options
from treadstone_user.transports.base import TreadstoneError
from treadstone_user.workerplugin import WorkerPlugin


def register(events: Events) -> None:
    """Install the plugin. Call it once, when the locustfile is imported."""
    # Before --processes forks: its processes know one key of their local server, and end together.
    os.environ.setdefault(KEY_VARIABLE, new_key())
    end_with_this_process()
    events.init_command_line_parser.add_listener(_on_parser)
    events.init.add_listener(_on_init)


def _on_parser(parser: LocustArgumentParser, **_: Any) -> None:
    add_options(parser)


def _on_init(environment: Environment, web_ui: Any = None, **_: Any) -> None:
    try:
        if isinstance(environment.runner, WorkerRunner):
            WorkerPlugin(environment, environment.runner)
        else:
            Conductor(environment, web_ui).start()
    except TreadstoneError as error:
        _dismiss_workers(environment)
        _refuse(str(error))
    except KeyboardInterrupt:
        _dismiss_workers(environment)
        sys.stderr.write("interrupted before anything was created\n")
        raise SystemExit(ExitCode.INCOMPLETE) from None


def _dismiss_workers(environment: Environment) -> None:
    """Have workers that are there already end: without this master they would wait for ever."""
    if isinstance(environment.runner, MasterRunner):
        environment.runner.quit()


def _refuse(message: str) -> NoReturn:
    """End the process over a mistake of the user's."""
    lines = [line for line in message.splitlines() if line.strip()]
    sys.stderr.write("".join(f"error: {line}\n" for line in lines))
    raise SystemExit(ExitCode.MISTAKE)
