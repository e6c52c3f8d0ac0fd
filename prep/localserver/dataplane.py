"""Inside the sandboxes: a service that takes commands, and streams, behind each one's proxy.

Nothing is run on this machine: a few commands are answered as a shell would, the others with their own text.
"""

from __future__ import annotations

import json
import random
import secrets
import shlex
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from typing import Any

import gevent
from flask import Flask, Response, g, jsonify, request
from flask.typing import ResponseReturnValue

from prep.localserver.accounts import Accounts
from prep.localserver.chunks import Writer
from prep.localserver.errors import ApiError, not_found, sandbox_not_ready, sandbox_unreachable
from prep.localserver.faults import CUT
from prep.localserver.profile import Profile
from prep.localserver.routes import add_route
from prep.localserver.sandbox import Sandbox, Status
from prep.localserver.truth import JsonLines, moment
from prep.localserver.validation import read_chat, read_command
from prep.localserver.world import World

_DONE = b"data: [DONE]\n\n"
_WORDS = ("lorem ", "ipsum ", "dolor ", "sit ", "amet ", "consetetur ", "sadipscing ", "elitr ")


class DataPlane:
    """The routes behind ``/v1/sandboxes/ID/proxy``.

    log: gets a line for each stream that ends: when its outputs were written, and how many.
    """

    def __init__(
        self,
        accounts: Accounts,
        world: World,
        profile: Profile,
        log: JsonLines,
        clock: Callable[[], float],
    ) -> None:
        self._accounts = accounts
        self._world = world
        self._profile = profile
        self._log = log
        self._clock = clock
        self._exec = profile.stream("exec")
        self._refusals = profile.stream("exec_status")
        self._breaks = profile.stream("breaks")
        self._chunks = profile.stream("chunks")

    def register(self, app: Flask) -> None:
        """Add the routes to an app."""
        proxy = "/v1/sandboxes/<sandbox_id>/proxy"
        add_route(app, "POST", f"{proxy}/v1/shell/exec", self.shell)
        add_route(app, "POST", f"{proxy}/v1/chat/completions", self.chat)
        add_route(app, "GET", f"{proxy}/v1/events", self.events)
        for method in ("GET", "POST"):
            add_route(app, method, f"{proxy}/<path:rest>", self.nothing)

    def nothing(self, sandbox_id: str, rest: str) -> ResponseReturnValue:
        """Nothing else is served inside a sandbox."""
        self._reach(sandbox_id)
        raise not_found(f"/{rest} is not served in this sandbox.")

    def shell(self, sandbox_id: str) -> ResponseReturnValue:
        """Run a command, so to speak: answered at its end, or streamed."""
        sandbox = self._reach(sandbox_id)
        command = read_command(request.get_data())
        point = self._refusals.random()
        for status, share in self._profile.exec_status:
            point -= share
            if point < 0:
                raise ApiError(status, "upstream_error", "Refused by the profile.")
        if "text/event-stream" in request.headers.get("Accept", ""):
            outputs = (_event({"output": word}) for word in _words(self._profile.stream_rhythm.count))
            return self._stream(sandbox, outputs)
        gevent.sleep(self._profile.exec.sample(self._exec))
        self._answered(sandbox)
        output, exit_code = _run(command)
        data = {
            "session_id": secrets.token_hex(8),
            "command": command,
            "status": "completed",
            "output": output,
            "console": [{"ps1": "$ ", "command": command, "output": output}],
            "exit_code": exit_code,
        }
        return jsonify(success=exit_code == 0, message="Command executed", data=data)

    def chat(self, sandbox_id: str) -> ResponseReturnValue:
        """Complete a chat, as an OpenAI-compatible service does.

        The role comes with the first token. A token is an output.
        """
        sandbox = self._reach(sandbox_id)
        wanted = read_chat(request.get_data())
        count = self._profile.stream_rhythm.count
        usage = {"prompt_tokens": 10, "completion_tokens": count, "total_tokens": 10 + count}
        head = {
            "id": f"chatcmpl-{secrets.token_hex(6)}",
            "created": int(self._clock()),
            "model": wanted.model,
        }
        if not wanted.stream:
            gevent.sleep(self._profile.exec.sample(self._exec))
            self._answered(sandbox)
            message = {"role": "assistant", "content": "".join(_words(count))}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            return jsonify(**head, object="chat.completion", choices=[choice], usage=usage)

        def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            return _event({**head, "object": "chat.completion.chunk", "choices": [choice]})

        role = chunk({"role": "assistant", "content": ""})
        tokens = (
            (role if number == 0 else b"") + chunk({"content": word})
            for number, word in enumerate(_words(count))
        )
        tail = chunk({}, "stop")
        if wanted.include_usage:
            told = {**head, "object": "chat.completion.chunk", "choices": [], "usage": usage}
            tail += _event(told)
        return self._stream(sandbox, tokens, tail + _DONE)

    def events(self, sandbox_id: str) -> ResponseReturnValue:
        """Tell events with a name and an id: a stream of no service in particular."""
        sandbox = self._reach(sandbox_id)
        count = self._profile.stream_rhythm.count
        ticks = (b"event: tick\nid: %d\ndata: tick %d\n\n" % (n, n) for n in range(count))
        return self._stream(sandbox, ticks)

    def _reach(self, sandbox_id: str) -> Sandbox:
        """Find the sandbox that a request is for, as the proxy does.

        Raises:
            ApiError: 401, 403, 404; 409 if it is not ready, 502 if the proxy does not reach it so far.
        """
        g.sandbox_id = sandbox_id
        account = self._accounts.authenticate_data_plane(
            authorization=request.headers.get("Authorization"), sandbox_id=sandbox_id
        )
        sandbox, now = self._world.get(account, sandbox_id)
        status = sandbox.status(now)
        if status is not Status.READY:
            raise sandbox_not_ready(sandbox_id, status)
        if not sandbox.is_reachable(now):
            raise sandbox_unreachable(sandbox_id)
        return sandbox

    def _answered(self, sandbox: Sandbox) -> None:
        if sandbox.first_exec is None:
            sandbox.first_exec = self._clock()

    def _stream(self, sandbox: Sandbox, outputs: Iterable[bytes], tail: bytes = b"") -> Response:
        """Write each output when it is due, counted from the request's arrival: no delay adds up."""
        rhythm, cut = self._profile.stream_rhythm, None
        if self._breaks.random() < self._profile.breaks:
            cut = request.environ.get(CUT)
        writer = Writer(self._profile.chunks, random.Random(self._chunks.random()))
        arrived, path = g.arrived, request.path

        def flow() -> Iterator[bytes]:
            first = last = None
            written = 0
            try:
                yield from writer.prelude()
                for number, output in enumerate(outputs):
                    if cut is not None and number >= rhythm.count // 2:
                        cut()
                        return
                    *parts, end = writer.parts(output)
                    for part in parts:
                        yield part
                    _wait_until(arrived + rhythm.first + number * rhythm.gap, self._clock)
                    yield end
                    last, written = self._clock(), written + 1
                    if first is None:
                        first = last
                        self._answered(sandbox)
                if tail:
                    yield tail
            finally:
                self._log.write(
                    {
                        "ts": moment(arrived),
                        "path": path,
                        "sandbox_id": sandbox.id,
                        "outputs": written,
                        "first_output_ms": _ms(arrived, first),
                        "last_output_ms": _ms(arrived, last),
                        "broken": cut is not None,
                    }
                )

        response = Response(flow(), status=HTTPStatus.OK, content_type="text/event-stream; charset=utf-8")
        response.headers["Cache-Control"] = "no-cache"
        return response


def _wait_until(due: float, clock: Callable[[], float]) -> None:
    left = due - clock()
    if left > 0:
        gevent.get_hub().loop.update_now()  # a timer counts from there, and it may be past
        gevent.sleep(left)


def _ms(since: float, then: float | None) -> float | None:
    return None if then is None else round((then - since) * 1000, 2)


def _event(data: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()


def _words(count: int) -> Iterator[str]:
    return (_WORDS[number % len(_WORDS)] for number in range(count))


def _run(command: str) -> tuple[str, int]:
    """What a shell would print, and its exit code, for `echo`, `true`, `false` and `exit`."""
    try:
        words = shlex.split(command)
    except ValueError:
        return "syntax error", 2
    if words[:1] == ["echo"]:
        return " ".join(words[1:]) + "\n", 0
    if words[:1] == ["false"]:
        return "", 1
    if words[:1] == ["exit"]:
        code = words[1] if len(words) > 1 else "0"
        return "", int(code) % 256 if code.isdecimal() else 2
    return f"{command}\n" if words[:1] not in (["true"], []) else "", 0
