"""Locust runs for tests: real processes, with what they print and what they leave."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import pytest

ROOT = Path(__file__).resolve().parent.parent
PYTHON = Path(sys.executable)
TREADSTONE = PYTHON.with_name("treadstone")
LOCUST = PYTHON.with_name("locust")


def clean_environment(home: Path, **more: str) -> dict[str, str]:
    """The environment of a new user whose home is `home`."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    return {**kept, "HOME": str(home), "PYTHONUNBUFFERED": "1", **more}


def json_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON Lines file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def seconds(moment: str) -> float:
    """An artifact's time as Unix seconds."""
    return datetime.fromisoformat(moment).timestamp()


@dataclass(frozen=True)
class Result:
    """What a run left in its folder."""

    path: Path

    @property
    def run(self) -> dict[str, Any]:
        """run.json."""
        content: dict[str, Any] = json.loads((self.path / "run.json").read_text())
        return content

    @property
    def summary(self) -> dict[str, Any]:
        """summary.json."""
        content: dict[str, Any] = json.loads((self.path / "summary.json").read_text())
        return content

    @property
    def overall(self) -> dict[str, Any]:
        """The bucket of all sandboxes."""
        bucket: dict[str, Any] = self.summary["overall"]
        return bucket

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        """The events of these kinds, or all."""
        events = json_lines(self.path / "events.jsonl")
        return [event for event in events if not kinds or event["event"] in kinds]

    @property
    def truth(self) -> list[dict[str, Any]]:
        """truth.jsonl, as the run's own local server wrote it."""
        return json_lines(self.path / "truth.jsonl")


class Run:
    """A Locust process in a folder of its own, ended with the test whatever happens."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        cwd: Path = ROOT,
        most_kib: int | None = None,
    ) -> None:
        """Start it.

        most_kib: no file may grow beyond this, as on a full disk.
        """
        self.results = folder / "results"
        self.log = folder / "log.txt"
        home = folder / "home"
        home.mkdir(parents=True, exist_ok=True)
        command = [str(LOCUST), "-f", str(ROOT / "locustfile.py"), "--results-dir", str(self.results)]
        if "--processes" in arguments:  # or workers that an earlier run left would join this one
            port = str(free_port())
            command += ["--master-bind-port", port, "--master-port", port]
        limit = [] if most_kib is None else ["sh", "-c", f'ulimit -f {most_kib * 2}; exec "$@"', "sh"]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*limit, *command, *arguments],
                cwd=cwd,
                env=clean_environment(home, **(environment or {})),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    @property
    def output(self) -> str:
        """All that was printed so far."""
        return self.log.read_text(errors="replace")

    def wait(self, timeout: float = 90) -> int:
        """The exit code; fails the test with the output when it does not come."""
        try:
            return self.process.wait(timeout=timeout)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running after {timeout} s:\n{self.output}")

    def until(self, condition: Callable[[Self], bool], timeout: float = 60) -> None:
        """Wait for a condition; fails the test with the output when it does not come true."""
        end = time.monotonic() + timeout
        while not condition(self):
            if time.monotonic() > end or self.process.poll() is not None:
                pytest.fail(f"waited in vain, exit code {self.process.poll()}:\n{self.output}")
            time.sleep(0.05)

    def until_said(self, text: str, timeout: float = 60) -> None:
        """Wait until the output holds a text."""
        self.until(lambda run: text in run.output, timeout)

    def until_event(self, kind: str, count: int = 1, timeout: float = 60) -> None:
        """Wait until so many events of a kind are in the log."""
        self.until(lambda run: run.count(kind) >= count, timeout)

    def count(self, kind: str) -> int:
        """How many events of a kind are in the logs of all runs of this process."""
        logs = self.results.glob("*/events.jsonl")
        return sum(path.read_text().count(f'"event": "{kind}"') for path in logs)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        self.process.send_signal(number)

    @property
    def all(self) -> list[Result]:
        """The runs of this process, oldest first."""
        return [Result(path) for path in sorted(self.results.glob("*")) if path.is_dir()]

    @property
    def only(self) -> Result:
        """The one run of this process."""
        found = self.all
        assert len(found) == 1, f"{len(found)} runs:\n{self.output}"
        return found[0]


def finished(folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> tuple[int, Run]:
    """Run Locust without a web UI to its end; returns the exit code and the run."""
    headless = ["--headless", "--only-summary", *arguments]
    with Run(folder, *headless, environment=environment) as run:
        return run.wait(timeout=180), run


def scenario_file(folder: Path, matrix: Sequence[Mapping[str, Any]] | int, **more: Any) -> str:
    """Write a scenario that polls every half second; a number means so many tiny sandboxes."""
    if isinstance(matrix, int):
        matrix = [{"template": "aio-sandbox-tiny", "count": matrix}]
    content = {"name": "test", "matrix": list(matrix), "concurrency": 5, "poll_interval_sec": 0.5, **more}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "scenario.yaml"
    path.write_text(json.dumps(content))  # JSON is YAML
    return str(path)


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
