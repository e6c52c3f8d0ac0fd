"""A local server for tests: a process of its own, started for a test and ended with it, whatever happens."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from prep.localserver.__main__ import KEY_VARIABLE

API_KEY = "sk-local-0123456789abcdef0123456789abcdef"
"""The key that the servers of tests know, unless a test says otherwise."""

_ROOT = Path(__file__).resolve().parent.parent
_END_SECONDS = 5.0
_LISTENING = "listening on "


class LocalServer:
    """A running local server, as a context manager.

    Args:
        profile: how it behaves (see `prep.localserver.profile`).
        truth: file for the truth log, complete once the server has stopped.
        requests: file for the request log.
        api_key: key of the seeded account; None for a server without accounts.
        port: port to listen on, 0 for any.

    Attributes:
        base_url: such as `http://127.0.0.1:34567`, once it runs.
        process: the server's process, once it runs.

    Raises:
        RuntimeError: on entering, with what the server said, if it does not start.
    """

    base_url: str
    process: subprocess.Popen[str]

    def __init__(
        self,
        *,
        profile: str = "",
        truth: Path | None = None,
        requests: Path | None = None,
        api_key: str | None = API_KEY,
        port: int = 0,
    ) -> None:
        self.api_key = api_key
        self._arguments = ["--port", str(port), "--profile", profile, "--exit-with-parent"]
        for option, path in (("--truth", truth), ("--requests", requests)):
            if path is not None:
                self._arguments += [option, str(path)]

    def __enter__(self) -> Self:
        # Not a pipe: nobody reads it while the server runs, and a full pipe would block it.
        self._stderr = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "prep.localserver", *self._arguments],
            cwd=_ROOT,
            env=self._environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.startswith(_LISTENING):
            problem = f"the local server did not start (exit code {self.stop()}): {line}{self.stderr()}"
            self._close()
            raise RuntimeError(problem)
        self.base_url = line.removeprefix(_LISTENING).strip()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        self._close()

    def stop(self) -> int:
        """End the server, if it still runs, and give its exit code; the truth log is complete after it."""
        self.process.terminate()
        try:
            return self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def stderr(self) -> str:
        """Read what the server has said on its standard error."""
        self._stderr.seek(0)
        return self._stderr.read()

    def _close(self) -> None:
        for stream in (self.process.stdin, self.process.stdout, self._stderr):
            assert stream is not None
            stream.close()

    def _environment(self) -> dict[str, str]:
        environment = {name: value for name, value in os.environ.items() if name != KEY_VARIABLE}
        if self.api_key is not None:
            environment[KEY_VARIABLE] = self.api_key
        return environment
