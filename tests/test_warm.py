"""The warm CLI: indistinguishable from the cold one but for time, and never a loss."""

from __future__ import annotations

import os
import signal
import stat
import time
from pathlib import Path

import gevent
import psutil
import pytest

from tests.runs import PYTHON, TREADSTONE, Run, clean_environment, finished, scenario_file
from tests.servers import API_KEY, LocalServer
from treadstone_user.preflight import nowhere
from treadstone_user.transports.base import BadOutput, RequestTimeout
from treadstone_user.transports.launch import ColdLauncher, Finished
from treadstone_user.transports.warm import CannotWarm, WarmLauncher, read_console_script, warm_or_cold


def launchers(home: Path, **environment: str) -> tuple[ColdLauncher, WarmLauncher]:
    """A cold and a warm launcher of the real CLI in the same environment."""
    surroundings = clean_environment(home, **environment)
    with nowhere() as refusing:
        warm = WarmLauncher(TREADSTONE, surroundings, nowhere=refusing, say=pytest.fail)
    return ColdLauncher(TREADSTONE, surroundings), warm


def script(path: Path, body: str, *, interpreter: str = str(PYTHON)) -> Path:
    """Write a console script as pip would, whose entry point is in a module beside it."""
    module = path.with_name("prog.py")
    module.write_text(body)
    lines = ["import sys", "from prog import main", "if __name__ == '__main__':", "    sys.exit(main())"]
    path.write_text("\n".join([f"#!{interpreter}", *lines, ""]))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


# fmt: off
CALLS = [
    # arguments                                          what they show
    ["--version"],                                       # an early exit
    ["--help"],                                          # a long text
    ["--json", "system", "health"],                      # success
    ["--json", "sandboxes", "list"],                     # JSON
    ["sandboxes", "list"],                               # a table of rich's
    ["--json", "sandboxes", "get", "sb0"],               # an API error, exit code 1
    ["--json", "sandboxes", "frobnicate"],               # a usage error, exit code 2
    ["--json", "sandboxes", "create", "--storage-size", "7Gi"],
    ["--json", "sandboxes", "create", "--label", "nocolon"],
    [],                                                  # no command at all
]
# fmt: on


def test_same_output_as_cold(tmp_path: Path) -> None:
    """Exit code, standard output and standard error are those of a cold call, to the letter."""
    with LocalServer() as server:
        cold, warm = launchers(tmp_path, TREADSTONE_API_KEY=API_KEY, TREADSTONE_BASE_URL=server.base_url)
        try:
            for arguments in CALLS:
                assert warm.run(arguments, timeout_sec=30) == cold.run(arguments, timeout_sec=30), arguments
        finally:
            warm.close()


def test_warm_calls_are_faster(tmp_path: Path) -> None:
    """It is worth it: a warm call takes less than half the CPU of a cold one."""
    with LocalServer() as server:
        cold, warm = launchers(tmp_path, TREADSTONE_API_KEY=API_KEY, TREADSTONE_BASE_URL=server.base_url)
        used = []
        for launcher in (cold, warm):
            before = launcher.cpu_sec()
            for _ in range(5):
                assert launcher.run(["--json", "sandboxes", "list"], timeout_sec=30).exit_code == 0
            used.append(launcher.cpu_sec() - before)
        warm.close()
    assert used[1] < used[0] / 2


PROGRAM = """
import os, sys, time
def main():
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    if command == "see":
        sys.stdout.write(repr((sys.argv, sorted(os.environ), os.getpgrp() == os.getpid(), sys.stdin.read())))
        return None
    if command == "code":
        return int(sys.argv[2])
    if command == "text":
        return "a text as exit code"
    if command == "raise":
        raise RuntimeError("broken")
    if command == "die":
        os.kill(os.getpid(), 9)
    if command == "bytes":
        sys.stdout.buffer.write(b"\\xff\\xfe" * 100_000)
        return 0
    if command == "hang":
        pid = os.fork()
        open(sys.argv[2], "a").write(f"{os.getpid()} ")
        time.sleep(60)
    return 0
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A console script of ours that does what a test wants."""
    return script(tmp_path / "prog-script", PROGRAM)


def pair(program: Path) -> tuple[ColdLauncher, WarmLauncher]:
    """Launchers of that script."""
    environment = clean_environment(program.parent, PYTHONPATH=str(program.parent), MARK="1")
    warm = WarmLauncher(program, environment, nowhere="http://127.0.0.1:9", say=pytest.fail)
    return ColdLauncher(program, environment), warm


@pytest.mark.parametrize(
    "arguments", [["see", "a b", ""], ["code", "3"], ["code", "256"], ["text"], ["die"], ["bytes"], ["none"]]
)
def test_same_process_as_cold(program: Path, arguments: list[str]) -> None:
    """Arguments, environment, standard input, process group, exit codes and signals are the same."""
    cold, warm = pair(program)
    assert warm.run(arguments, timeout_sec=20) == cold.run(arguments, timeout_sec=20)
    warm.close()


def test_exception_is_told_as_by_python(program: Path) -> None:
    """An exception of the program gives exit code 1 and a traceback that ends with it."""
    cold, warm = pair(program)
    ends = [launcher.run(["raise"], timeout_sec=20) for launcher in (cold, warm)]
    warm.close()
    assert {end.exit_code for end in ends} == {1}
    assert {end.stderr.splitlines()[-1] for end in ends} == {"RuntimeError: broken"}


def test_hanging_call_is_killed_with_its_children(program: Path, tmp_path: Path) -> None:
    """After its timeout the whole process group is gone; the next call is warm as before."""
    _, warm = pair(program)
    pids = tmp_path / "pids"
    with pytest.raises(RequestTimeout):
        warm.run(["hang", str(pids)], timeout_sec=1)
    for pid in map(int, pids.read_text().split()):
        for _ in range(50):
            if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                break
            time.sleep(0.1)
        else:
            pytest.fail(f"{pid} still runs")
    assert warm.run(["code", "0"], timeout_sec=20) == Finished(0, "", "")
    warm.close()


def test_lost_parent_falls_back_to_cold_calls_and_says_so_once(program: Path) -> None:
    """A parent that is killed between calls costs no call."""
    said: list[str] = []
    environment = clean_environment(program.parent, PYTHONPATH=str(program.parent))
    warm = WarmLauncher(program, environment, nowhere="http://127.0.0.1:9", say=said.append)
    os.kill(warm._parent.pid, signal.SIGKILL)
    gevent.sleep(0.2)
    for _ in range(2):
        assert warm.run(["code", "3"], timeout_sec=20) == Finished(3, "", "")
    assert len(said) == 1
    assert "start the CLI anew" in said[0]
    assert not warm.warm
    warm.close()


def test_call_that_may_have_begun_is_not_made_again(program: Path, tmp_path: Path) -> None:
    """A parent that is lost in the middle of a call: the call fails, and is not sent a second time."""
    said: list[str] = []
    environment = clean_environment(program.parent, PYTHONPATH=str(program.parent))
    warm = WarmLauncher(program, environment, nowhere="http://127.0.0.1:9", say=said.append)
    pids = tmp_path / "pids"
    call = gevent.spawn(warm.run, ["hang", str(pids)], timeout_sec=30)
    while not pids.exists() or not pids.read_text().strip():
        gevent.sleep(0.05)
    os.kill(warm._parent.pid, signal.SIGKILL)
    gevent.sleep(0.3)
    started = pids.read_text().split()
    for pid in map(int, started):
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(BadOutput):
        call.get(timeout=10)
    assert pids.read_text().split() == started
    warm.close()


def test_parent_ends_with_its_owner_and_leaves_no_folder(program: Path) -> None:
    """`close` ends the parent and removes its socket's folder."""
    _, warm = pair(program)
    pid, folder = warm._parent.pid, Path(warm._folder)
    assert folder.stat().st_mode & 0o077 == 0
    warm.close()
    assert not psutil.pid_exists(pid)
    assert not folder.exists()


def test_parent_whose_owner_was_killed_ends_and_tidies_up(tmp_path: Path) -> None:
    """SIGKILL of Locust: the parent ends by itself, and removes its socket and the folder."""
    scenario = scenario_file(tmp_path, 2)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    arguments = ["--headless", "--only-summary", "--scenario", scenario, "--local"]
    arguments += ["--local-profile", "ready=fixed(60)"]
    with Run(tmp_path, *arguments, environment={"TMPDIR": str(temporary)}) as run:
        run.until_event("create_ok", 2)
        assert list(temporary.iterdir())
        run.send(signal.SIGKILL)
        run.wait()
    for _ in range(100):
        if not list(temporary.iterdir()):
            break
        time.sleep(0.1)
    assert list(temporary.iterdir()) == []


def test_run_whose_warm_cli_is_lost_says_so(tmp_path: Path) -> None:
    """The run goes on by cold calls, every sandbox is led to its end, and the verdict names the CLI."""
    scenario = scenario_file(tmp_path, 12, concurrency=4)
    arguments = ["--headless", "--only-summary", "--scenario", scenario, "--local"]
    with Run(tmp_path, *arguments, "--local-profile", "ready=fixed(1) latency=fixed(0.3)") as run:
        run.until_event("create_ok", 1)
        children = psutil.Process(run.process.pid).children()
        (parent,) = [child for child in children if "warm_parent" in " ".join(child.cmdline())]
        parent.kill()
        assert run.wait() in (0, 1), run.output
    assert run.output.count("the warm CLI is lost") == 1
    result = run.only
    overall = result.overall
    assert overall["submitted"] == 12
    assert overall["created_ok"] + overall["created_err"] == 12
    assert all(line["gone"] for line in result.truth)
    assert result.summary["cleanup"]["verified"]
    assert result.summary["client"]["warm_cli_lost"] is True
    assert "warm_cli_lost" in [reason["code"] for reason in result.summary["verdict"]["reasons"]]


# fmt: off
NOT_WARM = [
    # content of the binary                                                   why not
    ("\x7fELF\x02\x01\x01",                                                   "no Python console script"),
    ("#!/bin/sh\nexec treadstone \"$@\"\n",                                   "no Python console script"),
    ("#!/usr/bin/python3\nprint('something else')\n",                         "no Python console script"),
    ("#!/nowhere/python3\nimport sys\nfrom prog import main\nsys.exit(main())\n", "cannot be started"),
    (f"#!{PYTHON}\nimport sys\nfrom no_such_module import main\nsys.exit(main())\n", "no_such_module"),
]
# fmt: on


@pytest.mark.parametrize(("content", "why"), NOT_WARM)
def test_what_cannot_be_warmed_stays_cold(tmp_path: Path, content: str, why: str) -> None:
    """By default without a word; with `--warm-cli`, the reason is said."""
    binary = tmp_path / "treadstone"
    binary.write_text(content)
    said: list[str] = []
    environment = clean_environment(tmp_path)
    for wanted in (None, True):
        launcher = warm_or_cold(
            binary, environment, wanted=wanted, nowhere="http://127.0.0.1:9", say=said.append
        )
        assert not launcher.warm
    assert len(said) == 1
    assert why in said[0]


def test_real_cli_is_a_console_script() -> None:
    """The CLI that pip installs is recognised, with its entry point."""
    found = read_console_script(TREADSTONE)
    assert (found.module, found.function) == ("treadstone_cli.main", "cli")
    with pytest.raises(CannotWarm):
        read_console_script(Path("/nowhere"))


@pytest.mark.parametrize(
    ("option", "warm"), [((), True), (("--warm-cli",), True), (("--no-warm-cli",), False)]
)
def test_run_json_tells_whether_the_cli_was_warm(tmp_path: Path, option: tuple[str, ...], warm: bool) -> None:
    """Warm by default, cold on request; no process of the parent outlives the run."""
    scenario = scenario_file(tmp_path, 1)
    code, run = finished(tmp_path, "--scenario", scenario, "--local", *option)
    assert code == 0, run.output
    assert run.only.run["warm_cli"] is warm
    assert not [
        p for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(p.info["cmdline"] or [])
    ]
