"""The benchmark behind ``make bench``: cold CLI, warm CLI, HTTP and the bare limit, side by side.

All speak to one local server, in one run, one after the other: absolute times are the
machine's, what counts is their ratio. The bare limit is the same requests in a tight pool,
without Locust and without events. ``PEER_CMD`` names a command of your own, which runs the
scenario file ``{scenario}`` against the server ``{base_url}``; it is measured with the rest.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
from rich import box
from rich.console import Console
from rich.table import Table

from treadstone_user.figures import percentile
from treadstone_user.localserver import LocalServer

PROFILE = "ready=uniform(0.3,0.9) gone=fixed(0.05) latency=fixed(0.005)"
_ROOT = Path(__file__).resolve().parent.parent
_RUN_SEC = 600


@dataclass(frozen=True)
class Contender:
    """Something that leads `count` sandboxes through their lives."""

    name: str
    count: int
    command: Sequence[str]


@dataclass
class Measured:
    """What a contender did."""

    name: str
    count: int
    wall_sec: float
    """From the first create's arrival to the last sandbox's end, by the server's log."""
    cpu_sec: float
    memory_mb: float
    create_p50_ms: float | None = None
    errors_ms: dict[str, float] = field(default_factory=dict)
    """How far the ready percentiles that it reports lie above the truth."""

    @property
    def rate(self) -> float:
        """Lifecycles a second."""
        return self.count / self.wall_sec


class Truth:
    """What the local server's log says of the sandboxes that have ended."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def since(self, before: int) -> list[dict[str, Any]]:
        """Those that ended after the first `before` ones."""
        return [json.loads(line) for line in self._path.read_text().splitlines()[before:]]

    def count(self) -> int:
        """How many have ended so far."""
        return len(self._path.read_text().splitlines())


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all contenders; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m prep.bench", description=__doc__.split("\n\n")[0])
    parser.add_argument("--at-once", type=int, default=10, help="calls in flight (default: 10)")
    parser.add_argument("--json", type=Path, default=Path("results/bench.json"), help="where the figures go")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the numbers of sandboxes")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        truth = folder / "truth.jsonl"
        server = LocalServer.start(profile=PROFILE, truth=truth, environment=os.environ, say=_say)
        try:
            contenders = _contenders(options, server, folder)
            found = [_measure(it, server, Truth(truth), folder) for it in contenders]
        finally:
            server.stop()
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(_as_json(found), indent=2) + "\n")
    Console(width=110).print(_table(found))
    _say(f"figures in {options.json}")
    return 0


def _contenders(options: argparse.Namespace, server: LocalServer, folder: Path) -> list[Contender]:
    def scenario(name: str, count: int) -> str:
        path = folder / f"{name}.yaml"
        rows = [{"template": "aio-sandbox-tiny", "count": max(1, round(count * options.scale))}]
        content = {"name": name, "matrix": rows, "concurrency": options.at_once, "poll_interval_sec": 0.25}
        path.write_text(json.dumps(content))  # JSON is YAML
        return str(path)

    def locust(name: str, count: int, *more: str) -> Contender:
        file = scenario(name, count)
        count = max(1, round(count * options.scale))
        command = [str(Path(sys.executable).with_name("locust")), "--headless", "--only-summary"]
        command += ["--scenario", file, "--base-url", server.base_url, "--results-dir", str(folder / name)]
        return Contender(name, count, [*command, "-u", str(count), "-r", str(count), *more])

    bare = max(1, round(2000 * options.scale))
    contenders = [
        locust("cold CLI", 30, "--no-warm-cli"),
        locust("warm CLI", 200, "--warm-cli"),
        locust("http", 2000, "--transport", "http"),
        Contender(
            "bare limit",
            bare,
            [sys.executable, "-m", "prep.bench_bare", server.base_url, str(bare), str(options.at_once)],
        ),
    ]
    if peer := os.environ.get("PEER_CMD"):
        file = scenario("peer", 30)
        command = shlex.split(peer.format(scenario=file, base_url=server.base_url))
        contenders.append(Contender("peer", max(1, round(30 * options.scale)), command))
    return contenders


def _measure(contender: Contender, server: LocalServer, log: Truth, folder: Path) -> Measured:
    """Run a contender to its end and read from the server's log what it did."""
    _say(f"{contender.name}: {contender.count} sandboxes")
    before, used_before = log.count(), _children_cpu_sec()
    environment = {**os.environ, "TREADSTONE_API_KEY": server.api_key}
    with (folder / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            contender.command, cwd=_ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
        memory = _Memory(process.pid)
        code = process.wait(timeout=_RUN_SEC)
        memory.stop()
    truth = log.since(before)
    if code != 0 or len(truth) != contender.count:
        sys.stderr.write((folder / "output.txt").read_text(errors="replace"))
        raise SystemExit(f"{contender.name} ended with exit code {code} and {len(truth)} sandboxes")
    wall = max(_seconds(t["gone"]) for t in truth) - min(_seconds(t["created"]) for t in truth)
    used = _children_cpu_sec() - used_before
    measured = Measured(contender.name, contender.count, wall, used, memory.most_mb)
    _read_claims(measured, folder / contender.name, folder / "output.txt", truth)
    return measured


def _read_claims(measured: Measured, results: Path, output: Path, truth: Sequence[Mapping[str, Any]]) -> None:
    """Hold what a contender reports of itself against the truth."""
    summaries = list(results.glob("*/summary.json"))
    if summaries:
        overall = json.loads(summaries[0].read_text())["overall"]
        measured.create_p50_ms = overall["create_latency_ms"]["p50"]
        ready = sorted((_seconds(t["ready"]) - _seconds(t["created"])) * 1000 for t in truth)
        for percent in (50, 95, 99):
            claimed = overall["ready_latency_ms"][f"p{percent}"]
            measured.errors_ms[f"p{percent}"] = round(claimed - percentile(ready, percent), 1)
    else:
        with suppress(ValueError, IndexError, KeyError, TypeError):  # only the bare limit reports there
            measured.create_p50_ms = json.loads(output.read_text().splitlines()[-1])["create_p50_ms"]


class _Memory:
    """Watches the largest resident size of a process."""

    def __init__(self, pid: int) -> None:
        self.most_mb = 0.0
        self._process = psutil.Process(pid)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.wait(0.2):
            with suppress(psutil.Error):
                self.most_mb = max(self.most_mb, self._process.memory_info().rss / 2**20)

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()


def _children_cpu_sec() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def _as_json(found: Sequence[Measured]) -> dict[str, Any]:
    return {
        it.name: {
            "sandboxes": it.count,
            "lifecycles_per_sec": round(it.rate, 2),
            "cpu_ms_per_lifecycle": round(it.cpu_sec / it.count * 1000, 2),
            "create_p50_ms": it.create_p50_ms,
            "ready_above_truth_ms": it.errors_ms or None,
            "memory_mb": round(it.memory_mb),
        }
        for it in found
    }


def _table(found: Sequence[Measured]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for title in (
        "sandboxes",
        "lifecycles/s",
        "x cold",
        "CPU ms each",
        "create p50",
        "ready above truth",
        "MB",
    ):
        table.add_column(title, justify="right")
    for it in found:
        errors = " / ".join(f"{error:+.0f}" for error in it.errors_ms.values())
        table.add_row(
            it.name,
            str(it.count),
            f"{it.rate:.1f}",
            f"{it.rate / found[0].rate:.1f}",
            f"{it.cpu_sec / it.count * 1000:.1f}",
            f"{it.create_p50_ms:.0f} ms" if it.create_p50_ms is not None else "-",
            f"{errors} ms" if errors else "-",
            f"{it.memory_mb:.0f}",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
