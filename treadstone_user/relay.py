"""Messages between master and workers, by Locust's own connection."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Any

from locust.exception import RPCError
from locust.rpc.protocol import Message as LocustMessage
from locust.runners import STATE_MISSING, MasterRunner, WorkerRunner

from treadstone_user.messages import Message, from_values, to_values

_TYPE = "treadstone"

_log = logging.getLogger("treadstone")


class MasterRelay:
    """The master's end.

    on_message: is given each message with the node that it comes from, in the order in which
        they were sent; must not wait, or Locust hears no worker meanwhile.
    """

    def __init__(self, runner: MasterRunner, on_message: Callable[[str, Message], None]) -> None:
        self._runner = runner
        self._on_message = on_message
        runner.register_message(_TYPE, self._receive)

    def send(self, node: str, message: Message) -> None:
        """Send a message to a worker; it may get lost."""
        _send(lambda values: self._runner.send_message(_TYPE, values, client_id=node), message)

    def present(self) -> Collection[str]:
        """The nodes of all workers that are connected and not missing."""
        return [node.id for node in self._runner.clients.all if node.state != STATE_MISSING]

    def _receive(self, msg: LocustMessage, **_: Any) -> None:
        _read(msg, lambda message: self._on_message(msg.node_id, message))


class WorkerRelay:
    """A worker's end; see `MasterRelay`."""

    def __init__(self, runner: WorkerRunner, on_message: Callable[[Message], None]) -> None:
        self._runner = runner
        self._on_message = on_message
        runner.register_message(_TYPE, self._receive)

    def send(self, message: Message) -> None:
        """Send a message to the master; it may get lost."""
        _send(lambda values: self._runner.send_message(_TYPE, values), message)

    def send_stats(self) -> None:
        """Have the master's table hold all requests so far; Locust itself sends them every few seconds."""
        try:
            self._runner._send_stats()
        except RPCError as error:
            _log.warning("the last figures for Locust's table could not be sent: %s", error)

    def _receive(self, msg: LocustMessage, **_: Any) -> None:
        _read(msg, self._on_message)


def _send(send: Callable[[dict[str, Any]], None], message: Message) -> None:
    try:
        send(to_values(message))
    except RPCError as error:  # it is said again
        _log.debug("%s not sent: %s", type(message).__name__, error)


def _read(msg: LocustMessage, deliver: Callable[[Message], None]) -> None:
    try:
        message = from_values(msg.data)
    except ValueError as error:
        _log.error(
            "a message from %s is passed over, is another version running there? %s", msg.node_id, error
        )
        return
    deliver(message)
