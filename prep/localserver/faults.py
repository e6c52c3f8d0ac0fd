"""Bad days of a server: refusals, lost and garbled answers, an expired key, and a server that is away."""

from __future__ import annotations

import json
import math
import socket
import struct
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import gevent
from flask import Flask, Response, g, request
from gevent.pywsgi import WSGIHandler, WSGIServer

from prep.localserver.errors import ApiError, auth_invalid
from prep.localserver.profile import Profile

FAULT = "localserver.fault"
"""Where the environment of a request tells its fault."""
STREAM = "localserver.stream"
"""Where it tells that the answer is a stream: its head is sent at once."""
CUT = "localserver.cut"
"""Where it tells that the stream has come to a sudden end."""

_BIG = 10 * 1024 * 1024
_TRICKLE_SEC = 1.0
_HTML = b"<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"
_CODES = {404: "sandbox_not_found", 409: "conflict", 429: "too_many_requests", 500: "internal_error"}


def operation(method: str, path: str) -> str | None:
    """Which of the sandboxes' calls a request is: create, list, get, delete or exec; None for any other."""
    parts = path.strip("/").split("/")
    if parts[:2] != ["v1", "sandboxes"]:
        return None
    if method == "POST" and parts[3:] == ["proxy", "v1", "shell", "exec"]:
        return "exec"
    return {("POST", 2): "create", ("GET", 2): "list", ("GET", 3): "get", ("DELETE", 3): "delete"}.get(
        (method, len(parts))
    )


class Faults:
    """Draws which requests go wrong, and how; each kind of fault from a stream of its own."""

    def __init__(self, profile: Profile) -> None:
        self._began = time.monotonic()
        self._expire = profile.expire
        self._refusals = {
            "list": profile.list,
            "get": profile.get,
            "delete": profile.delete,
            "exec": profile.exec_status,
        }
        self._lost = {"create": profile.lost, "delete": profile.lost_delete}
        self._garble = profile.garble
        self._draws = {name: profile.draws(name) for name in ("list", "get", "delete")}
        self._draws["exec"] = profile.draws("exec_status")
        self._lost_draws = {name: profile.draws(f"lost {name}") for name in self._lost}
        self._garble_draw = profile.draws("garble")

    def install(self, app: Flask) -> None:
        """Have the app refuse what is to be refused."""

        @app.before_request
        def refuse() -> None:
            call = operation(request.method, request.path)
            age = time.monotonic() - self._began
            if self._expire is not None and age >= self._expire and request.path.startswith("/v1/"):
                g.fault = "expired"
                raise auth_invalid()
            status = self._pick(self._draws.get(call or ""), self._refusals.get(call or "", ()))
            if status is not None:
                g.fault = f"refused {status}"
                raise ApiError(status, _CODES.get(status, "error"), "Refused by the profile.")

        @app.after_request
        def wait(response: Response) -> Response:
            if response.status_code == 429 and g.get("fault"):
                response.headers["Retry-After"] = "1"
            return response

    def wire(self, method: str, path: str) -> str | None:
        """What happens to the bytes of an answer; None where they arrive as they are."""
        call = operation(method, path)
        if call is None:
            return None
        if call in self._lost and self._lost_draws[call].random() < self._lost[call]:
            return "lost"
        if call in ("delete", "exec"):
            return None
        kind = self._pick(self._garble_draw, self._garble)
        return str(kind) if kind is not None else None

    @staticmethod
    def _pick(draw: Any, shares: Iterable[tuple[Any, float]]) -> Any:
        if draw is None or not shares:
            return None
        point = draw.random()
        for what, share in shares:
            point -= share
            if point < 0:
                return what
        return None


class FaultyHandler(WSGIHandler):
    """Sends answers as they are, or as the faults have it."""

    faults: Faults
    connections: set[socket.socket]
    """Set in a subclass for each server; see `handler_for`."""

    def handle(self) -> None:
        """Serve a connection, at once: pywsgi sends head and body apart, and that would wait for an ACK."""
        connection = self.socket
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connections.add(connection)
        try:
            super().handle()
        finally:
            self.connections.discard(connection)

    def run_application(self) -> None:
        """Answer a request."""
        environ: dict[str, Any] = self.environ or {}
        kind = self.faults.wire(environ["REQUEST_METHOD"], environ["PATH_INFO"])
        if kind is None:
            super().run_application()
            return
        environ[FAULT] = kind
        status, headers, body = self._answer(environ)
        self.close_connection = True
        self.status, self.headers_sent, self.response_length = status, True, 0
        if kind in ("reset", "lost"):
            if kind == "reset":
                self._send(_head(status, headers, len(body)) + body[: len(body) // 2])
                linger = struct.pack("ii", 1, 0)
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.socket.close()
            return
        self._send_garbled(kind, status, headers, body)
        with suppress(OSError):  # the client may have been quicker
            self.socket.shutdown(socket.SHUT_RDWR)

    def process_result(self) -> None:
        """Send an answer; a stream's head before there is anything else, its end only if it came to one."""
        environ: dict[str, Any] = self.environ or {}
        if STREAM not in environ:
            super().process_result()
            return
        self.write(b"")
        for piece in self.result or ():
            self.write(piece)
        if CUT in environ:
            self.close_connection = True
        elif self.response_use_chunked:
            self._sendall(b"0\r\n\r\n")  # type: ignore[attr-defined]  # which its stub leaves out

    def _send_garbled(self, kind: str, status: str, headers: list[tuple[str, str]], body: bytes) -> None:
        html = [("Content-Type", "text/html")]
        if kind == "cut":
            self._send(_head(status, headers, len(body)) + body[: len(body) // 2])
        elif kind == "json":
            half = body[: len(body) // 2]
            self._send(_head(status, headers, len(half)) + half)
        elif kind == "html":
            self._send(_head("502 Bad Gateway", html, len(_HTML)) + _HTML)
        elif kind == "page":
            self._send(_head("200 OK", html, len(_HTML)) + _HTML)
        elif kind == "big":
            padded = json.dumps({**json.loads(body), "padding": "x" * _BIG}).encode()
            self._send(_head(status, headers, len(padded)) + padded)
        elif kind == "slow":
            self._send(_head(status, headers, len(body)))
            step = max(1, len(body) // 5)
            for at in range(0, len(body), step):
                self._send(body[at : at + step])
                gevent.sleep(_TRICKLE_SEC)

    def _answer(self, environ: dict[str, Any]) -> tuple[str, list[tuple[str, str]], bytes]:
        told: list[Any] = []

        def start_response(status: str, headers: list[tuple[str, str]], _: Any = None) -> None:
            told[:] = [status, headers]

        application: Any = self.application
        parts = application(environ, start_response)
        try:
            body = b"".join(parts)
        finally:
            if hasattr(parts, "close"):
                parts.close()
        return told[0], told[1], body

    def _send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except OSError:
            self.close_connection = True  # the client has gone


def handler_for(faults: Faults, connections: set[socket.socket]) -> type[FaultyHandler]:
    """The handler of a server with these faults; `connections` holds those that are open."""
    return type("Handler", (FaultyHandler,), {"faults": faults, "connections": connections})


def _head(status: str, headers: list[tuple[str, str]], length: int) -> bytes:
    kept = [(name, value) for name, value in headers if name.lower() not in ("content-length", "connection")]
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in kept)]
    lines += [f"Content-Length: {length}", "Connection: close"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


class Door:
    """Where the server listens. It can be shut for a while: the port refuses, open connections are cut.

    make: makes a server at a port, 0 for any, that is not started yet.
    """

    def __init__(self, make: Callable[[int], WSGIServer]) -> None:
        self._make = make
        self._server: WSGIServer | None = None
        self.port = 0

    def open(self, port: int) -> None:
        """Listen. Raises OSError where the port is taken."""
        self._server = self._make(port)
        self._server.start()
        self.port = int(self._server.server_port or port)

    def shut(self, connections: Iterable[socket.socket]) -> None:
        """Refuse everybody, and cut those that are connected."""
        if self._server is not None:
            self._server.close()
        for connection in list(connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def stop(self, timeout: float) -> None:
        """Stop listening and let requests end, for so many seconds."""
        if self._server is not None:
            self._server.stop(timeout=timeout)


class Outage:
    """Takes a server away once, some time after something has happened the first time.

    window: seconds until it is away, and how long it is away; endless for good. None for never.
    """

    def __init__(
        self, window: tuple[float, float] | None, door: Door, connections: set[socket.socket]
    ) -> None:
        self._window, self._door, self._connections = window, door, connections

    def trigger(self) -> None:
        """Begin to count, the first time."""
        window, self._window = self._window, None
        if window is not None:
            gevent.spawn(self._run, *window)

    def _run(self, after: float, lasts: float) -> None:
        gevent.sleep(after)
        port = self._door.port
        self._door.shut(self._connections)
        if math.isfinite(lasts):
            gevent.sleep(lasts)
            self._door.open(port)
