"""A CLI that misbehaves in the middle of a run, and no key in anything that a run writes or shows."""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path

import pytest
import requests as http

from tests.runs import TREADSTONE, Run, finished, free_port, scenario_file
from tests.test_e2e_webui import WebUi

EVERY_THIRD_CREATE = """#!/bin/sh
case "$*" in *"sandboxes create"*)
    echo x >> "$0.creates"
    if [ $(( $(wc -l < "$0.creates") % 3 )) -eq 0 ]; then {act}; fi ;;
esac
exec {cli} "$@"
"""

ACTS = {
    "prints garbage": ('printf "\\\\000\\\\377 not JSON"; exit 0', "bad_output"),
    "is killed": ("kill -9 $$", "bad_output"),
    "was replaced by another version": (
        'echo "Error: No such option: --template" >&2; exit 2',
        "usage_error",
    ),
    "cannot reach the server": (
        'echo "Error: Connection refused. Detail: gone" >&2; exit 1',
        "connect_error",
    ),
}


@pytest.mark.parametrize("act", ACTS)
def test_a_cli_that(act: str, tmp_path: Path) -> None:
    """Each failed call is counted by its kind, the others go on, and all that was made is gone."""
    what, kind = ACTS[act]
    script = tmp_path / "treadstone"
    script.write_text(EVERY_THIRD_CREATE.format(act=what, cli=TREADSTONE))
    script.chmod(0o755)
    scenario = scenario_file(tmp_path, 6, concurrency=1)
    profile = ["--local", "--local-profile", "ready=fixed(0.2) gone=fixed(0.1)"]
    code, run = finished(tmp_path, "--scenario", scenario, "--binary", str(script), *profile)
    result = run.only
    assert code == 1, run.output
    assert result.overall["create_errors"] == {kind: 2}
    assert result.overall["ready"] == len(result.truth) == 4
    assert all(line["gone"] for line in result.truth)
    assert f"1_create aio-sandbox-tiny: {kind}" in run.output
    assert "Traceback" not in run.output


def _command_lines() -> list[bytes]:
    """Those of all processes of this machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it may have ended
            found.append(path.read_bytes())
    return found


def test_no_key_in_anything_that_a_run_writes_or_shows(tmp_path: Path) -> None:
    """With workers, the CLI, debug logs and the web UI: the key is in the environment and nowhere else."""
    key = "sk-local-a-key-that-must-not-be-seen"
    port = free_port()
    web = WebUi(port)
    arguments = ["--web-host", "127.0.0.1", "--web-port", str(port), "--processes", "2", "-L", "DEBUG"]
    profile = ["--local", "--local-profile", "ready=fixed(0.3) gone=fixed(0.1) create=429:20%"]
    scenario = scenario_file(tmp_path, 6)
    environment = {"LOCALSERVER_API_KEY": key}
    shown = []
    with Run(tmp_path, *arguments, "--scenario", scenario, *profile, environment=environment) as run:
        run.until(lambda _: web.is_up())
        run.until_said("2 workers connected")
        web.start(6)
        run.until_said("results in")
        run_id = run.only.path.name
        paths = ["", "/treadstone", "/treadstone/state.json", "/stats/requests", "/logs", "/exceptions"]
        paths += [
            f"/treadstone/files/{run_id}/{name}" for name in ("run.json", "events.jsonl", "summary.json")
        ]
        shown = [http.get(web.url + path, timeout=10).text for path in paths]
        command_lines = _command_lines()
        run.send(signal.SIGINT)
        run.wait()
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) > 5
    for path in written:
        assert key.encode() not in path.read_bytes(), path
    assert all(key not in text for text in shown)
    assert all(key.encode() not in line for line in command_lines)
    for path in run.only.path.rglob("*"):
        assert path.parent.stat().st_mode & 0o077 == 0, "the folder is its owner's alone"
