"""The workers of ``--processes``: they are forks of the master, and must not outlive it.

Locust 2.47 means to end them when the master exits, but takes a fork that still runs for one
that has ended: it tells none of them. And a fork whose master was killed would try for ever to
reach another one.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from contextlib import suppress

import gevent
import psutil

_GRACE_SEC = 1.5
_END_SEC = 20.0
_LOOK_SEC = 1.0


def end_with_this_process() -> None:
    """Have all forks of this process end with it. To be called before Locust forks."""
    atexit.register(_end_forks, os.getpid())


def on_orphaned(end: Callable[[], None]) -> None:
    """Call `end` once the parent of this process is gone."""
    gevent.spawn(_watch, os.getppid(), end)


def _end_forks(pid: int) -> None:
    if os.getpid() != pid:
        return  # a fork inherits this, too
    own = psutil.Process(pid)
    forks = [child for child in own.children() if _is_fork(child, own)]
    _, running = psutil.wait_procs(forks, timeout=_GRACE_SEC)
    for fork in running:
        with suppress(psutil.NoSuchProcess):
            fork.terminate()
    _, left = psutil.wait_procs(running, timeout=_END_SEC)
    for fork in left:
        with suppress(psutil.NoSuchProcess):
            fork.kill()


def _is_fork(child: psutil.Process, own: psutil.Process) -> bool:
    try:
        return bool(child.cmdline() == own.cmdline())  # others have begun a program of their own
    except psutil.Error:
        return False


def _watch(parent: int, end: Callable[[], None]) -> None:
    while os.getppid() == parent:
        gevent.sleep(_LOOK_SEC)
    end()
