"""A real S3-compatible server for tests: rclone's, which checks signatures."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path
from typing import Self

from tests.runs import PYTHON, free_port

RCLONE = PYTHON.with_name("rclone")
_ACCESS_KEY, _SECRET_KEY = "AKIDOFATEST", "secret-of-a-test"


class S3:
    """A server over a folder, whose sub-folders are its buckets."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = ""

    @property
    def environment(self) -> dict[str, str]:
        """Its keys and its address, as clients take them."""
        keys = {"AWS_ACCESS_KEY_ID": _ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": _SECRET_KEY}
        return {**keys, "S3_ENDPOINT": self.url}

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True)
        port = free_port()
        self._process = subprocess.Popen(
            [
                *(str(RCLONE), "serve", "s3", str(self.folder), "--addr", f"127.0.0.1:{port}"),
                *("--auth-key", f"{_ACCESS_KEY},{_SECRET_KEY}", "--config", "/dev/null"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        end = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert time.monotonic() < end, "rclone does not listen"
                assert self._process.poll() is None, "rclone has ended"
                time.sleep(0.05)
        self.url = f"http://127.0.0.1:{port}"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
