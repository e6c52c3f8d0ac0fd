"""Reads streams as a Locust process does: monkey-patched by gevent, many at once, in a process of its own.

Its argument is a JSON object: `proxies`, the addresses to read from; `apart_sec`, how long after each other
they begin; `key`; `stream`, further arguments of `DataPlane.stream`; `stop_sec`, after how long streams are
told to stop. On its standard output it tells an object for each proxy; `sent` is when the request was, in
Unix seconds.
"""

from __future__ import annotations

from gevent import monkey

if __name__ == "__main__":
    monkey.patch_all()

import json
import sys
import time
from typing import Any

import gevent

from treadstone_user.transports.base import CallError
from treadstone_user.transports.dataplane import DataPlane
from treadstone_user.transports.outputs import Streamed


def _told(streamed: Streamed) -> dict[str, Any]:
    names = [name for name in Streamed.__slots__ if name != "gaps_ms"]
    return {name: getattr(streamed, name) for name in names} | {"gaps_ms": list(streamed.gaps_ms)}


def _read(plane: DataPlane, proxy: str, wanted: dict[str, Any]) -> dict[str, Any]:
    end = time.monotonic() + wanted.get("stop_sec", 1e9)
    try:
        reply = plane.stream(proxy, stop=lambda: time.monotonic() > end, **wanted["stream"])
        sent = reply.timing.started + time.time() - time.monotonic()
        return _told(reply.value) | {"sent": sent}
    except CallError as error:
        streamed = getattr(error, "streamed", None)
        return {"error": str(error), "kind": error.kind} | (_told(streamed) if streamed else {})


def main() -> None:
    """Read the streams and print what they gave."""
    wanted = json.loads(sys.argv[1])
    plane = DataPlane(key=wanted["key"])

    def read(place: int, proxy: str) -> dict[str, Any]:
        gevent.sleep(place * wanted.get("apart_sec", 0.0))
        return _read(plane, proxy, wanted)

    readers = [gevent.spawn(read, place, proxy) for place, proxy in enumerate(wanted["proxies"])]
    gevent.joinall(readers)
    print(json.dumps([reader.get() for reader in readers]))  # noqa: T201


if __name__ == "__main__":
    main()
