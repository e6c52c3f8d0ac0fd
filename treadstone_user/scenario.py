"""Scenario files: what a run creates, read with all problems told at once.

The fields, their names and their defaults are those of Treadstone's own harness; its files run
unchanged.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from treadstone_user.fields import Fields
from treadstone_user.model import Task, Variant
from treadstone_user.sections import ExecRules, Job, QueryRules, Sections, StreamRules
from treadstone_user.strictyaml import UNREADABLE, Document, load, parse, shown
from treadstone_user.transports.base import ScenarioError

MAX_SANDBOXES = 100_000
"""The most sandboxes that one scenario may plan; beyond it a count is taken for a slip."""

UNBOUNDED = 10_000
"""The concurrency of a load that its users bound."""

STORAGE_SIZES = ("5Gi", "10Gi", "20Gi")
"""The sizes of a persistent volume that Treadstone offers."""

_SUFFIXES = (".yaml", ".yml")
_KEYS = (
    "name",
    "description",
    "matrix",
    "concurrency",
    "ready_timeout_sec",
    "poll_interval_sec",
    "auto_stop_interval",
    "auto_delete_interval",
    "cleanup",
    "accounts",
    "exec",
    "query",
    "stream",
    "weights",
)
_ROW_KEYS = ("template", "count", "persist", "storage_size")
_CLEANUP_KEYS = ("after_run", "on_failure")


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a run creates and how long it waits.

    `concurrency` is the number of creates in flight, of the whole run. Times that end in
    ``_sec`` are seconds, the two intervals are minutes as the API takes them (0 and -1: never).
    `cleanup_after_run` is None when not given; it has no effect, and the run says so.
    `accounts` is the store whose accounts make the sandboxes, None for the environment's credential;
    `exec`, `query` and `stream` are what else there is to do, `weights` how many users do what.
    """

    name: str
    description: str
    matrix: tuple[Variant, ...]
    concurrency: int = 10
    ready_timeout_sec: float = 900
    poll_interval_sec: float = 10
    auto_stop_interval: int = 60
    auto_delete_interval: int = -1
    cleanup_on_failure: bool = True
    cleanup_after_run: bool | None = None
    accounts: str | None = None
    exec: ExecRules | None = None
    query: QueryRules | None = None
    stream: StreamRules | None = None
    weights: Mapping[Job, int] = field(default_factory=dict)

    @property
    def jobs(self) -> dict[Job, int]:
        """What the scenario has work for, and in which proportion users do it."""
        there = {Job.LIFECYCLE: self.matrix, Job.QUERY: self.query, Job.STREAM: self.stream}
        weights = {job: self.weights.get(job, 1) for job, work in there.items() if work}
        return {job: weight for job, weight in weights.items() if weight > 0}

    @property
    def total(self) -> int:
        """The number of sandboxes of all rows."""
        return sum(variant.count for variant in self.matrix)

    def snapshot(self) -> dict[str, Any]:
        """The scenario as ``run.json`` holds it: a scenario file's own keys, defaults filled in."""
        after_run = {} if self.cleanup_after_run is None else {"after_run": self.cleanup_after_run}
        return {
            "name": self.name,
            "description": self.description,
            "matrix": [_row_snapshot(variant) for variant in self.matrix],
            "concurrency": self.concurrency,
            "ready_timeout_sec": self.ready_timeout_sec,
            "poll_interval_sec": self.poll_interval_sec,
            "auto_stop_interval": self.auto_stop_interval,
            "auto_delete_interval": self.auto_delete_interval,
            "cleanup": {**after_run, "on_failure": self.cleanup_on_failure},
            **self._snapshot_of_sections(),
        }

    def _snapshot_of_sections(self) -> dict[str, Any]:
        sections = {"accounts": self.accounts, "weights": dict(self.weights)}
        rules = {"exec": self.exec, "query": self.query, "stream": self.stream}
        told = sections | {name: asdict(value) for name, value in rules.items() if value is not None}
        return {name: value for name, value in told.items() if value}


def _row_snapshot(variant: Variant) -> dict[str, Any]:
    row = {"template": variant.template, "count": variant.count, "persist": variant.persist}
    return {**row, "storage_size": variant.storage_size} if variant.persist else row


def tasks(scenario: Scenario) -> tuple[Task, ...]:
    """All sandboxes of a scenario, numbered from 1, in an order that mixes the rows evenly.

    Any stretch of the plan holds the rows in proportion to their counts: the k-th of a row's
    n sandboxes has its ideal place at (2k - 1) / 2n of the plan, and the plan is sorted by
    ideal place, ties in the order of the rows. The same scenario always gives the same plan.

    Source: the earliest-due-date rule for mixed-model sequences, R. R. Inman and R. L. Bulfin,
    Management Science 37 (1991) 901-904. Equal places are equal floats, as division rounds
    correctly, and places that differ do so by far more than a float's precision.
    """
    places = sorted(
        ((2 * k + 1) / (2 * variant.count), row)
        for row, variant in enumerate(scenario.matrix)
        for k in range(variant.count)
    )
    return tuple(Task(number, scenario.matrix[row]) for number, (_, row) in enumerate(places, start=1))


def load_scenario(path: Path) -> Scenario:
    """Read a scenario file; `ScenarioError` tells all that is wrong with it.

    A file that it names is looked for from here, then from where the scenario lies.
    """
    return _scenario(load(path), source=str(path), folder=path.parent)


def parse_scenario(text: str, *, source: str) -> Scenario:
    """Read a scenario's text; each problem of a `ScenarioError` begins with `source`."""
    return _scenario(parse(text), source=source)


def restore_scenario(snapshot: Mapping[str, Any], *, source: str) -> Scenario:
    """The scenario of which this is the `snapshot`. Raises `ScenarioError`, each problem after `source`."""
    return _scenario(Document(dict(snapshot)), source=source)


def scenario_names(folder: Path) -> list[str]:
    """The names of the scenarios in a folder."""
    return sorted(file.stem for file in folder.glob("*") if file.suffix in _SUFFIXES)


def find_scenario(name_or_path: str, *, folder: Path) -> Path:
    """The file of a scenario: a path, or the bare name of a file in `folder`.

    `ScenarioError` lists the names that are there when neither fits.
    """
    given = Path(name_or_path)
    candidates = [given]
    if given.name == name_or_path:
        candidates += [folder / f"{name_or_path}{suffix}" for suffix in ("", *_SUFFIXES)]
    for candidate in candidates:
        if os.path.isfile(candidate):  # noqa: PTH113 - Path.is_file raises on names no file can have
            return candidate
    names = scenario_names(folder)
    near = difflib.get_close_matches(given.stem, names, n=1)
    meant = f"did you mean {near[0]}? " if near else ""
    there = f"scenarios in {folder}: {', '.join(names)}" if names else f"there are none in {folder}"
    raise ScenarioError([f"no scenario file {shown(name_or_path)}: {meant}{there}"])


def _scenario(document: Document, *, source: str, folder: Path | None = None) -> Scenario:
    problems = list(document.problems)
    if document.mapping == {} and not problems:
        problems.append("is empty; a scenario needs a name and a matrix")
    scenario = _read(document.mapping, problems, folder) if document.mapping else None
    if problems or scenario is None:
        raise ScenarioError([f"{source}: {problem}" for problem in problems])
    return scenario


def _find_file(given: str, folder: Path | None) -> Path | None:
    candidates = [Path(given)] + ([folder / given] if folder is not None else [])
    return next((path for path in candidates if os.path.isfile(path)), None)  # noqa: PTH113 - as above


def _read(values: dict[str, Any], problems: list[str], folder: Path | None) -> Scenario:
    fields = Fields(values, known=_KEYS, problems=problems)
    sections = Sections(fields, problems, lambda given: _find_file(given, folder))
    query, stream = sections.query(), sections.stream()
    others = query is not None or stream is not None
    cleanup = Fields(_cleanup(fields), path="cleanup", known=_CLEANUP_KEYS, problems=problems)
    return Scenario(
        name=fields.text("name", required=True),
        description=fields.text("description", lines=True),
        matrix=() if others and not fields.raw("matrix") else _matrix(fields, problems),
        concurrency=fields.whole(
            "concurrency",
            rule="a whole number of at least 1",
            allows=lambda n: n >= 1,
            default=10 if fields.raw("matrix") else UNBOUNDED,
        ),
        ready_timeout_sec=fields.seconds("ready_timeout_sec", default=900),
        poll_interval_sec=fields.seconds("poll_interval_sec", default=10),
        auto_stop_interval=fields.whole(
            "auto_stop_interval",
            rule="a whole number of minutes, 0 (never) or more",
            allows=lambda n: n >= 0,
            default=60,
        ),
        auto_delete_interval=fields.whole(
            "auto_delete_interval",
            rule="-1 (never) or a whole number of minutes of at least 1",
            allows=lambda n: n == -1 or n >= 1,
            default=-1,
        ),
        cleanup_on_failure=cleanup.flag("on_failure", default=True),
        cleanup_after_run=cleanup.flag("after_run", default=True) if cleanup.has("after_run") else None,
        accounts=sections.accounts(),
        exec=sections.exec(),
        query=query,
        stream=stream,
        weights=sections.weights(),
    )


def _cleanup(fields: Fields) -> dict[str, Any]:
    value = fields.raw("cleanup")
    if isinstance(value, dict):
        return value
    if value is not None:  # a cleanup whose keys are all commented out is null
        fields.wrong("cleanup", f"must hold after_run and on_failure, not {shown(value)}")
    return {}


def _matrix(fields: Fields, problems: list[str]) -> tuple[Variant, ...]:
    rows = fields.raw("matrix")
    if not fields.has("matrix"):
        fields.wrong("matrix", "is required")
    elif not isinstance(rows, list):
        fields.wrong("matrix", f"must be a list of rows, not {shown(rows)}")
    elif not 1 <= len(rows) <= MAX_SANDBOXES:
        fields.wrong("matrix", f"must be a list of 1 to {MAX_SANDBOXES:,} rows, not of {len(rows):,}")
    else:
        matrix = tuple(_row(index, row, problems) for index, row in enumerate(rows))
        total = sum(variant.count for variant in matrix)
        if total > MAX_SANDBOXES:
            fields.wrong(
                "matrix", f"adds up to {total:,} sandboxes, and {MAX_SANDBOXES:,} is the most of one run"
            )
        return matrix
    return ()


def _row(index: int, row: object, problems: list[str]) -> Variant:
    path = f"matrix[{index}]"
    if not isinstance(row, dict):
        if row is not UNREADABLE:
            problems.append(f"{path}: must hold a template and a count, not {shown(row)}")
        return Variant(index, "", 0)
    fields = Fields(row, path=path, known=_ROW_KEYS, problems=problems)
    persist = fields.flag("persist", default=False)
    return Variant(
        index=index,
        template=fields.text("template", required=True),
        count=fields.whole("count", rule="a whole number of at least 1", allows=lambda n: n >= 1),
        persist=persist,
        storage_size=_storage_size(fields) if persist else None,
    )


def _storage_size(fields: Fields) -> str | None:
    """The size of a persistent row; without `persist` a size means nothing, as in the harness."""
    value = fields.raw("storage_size")
    if value in STORAGE_SIZES:
        return str(value)
    if value is None:
        fields.wrong("storage_size", f"is required with persist: {_one_of(STORAGE_SIZES)}")
    else:
        fields.wrong("storage_size", f"must be {_one_of(STORAGE_SIZES)}, not {shown(value)}")
    return None


def _one_of(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"
