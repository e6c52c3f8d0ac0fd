"""The warm parent: imports a console script's program once, and forks a child for each call.

Run as a file of its own by the interpreter of the console script, which need not have this
package; so it uses the standard library alone and imports nothing from here.

    python -P warm_parent.py SOCKET SCRIPT MODULE FUNCTION WARM_UP_ARGUMENT...

SOCKET: where it listens, a Unix socket in a folder of its own that only its owner may enter;
    both are removed at the end.
SCRIPT: the console script, which calls see as ``sys.argv[0]``.
MODULE, FUNCTION: the entry point that the script calls.
WARM_UP_ARGUMENT...: a call that is made once in the parent itself, with its output thrown
    away, so that what the program imports late is there, too.

A call is a connection: a JSON object with a list of ``arguments`` and variables to be added to the
``environment``, in one message of at most 64 KiB, with the file descriptors for its standard output and
error. The answers are lines: ``pid N`` once the
child is there, and ``exit N`` when it has ended, N as in ``Popen.returncode``. The parent
prints ``warm`` when it listens, and ends when its standard input does.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from typing import Any

_MAX_MESSAGE = 65536


def call(program: Callable[[], Any]) -> int:
    """Run a program as a console script does; returns its exit code."""
    try:
        sys.exit(program())
    except SystemExit as end:
        if end.code is None:
            return 0
        if isinstance(end.code, int):
            return end.code & 0xFF
        sys.stderr.write(f"{end.code}\n")
    except BaseException:
        traceback.print_exc()
    return 1


def warm_up(program: Callable[[], Any], script: str, arguments: list[str]) -> None:
    """Make a call in this process, for what it imports."""
    sys.argv = [script, *arguments]
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):  # noqa: PTH123
        call(program)


def be_child(
    program: Callable[[], Any],
    script: str,
    arguments: list[str],
    environment: dict[str, str],
    fds: list[int],
) -> None:
    """Become the process of a call; never returns."""
    os.environ.update(environment)
    os.setsid()
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in zip((nothing, *fds), (0, 1, 2), strict=True):
        os.dup2(source, target)
    os.closerange(3, 1024 if not hasattr(os, "sysconf") else min(os.sysconf("SC_OPEN_MAX"), 4096))
    sys.argv = [script, *arguments]
    code = call(program)
    with suppress(Exception):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code)  # the parent's own leftovers are none of this process's business


class Parent:
    """Takes calls, forks, and tells the ends."""

    def __init__(self, listener: socket.socket, program: Callable[[], Any], script: str) -> None:
        self._listener = listener
        self._program = program
        self._script = script
        self._calls: dict[int, socket.socket] = {}

    def serve(self) -> None:
        """Serve until the standard input ends."""
        ended, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(ended, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(ended, selectors.EVENT_READ)
            selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
            while True:
                ready = {key.fd for key, _ in selector.select()}
                if ended in ready:
                    with suppress(BlockingIOError):
                        os.read(ended, 4096)
                    self._reap()
                if self._listener.fileno() in ready:
                    self._take()
                if sys.stdin.fileno() in ready:
                    return

    def _take(self) -> None:
        connection, _ = self._listener.accept()
        try:
            message, fds, _, _ = socket.recv_fds(connection, _MAX_MESSAGE, 2)
            said = json.loads(message)
            arguments, environment = said["arguments"], said["environment"]
            if len(fds) != 2 or not isinstance(arguments, list):
                raise ValueError("a call needs its arguments and two file descriptors")
        except (OSError, ValueError, KeyError, TypeError):
            connection.close()
            return
        pid = os.fork()
        if pid == 0:
            be_child(self._program, self._script, arguments, environment, fds)
        for fd in fds:
            os.close(fd)
        self._calls[pid] = connection
        _tell(connection, f"pid {pid}\n")

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                connection = self._calls.pop(pid, None)
                if connection is not None:
                    _tell(connection, f"exit {os.waitstatus_to_exitcode(status)}\n")
                    connection.close()


def _tell(connection: socket.socket, line: str) -> None:
    with suppress(OSError):  # who asked may be gone
        connection.sendall(line.encode())


def main() -> None:
    """Import, warm up, listen, serve."""
    path, script, module, function, *arguments = sys.argv[1:]
    program = getattr(importlib.import_module(module), function)
    warm_up(program, script, arguments)
    gc.collect()
    gc.freeze()  # keeps the pages of what is there shared with the children
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen(128)
        sys.stdout.write("warm\n")
        sys.stdout.flush()
        Parent(listener, program, script).serve()
    with suppress(OSError):  # whoever started this may have been killed, and cannot tidy up
        os.unlink(path)  # noqa: PTH108
        os.rmdir(os.path.dirname(path))  # noqa: PTH106, PTH120


if __name__ == "__main__":
    main()
