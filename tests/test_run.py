"""A run has a folder of its own, and its JSON files are always whole."""

from __future__ import annotations

import json
import stat
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from treadstone_user.run import RunFolder, read_run, write_json
from treadstone_user.transports.base import ConfigError

NOON = datetime(2026, 1, 31, 12, 0, 5, tzinfo=UTC)


def test_a_run_is_named_after_its_time(tmp_path: Path) -> None:
    """A run's id is the time in UTC; its label and files follow from it."""
    folder = RunFolder.claim(tmp_path / "a" / "results", now=NOON)
    assert folder.run_id == "20260131-120005"
    assert folder.label == "loadtest:run-20260131-120005"
    assert folder.path == tmp_path / "a" / "results" / "20260131-120005"
    assert folder.path.is_dir()
    assert folder.events_path == folder.path / "events.jsonl"


def test_the_clock_is_utc_by_itself(tmp_path: Path) -> None:
    """Without a time given, a run is named after the present one in UTC."""
    before = datetime.now(UTC)
    run_id = RunFolder.claim(tmp_path).run_id
    named = datetime.strptime(run_id, "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
    assert before.replace(microsecond=0) <= named <= datetime.now(UTC)


def test_runs_of_the_same_second_have_folders_of_their_own(tmp_path: Path) -> None:
    """A suffix keeps apart what starts in the same second."""
    ids = [RunFolder.claim(tmp_path, now=NOON).run_id for _ in range(3)]
    assert ids == ["20260131-120005", "20260131-120005-2", "20260131-120005-3"]


def test_runs_that_start_at_once_never_share_a_folder(tmp_path: Path) -> None:
    """However many claim a folder at the same moment, each gets one that nobody else has."""
    found: list[str] = []
    threads = [
        Thread(target=lambda: found.append(RunFolder.claim(tmp_path, now=NOON).run_id)) for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(set(found)) == 20


def test_the_folder_is_its_owners_alone(tmp_path: Path) -> None:
    """Others on the machine cannot look into a run."""
    folder = RunFolder.claim(tmp_path)
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700


def test_results_dir_that_is_a_file(tmp_path: Path) -> None:
    """A file in the place of the results is a mistake that is named, not a crash."""
    file = tmp_path / "results"
    file.write_text("mine")
    with pytest.raises(ConfigError, match="is a file, not a folder"):
        RunFolder.claim(file)
    assert file.read_text() == "mine"


def test_results_dir_under_a_file(tmp_path: Path) -> None:
    """So is a file further up its path."""
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(ConfigError, match=r"cannot make a folder in .*results: Not a directory"):
        RunFolder.claim(file / "results")


def test_results_dir_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So is a folder that one may not write to."""

    def refuse(self: Path, **_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(ConfigError, match=r"cannot make a folder in .*: Permission denied"):
        RunFolder.claim(tmp_path / "locked")


def test_discard_takes_the_folder_back(tmp_path: Path) -> None:
    """A run that never started leaves no folder behind, and leaves the others alone."""
    other = RunFolder.claim(tmp_path, now=NOON)
    other.write_run(run_id=other.run_id)
    folder = RunFolder.claim(tmp_path, now=NOON)
    folder.write_run(run_id=folder.run_id)
    folder.truth_path.write_text("")
    (folder.path / ".hidden").write_text("")
    folder.discard()
    assert list(tmp_path.iterdir()) == [other.path]
    folder.discard()  # again: nothing is there, nothing is wrong


def test_fields_are_added_to_run_json(tmp_path: Path) -> None:
    """What is told later is added to what run.json says already."""
    folder = RunFolder.claim(tmp_path, now=NOON)
    folder.write_run(run_id=folder.run_id, ending=None)
    folder.write_run(ending="completed")
    assert read_run(folder.path) == {"run_id": folder.run_id, "ending": "completed"} == folder.run
    again = RunFolder(folder.path, run=read_run(folder.path))
    again.write_run(cleanup={})
    assert read_run(folder.path) == {"run_id": folder.run_id, "ending": "completed", "cleanup": {}}


def test_the_summary_is_a_file_of_its_own(tmp_path: Path) -> None:
    """summary.json holds the summary."""
    folder = RunFolder.claim(tmp_path, now=NOON)
    folder.write_summary({"run_id": folder.run_id})
    assert json.loads((folder.path / "summary.json").read_text()) == {"run_id": folder.run_id}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@example(content={"description": "half a character \ud800, a line\u2028 end \r\n"})
@given(content=st.dictionaries(st.text(), JSON, max_size=5))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_content_comes_back(content: dict[str, Any], tmp_path: Path) -> None:
    """Whatever a scenario or a server says, the file holds it, and no other file is left."""
    path = tmp_path / "run.json"
    write_json(path, content)
    assert json.loads(path.read_text(encoding="utf-8")) == content
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("broken", ["write", "replace"])
def test_a_failed_write_leaves_the_old_file(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that fails half way leaves what stood there before."""
    path = tmp_path / "run.json"
    write_json(path, {"run_id": "old"})

    def half(self: Path, text: str, **_: Any) -> int:
        self.write_bytes(text.encode()[:5])
        raise OSError(28, "No space left on device")

    def fail(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, *(("write_text", half) if broken == "write" else ("replace", fail)))
    with pytest.raises(OSError, match="No space left"):
        write_json(path, {"run_id": "new", "padding": "x" * 100})
    assert json.loads(path.read_text()) == {"run_id": "old"}


def test_content_that_is_no_json_leaves_the_old_file(tmp_path: Path) -> None:
    """So does content that JSON cannot hold."""
    path = tmp_path / "run.json"
    write_json(path, {"run_id": "old"})
    with pytest.raises(TypeError):
        write_json(path, {"run_id": object()})
    assert json.loads(path.read_text()) == {"run_id": "old"}


def test_readers_never_see_half_a_file(tmp_path: Path) -> None:
    """Whoever reads while it is written again and again sees a whole file each time."""
    path = tmp_path / "run.json"
    write_json(path, {"fill": ""})

    def rewrite() -> None:
        for length in range(0, 200_000, 997):
            write_json(path, {"fill": "x" * length})

    writer = Thread(target=rewrite)
    writer.start()
    while writer.is_alive():
        assert set(json.loads(path.read_text())["fill"]) <= {"x"}
    writer.join()


UNREADABLE = [
    # what it proves, the content of run.json or None, what the error says
    ("no such file", None, "the latest runs there: 20260101-000000"),
    ("no JSON", "{", "cannot read"),
    ("no text", b"\xff", "cannot read"),
    ("not an object", "[]", "does not describe a run"),
    ("no run id", "{}", "does not describe a run"),
    ("an id that is no text", '{"run_id": 1}', "does not describe a run"),
]


@pytest.mark.parametrize(
    ("content", "says"), [row[1:] for row in UNREADABLE], ids=[row[0] for row in UNREADABLE]
)
def test_a_folder_that_is_no_run(content: str | bytes | None, says: str, tmp_path: Path) -> None:
    """A folder without a readable run.json is told, with the runs that there are."""
    known = tmp_path / "20260101-000000"
    known.mkdir()
    write_json(known / "run.json", {"run_id": known.name})
    path = tmp_path / "wanted"
    path.mkdir()
    if content is not None:
        (path / "run.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError, match=says):
        read_run(path)
