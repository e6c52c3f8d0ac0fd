"""A server that writes the very bytes that a test gives it: for answers that no real server would cut so."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal

Step = bytes | float | Literal["close", "reset"]
"""Bytes to write, seconds to wait, and how to end a connection, which is otherwise kept."""

EVENT_STREAM = "text/event-stream"


def chunk(*pieces: bytes) -> bytes:
    """Pieces of a body, each as a chunk of RFC 9112, section 7.1; an empty one ends the body."""
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)


def head(*fields: str, status: int = 200, kind: str = EVENT_STREAM) -> bytes:
    """The head of an answer, of a chunked body unless a field says otherwise."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Type: {kind}", *(fields or ["Transfer-Encoding: chunked"])]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def whole(body: bytes | str, status: int = 200, *fields: str, kind: str = "application/json") -> bytes:
    """A whole answer."""
    raw = body.encode() if isinstance(body, str) else body
    return head(f"Content-Length: {len(raw)}", *fields, status=status, kind=kind) + raw


@dataclass
class Raw:
    """What a server was asked: heads and bodies of requests, and how many connections were made."""

    url: str
    heads: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    connections: int = 0


@contextmanager
def raw_server(*answers: Sequence[Step]) -> Iterator[Raw]:
    """A server that answers one request after the other with these steps."""
    left = list(answers)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        raw = Raw(f"http://127.0.0.1:{listening.getsockname()[1]}/v1/sandboxes/sb1/proxy")
        threading.Thread(target=_accept, args=(listening, raw, left), daemon=True).start()
        yield raw
        listening.shutdown(socket.SHUT_RDWR)


def _accept(listening: socket.socket, raw: Raw, left: list[Sequence[Step]]) -> None:
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        raw.connections += 1
        threading.Thread(target=_serve, args=(connection, raw, left), daemon=True).start()


def _serve(connection: socket.socket, raw: Raw, left: list[Sequence[Step]]) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A reader that has seen enough closes its connection.
    with suppress(OSError), connection, connection.makefile("rb") as reading:
        while lines := list(iter(lambda: reading.readline().strip().decode(), "")):
            raw.heads.append("\n".join(lines))
            sizes = [line.split(":")[1] for line in lines if line.lower().startswith("content-length:")]
            raw.bodies.append(reading.read(int(sizes[0])) if sizes else b"")
            for step in left.pop(0):
                if step == "reset":
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                if step in ("close", "reset"):
                    return
                if isinstance(step, float):
                    time.sleep(step)
                elif isinstance(step, bytes):
                    connection.sendall(step)
