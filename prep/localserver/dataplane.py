"""The data plane: the way through the proxy to the service in a sandbox, and its streams in their rhythm."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import gevent
from flask import Flask, Response, g, jsonify, request
from flask.typing import ResponseReturnValue

from prep.localserver import service
from prep.localserver.access import Access
from prep.localserver.accounts import Accounts
from prep.localserver.faults import CUT, STREAM
from prep.localserver.profile import Profile
from prep.localserver.sandbox import Sandbox
from prep.localserver.sse import Event, Write, writes
from prep.localserver.streamlog import StreamLog, Told
from prep.localserver.timing import Rhythm
from prep.localserver.world import World

_METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH")
_EVENT_STREAM = "text/event-stream"


class Unfit(Exception):
    """A request that the service in the sandbox does not understand, in its own words."""


class DataPlaneRoutes:
    """What lies behind the proxy of each sandbox."""

    def __init__(
        self,
        accounts: Accounts,
        world: World,
        profile: Profile,
        log: StreamLog,
        clock: Callable[[], float],
    ) -> None:
        self._access = Access(accounts)
        self._world = world
        self._profile = profile
        self._log = log
        self._clock = clock
        self._exec = profile.draws("exec")
        self._breaks = profile.draws("breaks")
        self._chunks = profile.draws("chunks")
        self._services: dict[str, tuple[str, Callable[[Sandbox], ResponseReturnValue]]] = {
            "v1/shell/exec": ("POST", self.exec),
            "v1/chat/completions": ("POST", self.chat),
            "v1/events": ("GET", self.events),
        }

    def register(self, app: Flask) -> None:
        """Add the routes to an app."""
        path = "/v1/sandboxes/<sandbox_id>/proxy/<path:path>"
        app.add_url_rule(path, endpoint="proxy", view_func=self.proxy, methods=_METHODS)

    def proxy(self, sandbox_id: str, path: str) -> ResponseReturnValue:
        """Pass a request on to the service in a sandbox, if the proxy reaches that."""
        g.sandbox_id = sandbox_id
        sandbox = self._world.reach(self._access.data(sandbox_id), sandbox_id)
        if path not in self._services:
            return jsonify(detail="Not Found"), 404
        method, answer = self._services[path]
        if request.method != method:
            return jsonify(detail="Method Not Allowed"), 405
        try:
            return answer(sandbox)
        except Unfit as unfit:
            return jsonify(detail=str(unfit)), 422

    def exec(self, sandbox: Sandbox) -> ResponseReturnValue:
        """Answer a command: in one piece when it has ended, or its outputs as they come."""
        asked = _body()
        command = _text(asked, "command")
        output, code = service.outcome(command, str(asked.get("exec_dir") or service.HOME))

        def succeeded(now: float) -> None:
            if code == 0 and sandbox.first_exec is None:
                sandbox.first_exec = now

        rhythm = self._profile.stream
        if _EVENT_STREAM in request.headers.get("Accept", ""):
            events = service.exec_events(output, rhythm)
            return self._stream("exec", sandbox, events, rhythm.count, succeeded)
        gevent.sleep(self._profile.exec.sample(self._exec))
        succeeded(self._clock())
        session_id = asked.get("id")
        told = session_id if isinstance(session_id, str) else None
        return jsonify(service.exec_answer(command, output, code, told))

    def chat(self, sandbox: Sandbox) -> ResponseReturnValue:
        """Answer a chat, token by token, or in one piece when the last token would have come."""
        asked = _body()
        _text(asked, "model")
        if not isinstance(asked.get("messages"), list):
            raise Unfit("messages: Input should be a valid list")
        rhythm = self._profile.stream
        count = service.tokens(rhythm, asked)
        if asked.get("stream") is True:
            events = service.chat_events(asked, rhythm, g.arrived)
            return self._stream("chat", sandbox, events, count)
        _wait_until(g.arrived + rhythm.last(count), self._clock)
        return jsonify(service.chat_answer(asked, rhythm, g.arrived))

    def events(self, sandbox: Sandbox) -> ResponseReturnValue:
        """Stream events that have a name and an id."""
        rhythm: Rhythm = self._profile.stream
        return self._stream("events", sandbox, service.plain_events(rhythm), rhythm.count)

    def _stream(
        self,
        kind: str,
        sandbox: Sandbox,
        events: Iterator[Event],
        planned: int,
        on_first: Callable[[float], None] = lambda _now: None,
    ) -> Response:
        told = Told(kind=kind, sandbox_id=sandbox.id, arrived=g.arrived, planned=planned)
        enough = (planned + 1) // 2 if self._breaks.random() < self._profile.breaks else None
        # Drawn for each stream, so that the pieces of one depend on no other that runs beside it.
        rng = random.Random(self._chunks.random())
        request.environ[STREAM] = True
        pieces = writes(events, self._profile.chunks, rng)
        paced = self._paced(pieces, told, enough, request.environ, on_first)
        return Response(
            paced,
            content_type=f"{_EVENT_STREAM}; charset=utf-8",
            headers={"Cache-Control": "no-cache"},
            direct_passthrough=True,
        )

    def _paced(
        self,
        pieces: Iterator[Write],
        told: Told,
        enough: int | None,
        environ: dict[str, Any],
        on_first: Callable[[float], None],
    ) -> Iterator[bytes]:
        clock, arrived = self._clock, told.arrived
        self._log.begin(told)
        try:
            for at, data, outputs in pieces:
                _wait_until(arrived + at, clock)
                yield data
                if outputs:  # and by now they are written
                    now = clock()
                    if told.written(outputs, now):
                        on_first(now)
                    if told.outputs == enough:
                        environ[CUT] = told.is_broken = True
                        return
        finally:
            self._log.end(told)


def _wait_until(due: float, clock: Callable[[], float]) -> None:
    while (left := due - clock()) > 0:
        gevent.sleep(left)


def _body() -> dict[str, Any]:
    try:
        value = json.loads(request.get_data())
    except (ValueError, RecursionError):
        raise Unfit("JSON decode error") from None
    if not isinstance(value, dict):
        raise Unfit("Input should be a valid dictionary")
    return value


def _text(asked: dict[str, Any], name: str) -> str:
    value = asked.get(name)
    if not isinstance(value, str):
        raise Unfit(f"{name}: Input should be a valid string")
    return value
