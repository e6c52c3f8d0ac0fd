"""The benchmark runs all contenders on one server and writes what it measured."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from tests.runs import LOCUST, PYTHON, ROOT, clean_environment


def test_all_contenders_are_measured_side_by_side(tmp_path: Path) -> None:
    """Cold, warm, http, the bare limit and a peer: each with its figures, in a table and as JSON."""
    figures = tmp_path / "bench.json"
    peer = f"{LOCUST} --headless --only-summary --transport http --results-dir {tmp_path}"
    environment = clean_environment(
        tmp_path, PEER_CMD=peer + " --scenario {scenario} --base-url {base_url}", PATH=os.environ["PATH"]
    )
    done = subprocess.run(
        [PYTHON, "-m", "prep.bench", "--scale", "0.02", "--json", figures],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    measured = json.loads(figures.read_text())
    assert list(measured) == ["cold CLI", "warm CLI", "http", "bare limit", "peer"]
    for name, row in measured.items():
        assert row["lifecycles_per_sec"] > 0
        assert row["cpu_ms_per_lifecycle"] > 0
        assert name in done.stdout
    for name in ("cold CLI", "warm CLI", "http"):
        assert set(measured[name]["ready_above_truth_ms"]) == {"p50", "p95", "p99"}
        assert measured[name]["create_p50_ms"] > 0
    assert measured["bare limit"]["create_p50_ms"] > 0
