"""How a CLI call becomes a process: cold, as everybody runs it. `warm` starts the same faster."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from gevent import subprocess

from treadstone_user.transports.base import BinaryNotFound, RequestTimeout

_REAP_SEC = 5.0
API_KEY = "TREADSTONE_API_KEY"
"""Where the CLI reads its key: in argv, every user of the machine could."""


@dataclass(frozen=True, slots=True)
class Finished:
    """What a CLI process left behind; a negative exit code is the signal that ended it."""

    exit_code: int
    stdout: str
    stderr: str


class Launcher(Protocol):
    """Runs the CLI."""

    @property
    def warm(self) -> bool:
        """Whether calls skip the CLI's start-up."""
        ...

    def run(self, arguments: Sequence[str], *, timeout_sec: float) -> Finished:
        """Run the CLI with these arguments to its end.

        The process is a group of its own: Ctrl-C is for Locust, and a call that takes longer
        than `timeout_sec` is killed with all that it started. Raises `RequestTimeout`,
        `BinaryNotFound`, `BadOutput`.
        """
        ...

    def cpu_sec(self) -> float:
        """CPU seconds of all calls that have ended; only a difference has a meaning."""
        ...

    def with_key(self, key: str) -> Launcher:
        """Run calls with this API key, by the same means: closing either closes both."""
        ...

    def close(self) -> None:
        """Let go of what the launcher holds."""
        ...


def kill_group(pid: int) -> None:
    """Kill a process group, if it is still there."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def close_pipes(process: subprocess.Popen[bytes]) -> None:
    """Close this side of a process's pipes."""
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with suppress(Exception):  # whatever state it is in, it is of no more use
                pipe.close()


def too_slow(timeout_sec: float) -> RequestTimeout:
    """The error for a call that was killed."""
    return RequestTimeout(f"no end of the CLI process within {timeout_sec:g} s")


def text(data: bytes) -> str:
    """What a process printed; bytes that are no UTF-8 are marked."""
    return data.decode("utf-8", errors="replace")


class ColdLauncher:
    """A fresh process of the binary for each call.

    environment: the whole environment of the processes.
    """

    warm = False

    def __init__(self, binary: Path, environment: Mapping[str, str]) -> None:
        self._binary = str(binary)
        self._environment = dict(environment)

    def run(self, arguments: Sequence[str], *, timeout_sec: float) -> Finished:
        """Run the CLI to its end; see `Launcher.run`."""
        try:
            process = subprocess.Popen(
                [self._binary, *arguments],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise BinaryNotFound(f"cannot start {self._binary}: {error.strerror}") from error
        try:
            stdout, stderr = process.communicate(timeout=timeout_sec)
        except subprocess.TimeoutExpired:
            _end(process)
            raise too_slow(timeout_sec) from None
        except BaseException:
            _end(process)
            raise
        return Finished(process.returncode, text(stdout), text(stderr))

    def cpu_sec(self) -> float:
        """CPU seconds of all children that this process has waited for."""
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def with_key(self, key: str) -> Self:
        """Run calls with this API key."""
        return type(self)(Path(self._binary), {**self._environment, API_KEY: key})

    def close(self) -> None:
        """Nothing is held between calls."""


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a CLI process with all that it started, and reap it."""
    kill_group(process.pid)
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=_REAP_SEC)
    close_pipes(process)
