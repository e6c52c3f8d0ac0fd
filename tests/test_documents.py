"""Documents of given sizes, and their way into an S3-compatible store."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from prep.documents import main as make
from tests.runs import ROOT, clean_environment, json_lines
from tests.s3 import S3

TEXT = "First, with an é.\n\nSecond: 日本語.\n\nThird and last.\n"


def _made(folder: Path, *arguments: str) -> Path:
    seed = folder / "seed.txt"
    seed.write_text(TEXT)
    assert make(["--seed-text", str(seed), "--out", str(folder / "docs"), *arguments]) == 0
    return folder / "docs"


def test_documents_have_their_sizes_and_are_all_different(tmp_path: Path) -> None:
    """To the byte, in whole characters, and listed with what they are."""
    docs = _made(tmp_path, "--count", "30", "--sizes", "61,1KB,2KiB")
    rows = json_lines(docs / "documents.jsonl")
    assert [row["bytes"] for row in rows] == [61] * 30 + [1000] * 30 + [2048] * 30
    for row in rows:
        content = (docs / row["path"]).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (row["bytes"], row["sha256"])
        content.decode()
    assert len({row["sha256"] for row in rows}) == 90


def test_the_same_seed_gives_the_same_and_what_is_there_stays(tmp_path: Path) -> None:
    """Another seed gives others; a damaged document is made anew."""
    docs = _made(tmp_path, "--count", "3")
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in docs.iterdir()}
    damaged = docs / "doc-1000-0002.txt"
    damaged.write_text("x")
    _made(tmp_path, "--count", "3")
    after = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in docs.iterdir()}
    assert {name: content for name, (content, _) in after.items()} == {
        name: content for name, (content, _) in before.items()
    }
    assert [name for name in after if after[name][1] != before[name][1]] == [damaged.name]
    _made(tmp_path, "--count", "3", "--seed", "2")
    assert damaged.read_bytes() != before[damaged.name][0]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--sizes", "1XB"], "'1XB' is not a size"),
        (["--sizes", "0"], "'0' is not a size"),
        (["--sizes", "5"], "5 bytes cannot hold"),
        (["--seed-text", "nowhere.txt"], "cannot be read"),
    ],
)
def test_mistakes_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    """In a line, with exit code 2."""
    seed = tmp_path / "seed.txt"
    seed.write_text(TEXT)
    assert make(["--seed-text", str(seed), "--out", str(tmp_path / "docs"), *arguments]) == 2
    assert told in capsys.readouterr().err


def test_a_seed_text_with_nothing_to_arrange_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line gives one document."""
    seed = tmp_path / "seed.txt"
    seed.write_text("only one\n")
    assert make(["--seed-text", str(seed), "--out", str(tmp_path)]) == 2
    assert "not two paragraphs or lines" in capsys.readouterr().err


def _upload(folder: Path, docs: Path, environment: dict[str, str], *more: str) -> tuple[int, str]:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "prep.upload", "--endpoint", environment["S3_ENDPOINT"]),
            *("--bucket", "inbox", "--from-file", str(docs / "documents.jsonl"), *more),
        ],
        cwd=ROOT,
        env=clean_environment(folder, **environment),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def test_documents_are_put_into_a_real_store(tmp_path: Path) -> None:
    """One that checks signatures; under their prefix, once, and what changed again."""
    docs = _made(tmp_path, "--count", "4", "--sizes", "200,64KiB")
    with S3(tmp_path / "s3") as s3:
        code, said = _upload(tmp_path, docs, s3.environment)
        assert (code, "8 failed" in said, "NoSuchBucket" in said) == (1, True, True)
        code, said = _upload(tmp_path, docs, s3.environment, "--make-bucket", "--prefix", "a +&=/")
        assert code == 0, said
        put = s3.folder / "inbox" / "a +&="
        for row in json_lines(docs / "documents.jsonl"):
            assert (put / row["path"]).read_bytes() == (docs / row["path"]).read_bytes()
        rows = json_lines(docs / "uploaded.jsonl")
        assert {row["url"] for row in rows} == {
            f"{s3.url}/inbox/a%20%2B%26%3D/{row['path']}" for row in json_lines(docs / "documents.jsonl")
        }
        for path in put.iterdir():
            os.utime(path, (1, 1))
        (docs / "doc-200-0001.txt").write_text("changed")
        assert _upload(tmp_path, docs, s3.environment, "--make-bucket", "--prefix", "a +&=/")[0] == 0
        changed = [path.name for path in put.iterdir() if path.stat().st_mtime > 2]
        assert changed == ["doc-200-0001.txt"]


def test_a_list_leads_nowhere_else(tmp_path: Path) -> None:
    """What lies beside its folder is nobody's to publish."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "documents.jsonl").write_text('{"path": "../secret"}\n')
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "S3_ENDPOINT": "http://127.0.0.1:9"}
    code, said = _upload(tmp_path, docs, keys)
    assert (code, "line 1: its `path` leads out of the folder" in said) == (2, True)


def test_wrong_keys_and_no_keys_are_told(tmp_path: Path) -> None:
    """By the store's own words, and before anything is sent; no key is shown."""
    docs = _made(tmp_path)
    with S3(tmp_path / "s3") as s3:
        wrong = {**s3.environment, "AWS_SECRET_ACCESS_KEY": "not-the-secret"}
        code, said = _upload(tmp_path, docs, wrong)
        assert (code, "SignatureDoesNotMatch" in said, "not-the-secret" in said) == (1, True, False)
        assert not (docs / "uploaded.jsonl").exists()
        code, said = _upload(tmp_path, docs, {"S3_ENDPOINT": s3.url})
        assert (code, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY must be set" in said) == (2, True)
