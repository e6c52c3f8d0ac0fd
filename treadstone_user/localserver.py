"""A local server for one run: started as a process of its own, stopped with the run."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import gevent
from gevent import subprocess

from treadstone_user.transports.base import ConfigError
from treadstone_user.transports.launch import close_pipes

KEY_VARIABLE = "LOCALSERVER_API_KEY"
"""Where a local server gets its key from; its workers read it there, too."""

_START_SEC = 20.0
_STOP_SEC = 10.0
_LISTENING = "listening on "


def new_key() -> str:
    """An API key that no local server has had before."""
    return f"sk-{secrets.token_hex(24)}"


class LocalServer:
    """The process of ``python -m prep.localserver``.

    It is told of its parent's end by its standard input, so that it ends even if the parent
    is killed; it has a session of its own, so that Ctrl-C spares it until the clean-up is done.
    """

    def __init__(self, process: subprocess.Popen[bytes], base_url: str, api_key: str) -> None:
        self._process = process
        self.base_url = base_url
        self.api_key = api_key
        self._forwarder: gevent.Greenlet[..., None] | None = None

    @classmethod
    def start(
        cls, *, profile: str | None, truth: Path, environment: Mapping[str, str], say: Callable[[str], None]
    ) -> LocalServer:
        """Start a server on a free port, with its truth log at `truth`.

        environment: may hold the API key that it is to know; else it gets a fresh one.

        Raises `ConfigError` where it does not start, with its own words.
        """
        api_key = environment.get(KEY_VARIABLE) or new_key()
        command = [sys.executable, "-m", "prep.localserver", "--port", "0", "--exit-with-parent"]
        command += ["--truth", str(truth.resolve())]
        if profile is not None:
            command += ["--profile", profile]
        root = str(Path(__file__).resolve().parent.parent)
        path = os.pathsep.join(filter(None, [root, environment.get("PYTHONPATH")]))
        process = subprocess.Popen(
            command,
            env={**environment, KEY_VARIABLE: api_key, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        text = _first_line(process)
        if not text.startswith(_LISTENING):
            process.kill()
            said = process.communicate()[1].decode(errors="replace").strip()
            raise ConfigError(f"the local server did not start: {said or text or 'it said nothing'}")
        server = cls(process, text.removeprefix(_LISTENING), api_key)
        server._forwarder = gevent.spawn(_forward, process, say)
        return server

    def stop(self) -> None:
        """Have the server write the rest of its truth log and end; wait until it has. Can be repeated."""
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        try:
            self._process.wait(timeout=_STOP_SEC)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._forwarder is not None:
            self._forwarder.join(timeout=1)
            self._forwarder.kill()
        close_pipes(self._process)


def _first_line(process: subprocess.Popen[bytes]) -> str:
    line = b""
    with suppress(gevent.Timeout), gevent.Timeout(_START_SEC):
        line = process.stdout.readline() if process.stdout is not None else b""
    return line.decode(errors="replace").strip()


def _forward(process: subprocess.Popen[bytes], say: Callable[[str], None]) -> None:
    """Pass on what the server says on stderr: nothing, while all is well."""
    for line in process.stderr or ():
        say(f"local server: {line.decode(errors='replace').rstrip()}")
