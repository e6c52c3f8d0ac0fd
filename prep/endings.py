"""Ends many runs at random moments on a bad day of the server, and checks that nothing is left behind.

``python -m prep.endings --runs 60``: a third of the runs each are ended by SIGINT, SIGTERM and
SIGKILL, the last of these with ``sweep`` after it, while 5 % of the create replies are lost and
10 % of the deletes answer 500. Afterwards none of the run's sandboxes may be there, and all of
the 1,200 that belong to others must. It starts a local server and speaks to nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import requests

from treadstone_user.localserver import LocalServer

_ROOT = Path(__file__).resolve().parent.parent
_FOREIGN = 1200
_PROFILE = (
    "ready=lognormal(1.0,0.6) latency=uniform(0.02,0.2) gone=uniform(0.1,0.6) "
    f"lost=5% delete=500:10% foreign={_FOREIGN}"
)
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
_SANDBOXES = 30
_LATEST_SEC = 7.0
_END_SEC = 240.0


@dataclass(frozen=True, slots=True)
class Ended:
    """One run, and what was there after it."""

    number: int
    by: signal.Signals
    after_sec: float
    exit_code: int
    sweeps: int
    submitted: int
    left: int
    foreign: int

    @property
    def is_clean(self) -> bool:
        """Whether nothing of the run is left, and everything of others is."""
        return self.left == 0 and self.foreign == _FOREIGN

    def line(self) -> str:
        """The run as a line of the table."""
        verdict = "clean" if self.is_clean else "NOT CLEAN"
        return (
            f"{self.number:3d}  {self.by.name:<8} after {self.after_sec:4.1f} s, code {self.exit_code:3d}: "
            f"{self.submitted:3d} creates, {self.sweeps} sweeps, {self.left} left, {self.foreign} foreign, "
            f"{verdict}"
        )


class Bench:
    """A server, and a place for the runs against it."""

    def __init__(self, folder: Path, seed: int, stack: ExitStack) -> None:
        api_key = f"sk-{secrets.token_hex(16)}"
        self._environment = {**os.environ, "LOCALSERVER_API_KEY": api_key, "TREADSTONE_API_KEY": api_key}
        self._server = LocalServer.start(
            profile=f"{_PROFILE} seed={seed}",
            truth=folder / "truth.jsonl",
            environment=self._environment,
            say=_say,
        )
        stack.callback(self._server.stop)
        self._headers = {"Authorization": f"Bearer {api_key}"}
        self._folder = folder
        matrix = [{"template": "aio-sandbox-tiny", "count": _SANDBOXES}]
        scenario = {"name": "endings", "matrix": matrix, "concurrency": 8, "poll_interval_sec": 0.5}
        self._scenario = folder / "scenario.yaml"
        self._scenario.write_text(json.dumps(scenario), encoding="utf-8")

    def end(self, number: int, by: signal.Signals, after_sec: float) -> Ended:
        """Start a run, end it after so many seconds, and look at what is left."""
        results = self._folder / f"run{number}"
        locust = str(Path(sys.executable).with_name("locust"))
        command = [locust, "-f", str(_ROOT / "locustfile.py"), "--headless", "--only-summary"]
        command += ["--scenario", str(self._scenario), "--base-url", self._server.base_url]
        command += ["--results-dir", str(results), "--transport", "http"]
        if number % 2 and by is not signal.SIGKILL:
            port = _free_port()
            command += ["--processes", "2", "--master-bind-port", port, "--master-port", port]
        with (self._folder / f"run{number}.txt").open("w") as log:
            process = subprocess.Popen(
                command, cwd=_ROOT, env=self._environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
            try:
                self._await_creates(results)
                time.sleep(after_sec)
                process.send_signal(by)
                exit_code = process.wait(timeout=_END_SEC)
            except subprocess.TimeoutExpired:
                _say(f"{number:3d}  has not ended within {_END_SEC:g} s")
                exit_code = -1
            finally:
                process.kill()
        sweeps = self._sweep(results) if by is signal.SIGKILL else 0
        left = self._sandboxes(results)
        submitted = sum(
            path.read_text().count('"create_submitted"') for path in results.glob("*/events.jsonl")
        )
        return Ended(number, by, after_sec, exit_code, sweeps, submitted, left[True], left[False])

    def _await_creates(self, results: Path) -> None:
        """Wait until the run has a folder: before that, nothing can be left."""
        end = time.monotonic() + 30
        while not any(results.glob("*/run.json")) and time.monotonic() < end:
            time.sleep(0.02)

    def _sweep(self, results: Path) -> int:
        """Sweep until all is gone; how often it took."""
        for sweeps in range(1, 6):
            for path in results.glob("*/run.json"):
                command = [sys.executable, "-m", "treadstone_user", "sweep", path.parent.name]
                done = subprocess.run(
                    [*command, "--results-dir", str(results)],
                    cwd=_ROOT,
                    env=self._environment,
                    capture_output=True,
                    text=True,
                    timeout=_END_SEC,
                    check=False,
                )
                if done.returncode != 0:
                    _say(done.stdout + done.stderr)
                    break
            else:
                return sweeps
        return sweeps

    def _sandboxes(self, results: Path) -> Counter[bool]:
        """How many sandboxes are there that carry the label of this run, and that do not."""
        labels = {f"run-{path.name}" for path in results.iterdir()} if results.exists() else set()
        found: Counter[bool] = Counter()
        offset, total = 0, 1
        while offset < total:
            answer = requests.get(
                f"{self._server.base_url}/v1/sandboxes?limit=1000&offset={offset}",
                headers=self._headers,
                timeout=30,
            ).json()
            total = answer["total"]
            offset += len(answer["items"])
            found.update(item["labels"].get("loadtest") in labels for item in answer["items"])
        return found


def _free_port() -> str:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def main(arguments: list[str] | None = None) -> int:
    """End runs and print what was left; returns 0 if nothing was, ever."""
    parser = argparse.ArgumentParser(prog="python -m prep.endings", description=__doc__)
    parser.add_argument("--runs", type=int, default=6, help="how many runs (default: 6)")
    parser.add_argument("--seed", type=int, default=None, help="of the moments and of the server's faults")
    options = parser.parse_args(arguments)
    seed = options.seed if options.seed is not None else secrets.randbelow(10**6)
    chance = random.Random(seed)
    _say(f"seed {seed}: {options.runs} runs of {_SANDBOXES} sandboxes; server: {_PROFILE}")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="endings-")))
        bench = Bench(folder, seed, stack)
        ended = []
        for number in range(1, options.runs + 1):
            by = _SIGNALS[number % len(_SIGNALS)]
            ended.append(bench.end(number, by, round(chance.uniform(0, _LATEST_SEC), 1)))
            _say(ended[-1].line())
    dirty = [one for one in ended if not one.is_clean]
    creates = sum(one.submitted for one in ended)
    _say(f"{len(ended) - len(dirty)} of {len(ended)} runs left nothing behind, after {creates} creates")
    return 1 if dirty else 0


def _say(line: str) -> None:
    sys.stdout.write(line.rstrip() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
