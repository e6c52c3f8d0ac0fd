"""A scenario file is read as Treadstone's own harness read it, or all its problems are told."""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from treadstone_user.model import Variant
from treadstone_user.scenario import Scenario, find_scenario, load_scenario, parse_scenario, tasks
from treadstone_user.transports.base import ScenarioError

HARNESS_FILE = """\
# As the harness that Treadstone ships wrote them.
name: "mixed-burst"
description: >
  Seventy without storage,
  thirty with.

matrix:
  - template: aio-sandbox-tiny
    count: 70
    persist: false

  - template: aio-sandbox-medium
    count: 30
    persist: true
    storage_size: "5Gi"

concurrency: 10          # shared by all rows
ready_timeout_sec: 1200
poll_interval_sec: 10

auto_stop_interval: 60
auto_delete_interval: -1

cleanup:
  after_run: true
  on_failure: true
"""

ROW = "matrix: [{template: t, count: 1}]"


def problems_of(text: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, source="s.yaml")
    assert all(problem.startswith("s.yaml: ") for problem in caught.value.problems)
    return [problem.removeprefix("s.yaml: ") for problem in caught.value.problems]


def with_row(row: str) -> str:
    return f"name: n\nmatrix:\n- {{template: t, count: 1}}\n- {row}\n"


def with_key(line: str) -> str:
    return f"name: n\n{ROW}\n{line}\n"


def test_a_file_of_the_harness_runs_unchanged() -> None:
    scenario = parse_scenario(HARNESS_FILE, source="s.yaml")
    assert scenario == Scenario(
        name="mixed-burst",
        description="Seventy without storage, thirty with.",
        matrix=(
            Variant(0, "aio-sandbox-tiny", 70),
            Variant(1, "aio-sandbox-medium", 30, persist=True, storage_size="5Gi"),
        ),
        concurrency=10,
        ready_timeout_sec=1200,
        poll_interval_sec=10,
        auto_stop_interval=60,
        auto_delete_interval=-1,
        cleanup_on_failure=True,
        cleanup_after_run=True,
    )
    assert scenario.total == 100


def test_the_defaults_are_those_of_the_harness() -> None:
    scenario = parse_scenario(f"name: n\n{ROW}", source="s.yaml")
    assert scenario == Scenario("n", "", (Variant(0, "t", 1),), 10, 900, 10, 60, -1, True, None)


def test_the_snapshot_has_the_shape_of_run_json_and_reads_as_the_same_scenario() -> None:
    """What run.json holds can be run again."""
    scenario = parse_scenario(HARNESS_FILE, source="s.yaml")
    snapshot = scenario.snapshot()
    assert snapshot == yaml.safe_load(HARNESS_FILE) | {"description": scenario.description}
    assert parse_scenario(json.dumps(snapshot), source="run.json") == scenario
    bare = parse_scenario(f"name: n\n{ROW}", source="s.yaml")
    assert bare.snapshot()["cleanup"] == {"on_failure": True}
    assert parse_scenario(json.dumps(bare.snapshot()), source="run.json") == bare


ACCEPTED = [
    # what it proves, the scenario's text, the field, its value
    ("010 is ten, as the harness read it", with_key("concurrency: 010"), "concurrency", 10),
    ("09 is nine, which YAML would take for text", with_key("concurrency: 09"), "concurrency", 9),
    ("a quoted number is a number", with_key('concurrency: "15"'), "concurrency", 15),
    ("1_000 is a thousand", with_key("concurrency: 1_000"), "concurrency", 1000),
    ("1e3 is a thousand seconds", with_key("ready_timeout_sec: 1e3"), "ready_timeout_sec", 1000.0),
    ("seconds may be fractions", with_key("poll_interval_sec: 0.25"), "poll_interval_sec", 0.25),
    ("what YAML alone reads is read: hexadecimal", with_key("concurrency: 0x10"), "concurrency", 16),
    ("0 minutes is never to stop", with_key("auto_stop_interval: 0"), "auto_stop_interval", 0),
    ("-1 minutes is never to delete", with_key("auto_delete_interval: -1"), "auto_delete_interval", -1),
    ("1 minute to the deletion", with_key("auto_delete_interval: 1"), "auto_delete_interval", 1),
    ("yes and no are YAML's", with_key("cleanup: {on_failure: no}"), "cleanup_on_failure", False),
    ("after_run is known when given", with_key("cleanup: {after_run: false}"), "cleanup_after_run", False),
    ("a cleanup with nothing in it is none", with_key("cleanup:"), "cleanup_after_run", None),
    ("a description may be empty", with_key("description:"), "description", ""),
    ("a description may have lines", with_key("description: |\n  a\n  b"), "description", "a\nb"),
    ("a name may look like a date", f"name: 2026-02-31\n{ROW}", "name", "2026-02-31"),
    ("a name may hold any letters", f"name: größer 🚀\n{ROW}", "name", "größer 🚀"),
    (
        "JSON is YAML",
        '{"name": "n", "matrix": [{"template": "t", "count": 2}]}',
        "matrix",
        (Variant(0, "t", 2),),
    ),
    ("a byte order mark is skipped", f"\ufeffname: n\n{ROW}", "name", "n"),
    ("lines may end as on Windows", f"name: n\r\n{ROW}\r\n", "name", "n"),
    (
        "a size without persist means nothing",
        with_row("{template: u, count: 2, persist: false, storage_size: 7Gi}"),
        "matrix",
        (Variant(0, "t", 1), Variant(1, "u", 2)),
    ),
    (
        "a size of null is none",
        with_row("{template: u, count: 2, storage_size: null}"),
        "matrix",
        (Variant(0, "t", 1), Variant(1, "u", 2)),
    ),
    (
        "merged keys may be overridden",
        "name: n\nmatrix:\n- &a {template: t, count: 1, persist: true, storage_size: 5Gi}\n"
        "- <<: *a\n  count: 2\n",
        "matrix",
        (Variant(0, "t", 1, True, "5Gi"), Variant(1, "t", 2, True, "5Gi")),
    ),
    (
        "of several merged mappings the first one wins",
        "name: n\nmatrix:\n- {<<: [{count: 3}, {template: t, count: 4}]}\n",
        "matrix",
        (Variant(0, "t", 3),),
    ),
    (
        "a row may be repeated by its alias",
        "name: n\nmatrix: [&a {template: t, count: 1}, *a]",
        "matrix",
        (Variant(0, "t", 1), Variant(1, "t", 1)),
    ),
    (
        "100,000 sandboxes are a scenario",
        with_row("{template: u, count: 99_999}"),
        "matrix",
        (Variant(0, "t", 1), Variant(1, "u", 99_999)),
    ),
]


@pytest.mark.parametrize(
    ("text", "field", "value"), [row[1:] for row in ACCEPTED], ids=[row[0] for row in ACCEPTED]
)
def test_accepts(text: str, field: str, value: Any) -> None:
    read = getattr(parse_scenario(text, source="s.yaml"), field)
    assert (type(read), read) == (type(value), value)


A_COUNT = "must be a whole number of at least 1, not"
A_TIME = "must be a number of seconds above 0, not"
REFUSED = [
    # what it proves, the scenario's text, the only problem told
    (
        "a name is required",
        ROW,
        "name: is required",
    ),
    ("a name is not empty", f"name: ' '\n{ROW}", "name: must not be empty"),
    ("a name is text", f"name: 5\n{ROW}", "name: must be text, not 5 (put it in quotes)"),
    ("a name is not null", f"name:\n{ROW}", "name: must be text, not nothing"),
    ("a name has one line", f'name: "a\\nb"\n{ROW}', r"name: must be printable text, not 'a\nb'"),
    ("half a character is none", f'name: "\\ud800"\n{ROW}', r"name: must be printable text, not '\ud800'"),
    ("a description is text", with_key("description: [a]"), "description: must be text, not a list"),
    ("a matrix is required", "name: n", "matrix: is required"),
    ("a matrix is a list", "name: n\nmatrix: {a: 1}", "matrix: must be a list of rows, not keys and values"),
    ("a matrix has rows", "name: n\nmatrix: []", "matrix: must be a list of 1 to 100,000 rows, not of 0"),
    ("a row has keys", with_row("tiny"), "matrix[1]: must hold a template and a count, not 'tiny'"),
    ("a template is required", with_row("{count: 1}"), "matrix[1].template: is required"),
    (
        "a template is not empty",
        with_row("{template: '', count: 1}"),
        "matrix[1].template: must not be empty",
    ),
    (
        "a template goes to a command line",
        with_row('{template: "a\\0b", count: 1}'),
        r"matrix[1].template: must be printable text, not 'a\x00b'",
    ),
    ("a count is required", with_row("{template: t}"), "matrix[1].count: is required"),
    ("a count is 1 or more", with_row("{template: t, count: 0}"), f"matrix[1].count: {A_COUNT} 0"),
    ("a count is whole", with_row("{template: t, count: 2.0}"), f"matrix[1].count: {A_COUNT} 2.0"),
    ("true is no count", with_row("{template: t, count: true}"), f"matrix[1].count: {A_COUNT} true"),
    ("null is no count", with_row("{template: t, count: }"), f"matrix[1].count: {A_COUNT} nothing"),
    ("a word is no count", with_row("{template: t, count: many}"), f"matrix[1].count: {A_COUNT} 'many'"),
    ("foreign digits are none", with_row("{template: t, count: ٣}"), f"matrix[1].count: {A_COUNT} '٣'"),
    (
        "an absurd count is a slip",
        with_row("{template: t, count: 1000000000}"),
        "matrix: adds up to 1,000,000,001 sandboxes, and 100,000 is the most of one run",
    ),
    (
        "the total counts, not the row",
        with_row("{template: t, count: 100000}"),
        "matrix: adds up to 100,001 sandboxes, and 100,000 is the most of one run",
    ),
    (
        "digits without end are told in short",
        with_row("{template: t, count: " + "9" * 5000 + "}"),
        f"matrix[1].count: {A_COUNT} '{'9' * 59}…",
    ),
    (
        "persist is true or false",
        with_row("{template: t, count: 1, persist: 1}"),
        "matrix[1].persist: must be true or false, not 1",
    ),
    (
        "persist needs a size",
        with_row("{template: t, count: 1, persist: true}"),
        "matrix[1].storage_size: is required with persist: 5Gi, 10Gi or 20Gi",
    ),
    (
        "a size is one of three",
        with_row("{template: t, count: 1, persist: true, storage_size: 7Gi}"),
        "matrix[1].storage_size: must be 5Gi, 10Gi or 20Gi, not '7Gi'",
    ),
    ("somebody creates", with_key("concurrency: 0"), f"concurrency: {A_COUNT} 0"),
    (
        "numbers have an end",
        with_key("concurrency: 3000000000"),
        "concurrency: must be at most 2147483647, not 3000000000",
    ),
    ("a timeout is above 0", with_key("ready_timeout_sec: 0"), f"ready_timeout_sec: {A_TIME} 0"),
    ("a timeout is finite", with_key("ready_timeout_sec: .inf"), f"ready_timeout_sec: {A_TIME} inf"),
    (
        "a quoted infinity is one too",
        with_key("ready_timeout_sec: 1e999"),
        f"ready_timeout_sec: {A_TIME} '1e999'",
    ),
    ("nan is no interval", with_key("poll_interval_sec: .nan"), f"poll_interval_sec: {A_TIME} nan"),
    ("false is no interval", with_key("poll_interval_sec: false"), f"poll_interval_sec: {A_TIME} false"),
    (
        "times have an end",
        with_key("ready_timeout_sec: 1.0e+300"),
        "ready_timeout_sec: must be at most 2147483647 seconds, not 1e+300",
    ),
    (
        "auto-stop is 0 or more",
        with_key("auto_stop_interval: -1"),
        "auto_stop_interval: must be a whole number of minutes, 0 (never) or more, not -1",
    ),
    (
        "auto-delete is never 0",
        with_key("auto_delete_interval: 0"),
        "auto_delete_interval: must be -1 (never) or a whole number of minutes of at least 1, not 0",
    ),
    (
        "a cleanup has keys",
        with_key("cleanup: true"),
        "cleanup: must hold after_run and on_failure, not true",
    ),
    (
        "an unknown key comes with the one that was meant",
        with_row("{template: t, cuont: 1, count: 1}"),
        "matrix[1].cuont: unknown key; did you mean count?",
    ),
    (
        "an unknown key without a near one comes with all",
        with_key("cleanup: {x: 1}"),
        "cleanup.x: unknown key; known here: after_run, on_failure",
    ),
    (
        "a duplicate key comes with both lines",
        "name: n\nmatrix:\n- template: t\n  count: 1\n  count: 2\n",
        "matrix[0].count: given twice, on line 4 and on line 5",
    ),
    ("a duplicate at the top", f"name: n\n{ROW}\nname: m", "name: given twice, on line 1 and on line 3"),
    (
        "a merge names a mapping",
        with_row("{<<: 5, template: t, count: 1}"),
        "matrix[1].<<: must name a mapping or a list of mappings",
    ),
    (
        "a key is a word",
        with_row("{[a]: 1, template: t, count: 1}"),
        "matrix[1]: a key must be a word (line 4)",
    ),
    ("a type of one's own", with_row("!ruby x"), "matrix[1]: the YAML type '!ruby' is not used here"),
    ("a type that lies", with_row("!!int x"), "matrix[1]: cannot be read as int: 'x'"),
    ("an alias of what it is in", "name: n\nmatrix: &a [*a]", "matrix[0]: contains itself (line 2)"),
    (
        "merging has an end",
        "name: n\nmatrix:\n- &a {" + ", ".join(f"k{i}: 1" for i in range(500)) + "}\n" + "- {<<: *a}\n" * 201,
        "line 3, column 3: too many merged keys",
    ),
    (
        "a mapping merged into itself",
        "name: n\nmatrix: [&a {<<: *a, template: t, count: 1}]",
        "matrix[0].<<: contains itself (line 2)",
    ),
    (
        "a value of a type that lies is told once",
        with_row("{template: t, count: !!int x}"),
        "matrix[1].count: cannot be read as int: 'x'",
    ),
    (
        "capitals are a near miss",
        with_row("{template: t, count: 1, PERSIST: true}"),
        "matrix[1].PERSIST: unknown key; did you mean persist?",
    ),
    ("a list is no scenario", "&a [*a]", "must hold keys and values, not a list"),
    ("a word is no scenario", "scenario", "must hold keys and values, not the single value 'scenario'"),
    ("an empty file is none", "", "is empty; a scenario needs a name and a matrix"),
    ("comments are none", "# name: n\n", "is empty; a scenario needs a name and a matrix"),
    (
        "several documents are too many",
        f"name: n\n{ROW}\n---\nname: m\n",
        "line 3, column 1: expected a single document in the stream, but found another document",
    ),
    (
        "unreadable YAML comes with its place",
        "name: n\nmatrix: [a\nb: c",
        "line 3, column 2: while parsing a flow sequence, expected ',' or ']', but got ':'",
    ),
    ("an undefined alias", "name: *a", "line 1, column 7: found undefined alias 'a'"),
    ("a NUL", "name: \0", "line 1, column 7: YAML does not allow the character U+0000 here"),
    ("an escape beyond Unicode", 'name: "\\UFFFFFFFF"', "line 1, column 10: this escape is not a character"),
    ("nesting has an end", "name: " + "[" * 9000, "line 1, column 1063: nested more than 32 levels deep"),
    ("size has an end", "#" * 1_000_001, "is larger than 1 MB"),
    ("size is counted in bytes", "#" + "ü" * 500_000, "is larger than 1 MB"),
]


@pytest.mark.parametrize(("text", "problem"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refuses(text: str, problem: str) -> None:
    assert problems_of(text) == [problem]


def test_tells_all_problems_of_a_file_at_once() -> None:
    """Unknown and duplicate keys, wrong types and missing keys, of every level."""
    text = """\
descripton: x
concurrency: none
concurrency: none
cleanup: {on_failure: 1}
matrix:
- {template: 1, count: 0}
- {count: 1}
"""
    told = [problem.partition(":")[0] for problem in problems_of(text)]
    assert sorted(told) == sorted(
        [
            "descripton",
            "concurrency",
            "concurrency",
            "cleanup.on_failure",
            "matrix[0].template",
            "matrix[0].count",
            "matrix[1].template",
            "name",
        ]
    )


BOMBS = {
    "merge keys that double": "name: n\nmatrix:\n- &a0 {template: t, count: 1}\n"
    + "".join(f"- &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}\n" for i in range(1, 60)),
    "aliases that multiply": "name:\n- &a0 [x]\n"
    + "".join(f"- &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 60)),
    "base 60 without end": with_key("ready_timeout_sec: " + "59:" * 50_000 + "1.5"),
}


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
def test_a_small_file_costs_little(text: str) -> None:
    """What multiplies when it is expanded is bounded: no more than seconds, whatever it says."""
    started = time.monotonic()
    with suppress(ScenarioError):
        parse_scenario(text, source="s.yaml")
    assert time.monotonic() - started < 5


UNREADABLE = [
    # what it proves, the file's content (None: a directory), the problem told
    ("not UTF-8", b"name: \xff", "is not UTF-8 text (byte 7)"),
    ("too large, cut in a character", b"ab" + "ü".encode() * 500_001, "is larger than 1 MB"),
    ("a directory", None, "is not a file"),
]


@pytest.mark.parametrize(
    ("content", "problem"), [row[1:] for row in UNREADABLE], ids=[row[0] for row in UNREADABLE]
)
def test_a_file_that_cannot_be_read_is_a_scenario_error(
    content: bytes | None, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "s.yaml"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)
    assert caught.value.problems == (f"{path}: {problem}",)


def test_a_missing_file_is_a_scenario_error(tmp_path: Path) -> None:
    """So is a path that no file can have."""
    for name, problem in [
        ("no.yaml", "there is no such file"),
        ("x" * 300, "cannot be read: File name too long"),
        ("a\0b", "cannot be read: embedded null byte"),
    ]:
        with pytest.raises(ScenarioError) as caught:
            load_scenario(tmp_path / name)
        assert str(caught.value).endswith(f": {problem}")


def test_a_scenario_is_found_by_path_or_by_bare_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "scenarios"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    for name in ("pilot.yaml", "burst.yml", "notes.txt"):
        (folder / name).write_text(HARNESS_FILE)
    assert find_scenario("pilot", folder=folder) == folder / "pilot.yaml"
    assert find_scenario("burst", folder=folder) == folder / "burst.yml"
    assert find_scenario("pilot.yaml", folder=folder) == folder / "pilot.yaml"
    assert find_scenario("scenarios/pilot.yaml", folder=folder) == Path("scenarios/pilot.yaml")
    (tmp_path / "pilot").mkdir()
    assert find_scenario("pilot", folder=folder) == folder / "pilot.yaml"


def test_a_scenario_that_is_not_there_comes_with_those_that_are(tmp_path: Path) -> None:
    (tmp_path / "pilot.yaml").write_text(HARNESS_FILE)
    (tmp_path / "burst.yml").write_text(HARNESS_FILE)
    with pytest.raises(ScenarioError) as caught:
        find_scenario("pilto", folder=tmp_path)
    assert str(caught.value) == (
        f"no scenario file 'pilto': did you mean pilot? scenarios in {tmp_path}: burst, pilot"
    )
    for name in ("", ".", "../pilot", "x" * 300, "a\0b"):
        with pytest.raises(ScenarioError, match="burst, pilot"):
            find_scenario(name, folder=tmp_path)
    with pytest.raises(ScenarioError, match="there are none in"):
        find_scenario("pilot", folder=tmp_path / "nowhere")


def scenario_of(counts: list[int]) -> Scenario:
    matrix = tuple(Variant(index, f"t{index}", count) for index, count in enumerate(counts))
    return Scenario("n", "", matrix)


PLANS = [
    # what it proves, the rows' counts, the rows in the order of the plan
    ("one row is one run", [3], "000"),
    ("equal rows take turns", [2, 2], "0101"),
    ("a rare row stands in the middle", [4, 1], "00100"),
    ("seven to three", [7, 3], "0100010010"),
    ("three rows in proportion", [4, 2, 1], "0102010"),
]


@pytest.mark.parametrize(("counts", "plan"), [row[1:] for row in PLANS], ids=[row[0] for row in PLANS])
def test_tasks_mix_the_rows(counts: list[int], plan: str) -> None:
    planned = tasks(scenario_of(counts))
    assert "".join(str(task.variant.index) for task in planned) == plan
    assert [task.number for task in planned] == list(range(1, len(planned) + 1))


@given(st.lists(st.integers(1, 60), min_size=1, max_size=8))
@settings(max_examples=150, deadline=None)
def test_every_stretch_of_the_plan_holds_the_rows_in_proportion(counts: list[int]) -> None:
    """No row is ever further from its share than rounding all rows at once explains."""
    scenario = scenario_of(counts)
    planned = tasks(scenario)
    assert planned == tasks(scenario)
    assert Counter(task.variant for task in planned) == {row: row.count for row in scenario.matrix}
    seen: Counter[int] = Counter()
    for length, task in enumerate(planned, start=1):
        seen[task.variant.index] += 1
        for index, count in enumerate(counts):
            share = count / scenario.total
            assert abs(seen[index] - length * share) <= 1.5 + share * len(counts) / 2


def read(text: str) -> None:
    """The property: a scenario or a scenario error, and nothing else."""
    try:
        scenario = parse_scenario(text, source="s.yaml")
    except ScenarioError:
        return
    snapshot = json.dumps(scenario.snapshot(), ensure_ascii=False)
    assert parse_scenario(snapshot, source="s.yaml") == scenario


YAML_PIECES = [
    *HARNESS_FILE.splitlines(keepends=True),
    *("&a ", "*a", "<<: ", "[", "]", "{", "}", ": ", "- ", "? ", "! ", "!!int ", "!!set ", "!!float ", "| "),
    *(
        "---\n",
        "...\n",
        "%YAML 1.1\n",
        "\t",
        "\n",
        '"',
        "'",
        "#",
        "\\x",
        "0",
        "1e9",
        ".nan",
        "~",
        "\ud800",
        "\0",
    ),
]


@given(st.text(max_size=200) | st.lists(st.sampled_from(YAML_PIECES), max_size=30).map("".join))
@settings(max_examples=400, deadline=None)
def test_any_text_is_a_scenario_or_a_scenario_error(text: str) -> None:
    read(text)


@given(
    st.lists(
        st.tuples(
            st.integers(0, len(HARNESS_FILE)),
            st.integers(0, 30),
            st.sampled_from(YAML_PIECES) | st.text(max_size=4),
        ),
        max_size=4,
    )
)
@settings(max_examples=300, deadline=None)
def test_a_damaged_file_is_a_scenario_or_a_scenario_error(damage: list[tuple[int, int, str]]) -> None:
    text = HARNESS_FILE
    for start, length, put in damage:
        text = text[:start] + put + text[start + length :]
    read(text)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.dates(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8) | st.booleans(), inner, max_size=3)
    ),
    max_leaves=6,
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {}, optional=dict.fromkeys(("template", "count", "persist", "storage_size"), VALUES)
    )
    | VALUES,
    max_size=3,
)


@given(
    st.fixed_dictionaries(
        {"name": st.just("n") | VALUES, "matrix": ROWS | VALUES},
        optional={
            "concurrency": VALUES,
            "ready_timeout_sec": VALUES,
            "auto_delete_interval": VALUES,
            "cleanup": st.dictionaries(st.sampled_from(["after_run", "on_failure"]), VALUES) | VALUES,
        },
    )
)
@settings(max_examples=300, deadline=None)
def test_any_values_are_a_scenario_or_a_scenario_error(values: dict[str, Any]) -> None:
    read(yaml.safe_dump(values, allow_unicode=True))
