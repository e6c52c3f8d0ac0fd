"""The bare limit of the benchmark: a run's requests in a tight gevent pool, and nothing else.

``python -m prep.bench_bare BASE_URL COUNT AT_ONCE`` creates, polls, gets and deletes COUNT
sandboxes with the client that the HTTP transport uses, and prints a line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time

import gevent
from gevent.event import Event
from gevent.pool import Pool
from geventhttpclient import HTTPClient

from treadstone_user.figures import percentile

_POLL_SEC = 0.25
_BODY = {"template": "aio-sandbox-tiny", "labels": {"loadtest": "bare"}, "auto_delete_interval": -1}


class Bare:
    """Leads sandboxes through their lives without recording anything but create latencies."""

    def __init__(self, base_url: str, at_once: int) -> None:
        headers = {"Authorization": f"Bearer {os.environ['TREADSTONE_API_KEY']}"}
        self._client = HTTPClient.from_url(
            base_url, concurrency=at_once + 1, network_timeout=60, headers=headers, block_size=65536
        )
        self._at_once = at_once
        self.creates_ms: list[float] = []
        self._waiting: dict[str, Event] = {}

    def run(self, count: int) -> None:
        """Lead `count` sandboxes from create to gone."""
        poller = gevent.spawn(self._poll)
        ids = Pool(self._at_once).map(self._create, range(count))
        for sandbox_id in ids:
            if sandbox_id in self._waiting:
                self._waiting[sandbox_id].wait()
        poller.kill()
        Pool(self._at_once).map(lambda it: self._call("GET", f"/v1/sandboxes/{it}"), ids)
        Pool(self._at_once).map(lambda it: self._call("DELETE", f"/v1/sandboxes/{it}"), ids)
        while json.loads(self._call("GET", "/v1/sandboxes?limit=1000"))["total"]:
            gevent.sleep(0.05)

    def _create(self, _number: int) -> str:
        started = time.monotonic()
        body = json.dumps(_BODY)
        sandbox_id: str = json.loads(self._call("POST", "/v1/sandboxes", body))["id"]
        self.creates_ms.append((time.monotonic() - started) * 1000)
        self._waiting[sandbox_id] = Event()
        return sandbox_id

    def _poll(self) -> None:
        while True:
            gevent.sleep(_POLL_SEC)
            # The list begins with those that got ready last: one page shows all that is new.
            for sandbox in json.loads(self._call("GET", "/v1/sandboxes?limit=1000"))["items"]:
                if sandbox["status"] == "ready" and sandbox["id"] in self._waiting:
                    self._waiting.pop(sandbox["id"]).set()

    def _call(self, method: str, path: str, body: str = "") -> bytes:
        headers = {"Content-Type": "application/json"} if body else {}
        content: bytes = self._client.request(method, path, body, headers).read()
        return content


def main() -> None:
    """Run, and print the create latency's median."""
    base_url, count, at_once = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    bare = Bare(base_url, at_once)
    bare.run(count)
    figures = {"create_p50_ms": round(percentile(sorted(bare.creates_ms), 50), 1)}
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
