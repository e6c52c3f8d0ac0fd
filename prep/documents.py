"""Document variants of given sizes: ``python -m prep.documents --seed-text FILE --sizes 1KB,100KB``.

Each variant is the paragraphs of the seed text in another order, behind a line of its own, so that no two are
the same and no cache knows them; sizes are exact in bytes, and no character is cut. A JSONL list of them
(`path`, `bytes`, `sha256`, `variant`) lies beside them, for `data:` in a scenario and for prep.upload. The
same seed gives the same documents; those that are there already stay.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from prep.commandline import Bar, counted, run_command, say, whole
from treadstone_user.exitcode import ExitCode
from treadstone_user.transports.base import ConfigError

LIST = "documents.jsonl"
OUT = Path("results/documents")

_UNITS = {"": 1, "B": 1, "KB": 1000, "MB": 1_000_000, "KIB": 1024, "MIB": 1024**2}
_LARGEST = 1_000_000_000
_PARAGRAPH = re.compile(r"\n\s*\n")


def main(arguments: list[str] | None = None) -> int:
    """Make documents; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m prep.documents",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--seed-text", type=Path, required=True, metavar="FILE", help="the text that they are made of")
    add("--count", type=whole, default=1, metavar="N", help="how many of each size (default: 1)")
    add("--sizes", default="1KB", metavar="SIZES", help="such as 1KB,64KiB,1MB (default: 1KB)")
    add(
        "--out",
        type=Path,
        default=Path("results/documents"),
        metavar="DIR",
        help="(default: results/documents)",
    )
    add("--seed", type=int, default=1, metavar="N", help="of the arrangement (default: 1)")
    options = parser.parse_args(arguments)

    def command() -> ExitCode:
        sizes = read_sizes(options.sizes)
        paragraphs = read_paragraphs(options.seed_text)
        return make_documents(paragraphs, sizes, count=options.count, seed=options.seed, folder=options.out)

    return run_command(command)


def read_sizes(text: str) -> list[int]:
    """Sizes in bytes, of a list such as ``1KB,64KiB``. Raises `ConfigError`."""
    sizes = []
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,9})([A-Za-z]{0,3})", part.strip())
        unit = _UNITS.get(match[2].upper()) if match else None
        size = int(match[1]) * unit if match and unit else 0
        if not 0 < size <= _LARGEST:
            raise ConfigError(f"--sizes: {part.strip()!r} is not a size such as 500, 1KB, 64KiB or 2MB")
        sizes.append(size)
    return list(dict.fromkeys(sizes))


def read_paragraphs(path: Path) -> list[str]:
    """The paragraphs of a text, or its lines where it has one paragraph. Raises `ConfigError`."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise ConfigError(f"--seed-text: {path} cannot be read: {error}") from error
    for parts in (_PARAGRAPH.split(text), text.splitlines()):
        found = [part.strip() for part in parts if part.strip()]
        if len(found) > 1:
            return found
    raise ConfigError(f"--seed-text: {path} has not two paragraphs or lines to arrange")


def make_documents(
    paragraphs: Sequence[str], sizes: Sequence[int], *, count: int, seed: int, folder: Path
) -> ExitCode:
    """Write the documents that are not there, and the list of all. Raises `ConfigError`."""
    rows: list[dict[str, Any]] = []
    variants = [(size, number) for size in sizes for number in range(1, count + 1)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with Bar("documents", len(variants)) as bar:
            for size, number in variants:
                content = make_variant(paragraphs, size, number=number, seed=seed)
                name = f"doc-{size}-{number:04}.txt"
                _write(folder / name, content)
                digest = hashlib.sha256(content).hexdigest()
                rows.append({"path": name, "bytes": size, "sha256": digest, "variant": number})
                bar.step(failed=0)
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        _write(folder / LIST, lines.encode())
    except OSError as error:
        raise ConfigError(f"cannot write in {folder}: {error.strerror}") from error
    say(f"{counted(len(rows), 'document')}, {sum(row['bytes'] for row in rows):,} bytes, in {folder / LIST}")
    say("next: `data: FILE` in a scenario, or python -m prep.upload --from-file FILE")
    return ExitCode.OK


def make_variant(paragraphs: Sequence[str], size: int, *, number: int, seed: int) -> bytes:
    """A document of exactly so many bytes, like no other. Raises `ConfigError` where that is too few."""
    first = f"variant {number} of seed {seed}, {size} bytes\n\n".encode()
    if len(first) >= size:
        raise ConfigError(f"--sizes: {size} bytes cannot hold a document's first line ({len(first)} bytes)")
    content = bytearray(first)
    for part in _arranged(paragraphs, random.Random(f"{seed}/{size}/{number}")):
        content += part.encode() + b"\n\n"
        if len(content) >= size:
            break
    cut = bytes(content[:size]).decode("utf-8", errors="ignore").encode()
    return cut + b"." * (size - len(cut))  # in place of a character that would be cut


def _arranged(paragraphs: Sequence[str], rng: random.Random) -> Iterator[str]:
    while True:
        yield from rng.sample(paragraphs, len(paragraphs))


def _write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all; one that holds this already stays as it is."""
    if path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content:
        return
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


if __name__ == "__main__":
    sys.exit(main())
