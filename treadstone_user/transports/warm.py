"""A warm CLI: the same program, the same output, without its start-up.

The CLI spends most of a call on importing itself. `warm_parent` imports it once, in the
interpreter of its console script, and forks a child for each call. Where that is not
possible (a compiled binary, another interpreter that fails), or once the parent is lost,
calls go the cold way, and that is said once.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket as blocking_socket
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import gevent
import psutil
from gevent import socket, subprocess
from gevent.fileobject import FileObject

from treadstone_user.transports.base import BadOutput, TransportError
from treadstone_user.transports.launch import (
    API_KEY,
    ColdLauncher,
    Finished,
    Launcher,
    close_pipes,
    kill_group,
    text,
    too_slow,
)

_PARENT = Path(__file__).with_name("warm_parent.py")
_START_SEC = 20.0
_SHEBANG = re.compile(rb"#!\s*(/\S*python\S*)\s*\n")
_ENTRY_POINT = re.compile(rb"^from ([\w.]+) import (\w+)\s*$", re.MULTILINE)
_SMALL = 4096


class CannotWarm(TransportError):
    """Why calls go the cold way."""

    kind = "cannot_warm"


@dataclass(frozen=True, slots=True)
class ConsoleScript:
    """What a console script, as pip writes it, says: its interpreter and its entry point."""

    interpreter: str
    module: str
    function: str


def read_console_script(binary: Path) -> ConsoleScript:
    """Read a console script. Raises `CannotWarm` where the binary is none."""
    try:
        with binary.open("rb") as file:
            content = file.read(_SMALL)
    except OSError as error:
        raise CannotWarm(f"{binary} cannot be read: {error.strerror}") from error
    interpreter, entry = _SHEBANG.match(content), _ENTRY_POINT.search(content)
    if interpreter is None or entry is None or b"sys.exit(" + entry[2] + b"())" not in content:
        raise CannotWarm(f"{binary} is no Python console script")
    return ConsoleScript(interpreter[1].decode(), entry[1].decode(), entry[2].decode())


class _Lost(Exception):
    """The parent is gone; `sent` says whether the call may have begun."""

    def __init__(self, *, sent: bool) -> None:
        super().__init__()
        self.sent = sent


class WarmLauncher:
    """Calls by children of a warm parent; cold ones once the parent is lost.

    environment: the whole environment of the parent, and so of all calls.
    say: is told once when calls begin to go the cold way.
    Raises `CannotWarm` where no parent can be started.
    """

    def __init__(
        self, binary: Path, environment: Mapping[str, str], *, nowhere: str, say: Callable[[str], None]
    ) -> None:
        script = read_console_script(binary)
        self._cold = ColdLauncher(binary, environment)
        self._say = say
        self._folder = tempfile.mkdtemp(prefix="treadstone-")
        self._socket = f"{self._folder}/warm"
        command = [script.interpreter, "-P", str(_PARENT), self._socket, str(binary)]
        command += [script.module, script.function, "--json", "--base-url", nowhere, "system", "health"]
        self.warm = True
        try:
            self._parent = _start(command, environment)
        except CannotWarm:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def run(self, arguments: Sequence[str], *, timeout_sec: float) -> Finished:
        """Run the CLI to its end; see `Launcher.run`."""
        return self.run_as(None, arguments, timeout_sec=timeout_sec)

    def run_as(self, key: str | None, arguments: Sequence[str], *, timeout_sec: float) -> Finished:
        """The same with this API key; None for that of the environment."""
        if self.warm:
            try:
                return _Call(self._socket, key).run(arguments, timeout_sec)
            except _Lost as lost:
                if self.warm:
                    self.warm = False
                    self._say("the warm CLI is lost: calls start the CLI anew from here on")
                if lost.sent:  # a create may have happened: it is not sent twice
                    raise BadOutput("the warm CLI was lost in the middle of the call") from None
        cold = self._cold if key is None else self._cold.with_key(key)
        return cold.run(arguments, timeout_sec=timeout_sec)

    def with_key(self, key: str) -> Launcher:
        """Run calls with this API key; see `Launcher.with_key`."""
        return _WarmWithKey(self, key)

    def cpu_sec(self) -> float:
        """CPU seconds of the parent with its children, and of cold calls."""
        with suppress(psutil.Error):
            used = psutil.Process(self._parent.pid).cpu_times()
            warm = used.user + used.system + used.children_user + used.children_system
            return float(warm + self._cold.cpu_sec())
        return self._cold.cpu_sec()

    def close(self) -> None:
        """End the parent; calls in flight end by themselves."""
        self.warm = False
        close_pipes(self._parent)  # its standard input, too: that tells it to end
        try:
            self._parent.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._parent.kill()
            self._parent.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


class _WarmWithKey:
    """A warm launcher's calls with an API key of their own."""

    def __init__(self, launcher: WarmLauncher, key: str) -> None:
        self._launcher = launcher
        self._key = key

    @property
    def warm(self) -> bool:
        """See `Launcher.warm`."""
        return self._launcher.warm

    def run(self, arguments: Sequence[str], *, timeout_sec: float) -> Finished:
        """Run the CLI to its end; see `Launcher.run`."""
        return self._launcher.run_as(self._key, arguments, timeout_sec=timeout_sec)

    def with_key(self, key: str) -> Launcher:
        """Run calls with another key; see `Launcher.with_key`."""
        return _WarmWithKey(self._launcher, key)

    def cpu_sec(self) -> float:
        """Those of all calls, whatever their key; see `Launcher.cpu_sec`."""
        return self._launcher.cpu_sec()

    def close(self) -> None:
        """End the parent; see `Launcher.close`."""
        self._launcher.close()


def _start(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        parent = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise CannotWarm(f"{command[0]} cannot be started: {error.strerror}") from error
    line = b""
    with suppress(gevent.Timeout), gevent.Timeout(_START_SEC):
        line = parent.stdout.readline() if parent.stdout is not None else b""
    if line != b"warm\n":
        kill_group(parent.pid)
        said = text(parent.communicate()[1]).strip().splitlines()
        close_pipes(parent)
        raise CannotWarm(f"its interpreter says: {said[-1] if said else 'nothing'}")
    return parent


class _Call:
    """One call of a warm parent; its API key goes by the socket, which only its owner may open."""

    def __init__(self, path: str, key: str | None) -> None:
        self._path = path
        self._environment = {} if key is None else {API_KEY: key}
        self._pid: int | None = None
        self._exit_code: int | None = None

    def run(self, arguments: Sequence[str], timeout_sec: float) -> Finished:
        """See `Launcher.run`. Raises `_Lost`."""
        read_ends, write_ends = zip(os.pipe(), os.pipe(), strict=True)
        pipes = [FileObject(fd, "rb", 0) for fd in read_ends]
        readers: list[gevent.Greenlet[..., bytes]] = []
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                self._send(connection, arguments, write_ends)
                readers = [gevent.spawn(pipe.readall) for pipe in pipes]
                with gevent.Timeout(timeout_sec):
                    self._listen(connection)
                    gevent.joinall(readers)
        except gevent.Timeout:
            self._kill()
            raise too_slow(timeout_sec) from None
        except BaseException:
            self._kill()
            raise
        finally:
            gevent.killall(readers)
            for pipe in pipes:
                pipe.close()
        if self._exit_code is None:
            raise _Lost(sent=True)
        return Finished(self._exit_code, *(text(reader.value or b"") for reader in readers))

    def _send(self, connection: socket.socket, arguments: Sequence[str], fds: Sequence[int]) -> None:
        message = json.dumps({"arguments": list(arguments), "environment": self._environment}).encode()
        try:
            connection.connect(self._path)
            blocking_socket.send_fds(connection, [message], list(fds))
        except OSError:
            raise _Lost(sent=False) from None
        finally:
            for fd in fds:
                os.close(fd)

    def _listen(self, connection: socket.socket) -> None:
        """Take in the parent's lines until it closes the connection."""
        heard = b""
        with suppress(OSError):
            while data := connection.recv(256):
                heard += data
                if self._pid is None and b"\n" in heard:
                    self._pid = int(heard.split(b"\n")[0].removeprefix(b"pid "))
        lines = heard.decode().splitlines()
        if len(lines) == 2:
            self._exit_code = int(lines[1].removeprefix("exit "))

    def _kill(self) -> None:
        if self._pid is not None and self._exit_code is None:
            kill_group(self._pid)


def warm_or_cold(
    binary: Path,
    environment: Mapping[str, str],
    *,
    wanted: bool | None,
    nowhere: str,
    say: Callable[[str], None],
) -> Launcher:
    """A warm launcher where it is wanted and possible, else a cold one.

    wanted: None for "where the binary is a Python console script", without a word if it is none.
    nowhere: a base URL where nothing listens, for the parent's first call.
    """
    if wanted is not False:
        try:
            return WarmLauncher(binary, environment, nowhere=nowhere, say=say)
        except CannotWarm as error:
            if wanted:
                say(f"no warm CLI, each call starts it anew: {error}")
    return ColdLauncher(binary, environment)
