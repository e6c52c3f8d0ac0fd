"""What people read: a known summary gives known tables."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from treadstone_user.model import Variant
from treadstone_user.report import (
    removal,
    render_cleanup,
    render_matrix,
    render_scenario,
    render_steady,
    render_summary,
)
from treadstone_user.scenario import Scenario
from treadstone_user.sections import Job
from treadstone_user.summary import summarize


def _life(
    name: str,
    ready_ms: float,
    template: str = "aio-sandbox-tiny",
    persist: bool = False,
    server_ms: float | None = None,
) -> list[Any]:
    about = {"sandbox_id": name, "template": template, "persist": persist}
    return [
        {"event": "create_submitted", **about},
        {"event": "create_ok", **about, "latency_ms": ready_ms / 10, "queue_ms": 0},
        {"event": "ready", **about, "ready_latency_ms": ready_ms},
        {"event": "server_times", **about, "server_ready_ms": server_ms},
        {"event": "delete_ok", **about, "latency_ms": 1},
    ]


def _summary(*lives: list[Any], timeout: float = 900, **client: Any) -> dict[str, Any]:
    run = {
        "run_id": "r",
        "scenario": {"ready_timeout_sec": timeout, "poll_interval_sec": 1},
        "client": client,
    }
    return summarize([event for life in lives for event in life], run)


def _cells(text: str, name: str) -> list[str]:
    """The cells of the one row of a table that begins with a name."""
    rows = [re.split(r" {2,}", line.strip()) for line in text.splitlines()]
    (row,) = [row for row in rows if row[0] == name]
    return row[1:]


def test_counts_and_rates() -> None:
    """A row holds the counts in the order of its headings, and the rates in per cent."""
    about = {"template": "aio-sandbox-tiny", "persist": False}
    refused = [{"event": "create_submitted", **about}, {"event": "create_err", **about, "http_status": 429}]
    late = [
        {"event": "create_submitted", **about},
        {"event": "create_ok", **about, "sandbox_id": "c", "latency_ms": 1, "queue_ms": 0},
        {"event": "poll_timeout", **about, "sandbox_id": "c"},
    ]
    text = render_summary(_summary(_life("a", 1000), _life("b", 3000), refused, late))
    # submitted, created, ready, failed, timeout, interrupted, deleted, rates
    assert _cells(text, "all") == ["4", "3", "2", "0", "1", "0", "2", "75.0%", "50.0%"]


def test_figures_that_few_samples_cannot_carry_are_in_brackets() -> None:
    """A percentile beyond what n can carry is shown in brackets, with a note that says why."""
    text = render_summary(_summary(*(_life(str(n), 1000 * (n + 1)) for n in range(20))))
    # n, p50, p95, p99, max: 20 samples carry p95 and not p99
    assert _cells(text, "ready all") == ["20", "10.50 s", "19.05 s", "(19.81 s)", "20.00 s"]
    assert _cells(text, "create all") == ["20", "1.05 s", "1.91 s", "(1.98 s)", "2.00 s"]
    assert "(figures in brackets: too few samples to carry that percentile)" in text


def test_no_brackets_and_no_note_where_samples_suffice() -> None:
    """With enough samples nothing is in brackets."""
    text = render_summary(_summary(*(_life(str(n), 1000) for n in range(100))))
    assert _cells(text, "ready all") == ["100", "1.00 s", "1.00 s", "1.00 s", "1.00 s"]
    assert "(" not in text


def test_a_run_without_a_sample() -> None:
    """Where there is nothing to tell there is a dash or no row, not nought."""
    text = render_summary(_summary())
    assert _cells(text, "all") == ["0"] * 7 + ["-", "-"]
    assert not [name for name in ("create all", "ready all", "0.00 s", "(") if name in text]


def test_the_servers_own_figure_stands_below_the_clients() -> None:
    """Create, ready, time to ready and the server's own: a row each, where there is a figure."""
    text = render_summary(_summary(_life("a", 2000, server_ms=1500), _life("b", 3000, server_ms=2500)))
    rows = [line.strip().split("  ")[0] for line in text.splitlines()]
    assert [row for row in rows if row.endswith("all")] == [
        "all",
        "create all",
        "ready all",
        "time to ready all",
        "server's own all",
    ]
    assert _cells(text, "server's own all")[:2] == ["2", "2.00 s"]
    without = render_summary(_summary(_life("a", 2000)))
    assert "server's own" not in without


def test_figures_that_are_only_bounds_say_so() -> None:
    """Those that never got ready make the figures that they move bounds; the others stay as they are."""
    about = {"template": "aio-sandbox-tiny", "persist": False}
    late = [{"event": "poll_timeout", **about, "sandbox_id": f"late{n}"} for n in range(2)]
    text = render_summary(_summary(*(_life(str(n), 1000) for n in range(18)), late, timeout=20))
    # 20 values, the two late ones are ranks 18 and 19: p95 is rank 18.05, p99 rank 18.81 (too few for it)
    assert _cells(text, "time to ready all") == ["20", "1.00 s", "≥ 20.00 s", "(≥ 20.00 s)", "≥ 20.00 s"]
    assert _cells(text, "ready all") == ["18", "1.00 s", "(1.00 s)", "(1.00 s)", "1.00 s"]


def test_a_verdict_on_the_client_leads() -> None:
    """Where the client explains a figure, that comes before all figures, with a remedy each."""
    lag = {"p99": 30.0, "max": 250.0}
    text = render_summary(_summary(_life("a", 1000), cli_startup_ms=90, loop_lag_ms=lag))
    assert text.splitlines()[:6] == [
        "verdict: client_saturated, some figures measure this client and not the server",
        "  create_latency_ms: 90% of the p50 (100 ms) is the CLI's start (90 ms)",
        "    remedy: --transport http measures the server without the CLI",
        "  create_latency_ms, ready_latency_ms: "
        "the client's event loop stood still for up to 250 ms (p99 30 ms)",
        "    remedy: fewer users, a quieter machine, or more workers",
        "",
    ]
    assert text.index("verdict") < text.index("Sandboxes") < text.index("Latency")


def test_a_sentence_is_never_broken() -> None:
    """Text outside of the tables stays a line however long it is: it can be searched, and copied."""
    refused = [
        {"event": "create_err", "template": "t", "persist": False, "http_status": n} for n in range(400, 440)
    ]
    (line,) = [line for line in render_summary(_summary(refused)).splitlines() if "creates refused" in line]
    assert line.startswith("creates refused: 1 x 400, ")
    assert line.endswith(", 1 x 439")


def test_a_server_that_was_measured_needs_no_verdict() -> None:
    """Where the figures are the server's there is nothing to say about the client."""
    text = render_summary(_summary(_life("a", 1000), cli_startup_ms=1, loop_lag_ms={"p99": 1.0, "max": 5.0}))
    assert text.splitlines()[0] == "Sandboxes"
    assert "verdict" not in text


def test_one_kind_needs_no_further_rows() -> None:
    """With one template and one kind, the total says it all."""
    text = render_summary(_summary(_life("a", 1000)))
    assert "aio-sandbox-tiny" not in text
    assert "persist=" not in text


def test_several_kinds_have_rows_of_their_own() -> None:
    """Each template and each kind of storage gets a row in both tables."""
    text = render_summary(_summary(_life("a", 1000), _life("b", 3000, "aio-sandbox-large", persist=True)))
    assert _cells(text, "aio-sandbox-large")[:3] == ["1", "1", "1"]
    assert _cells(text, "persist=true")[:3] == ["1", "1", "1"]
    assert _cells(text, "ready persist=false")[:2] == ["1", "(1.00 s)"]
    assert _cells(text, "create aio-sandbox-large")[:2] == ["1", "(0.30 s)"]


def test_failures_are_told_by_kind() -> None:
    """Each sort of failure is a line with its causes and how often each came."""
    about = {"template": "t", "persist": False, "sandbox_id": "a"}
    summary = _summary(
        [{"event": "create_err", **about, "http_status": status} for status in (429, 429, 500)],
        [{"event": "failed_status", **about, "last_status": "error"}],
        [{"event": "delete_err", **about, "http_status": 503}],
        [{"event": "poll_err", "http_status": None, "error_kind": "connect_error"}],
    )
    lines = render_summary(summary).splitlines()
    assert lines[-4:] == [
        "creates refused: 2 x 429, 1 x 500",
        "sandboxes failed: 1 x error",
        "deletes refused: 1 x 503",
        "polls failed: 1 x connect_error",
    ]


def test_without_a_failure_there_is_no_such_line() -> None:
    """Nothing is said of failures that did not happen."""
    text = render_summary(_summary(_life("a", 1000)))
    assert not any(word in text for word in ("refused", "failed:", " x "))


def test_the_tables_fit_a_terminal() -> None:
    """The tables hold plain text, without colours, in lines that a usual terminal shows whole."""
    names = ["aio-sandbox-tiny", "aio-sandbox-large", "aio-sandbox-xlarge"]
    text = render_summary(_summary(*(_life(name, 1_000_000, name, persist=True) for name in names)))
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 118
    assert "1000.00 s" in text


CLEAN: dict[str, Any] = {
    "ran": True,
    "verified": True,
    "found": 3,
    "problem": None,
    "remaining": {},
    "kept": {},
    "unanswered_creates": 0,
}
REMEDY = "remove them so"


def _cleanup(cleanup: dict[str, Any]) -> list[str]:
    return render_cleanup(cleanup, label="loadtest:run-r", remedy=REMEDY).splitlines()


def test_nothing_left_is_said_in_a_line() -> None:
    """After a complete clean-up its figure is told, and there is nothing to do."""
    assert _cleanup(CLEAN) == ["clean-up: all 3 sandboxes found are gone, none left"]
    lost = {**CLEAN, "unanswered_creates": 2}
    assert _cleanup(lost) == _cleanup(CLEAN), "a whole list without them has settled what came of them"


def test_what_is_left_comes_with_the_command_that_removes_it() -> None:
    """Each sandbox that stayed is named with its reason, and the command to finish the job."""
    left = {"a": "still deleting", "b": "delete failed: 500 server_error"}
    assert _cleanup({**CLEAN, "verified": False, "problem": "2 still in the list", "remaining": left}) == [
        "clean-up NOT complete: 2 still in the list",
        "  a: still deleting",
        "  b: delete failed: 500 server_error",
        REMEDY,
    ]


def test_a_clean_up_that_proved_nothing() -> None:
    """A clean-up that could not see whether anything is left is not complete either."""
    unproven = {"verified": False, "problem": "the list of sandboxes cannot be read", "unanswered_creates": 2}
    assert _cleanup({**CLEAN, **unproven}) == [
        "clean-up NOT complete: the list of sandboxes cannot be read",
        "  2 creates without an answer may have made more",
        REMEDY,
    ]


def test_a_clean_up_that_never_began() -> None:
    """A finish that broke off before its clean-up is told in the same words."""
    broken = {"ran": True, "verified": False, "problem": "it did not come to it"}
    assert _cleanup(broken) == ["clean-up NOT complete: it did not come to it", REMEDY]


def test_no_clean_up_is_said_with_its_reason() -> None:
    """Sandboxes left on purpose are said to stay, with the label to find them by."""
    assert _cleanup({"ran": False, "reason": "--no-cleanup"}) == [
        "no clean-up (--no-cleanup): the run's sandboxes stay, labelled loadtest:run-r",
        REMEDY,
    ]


def test_what_is_not_the_runs_kind_is_left_alone() -> None:
    """A sandbox under the run's label that it does not make is told, and offered to no sweep."""
    assert _cleanup({**CLEAN, "kept": {"c": "persistent, which the scenario does not make"}})[1:] == [
        "left alone: c carries loadtest:run-r, but is persistent, which the scenario does not make"
    ]


SWEEP = "remove them with: python -m treadstone_user sweep r"
REMOVALS = [
    # what it proves, folder of the results, local, what is said
    ("the usual folder needs no option", "results", False, SWEEP),
    ("another one is named", "elsewhere", False, f"{SWEEP} --results-dir elsewhere"),
    ("a shell can read it", "my results", False, f"{SWEEP} --results-dir {shlex.quote('my results')}"),
    (
        "a server of the run's own takes all along",
        "results",
        True,
        "they end with the run's own local server",
    ),
]


@pytest.mark.parametrize(
    ("results", "local", "said"), [row[1:] for row in REMOVALS], ids=[row[0] for row in REMOVALS]
)
def test_how_to_remove_what_is_left(results: str, local: bool, said: str) -> None:
    """The command that finishes the job can be copied as it stands."""
    assert removal("r", Path(results), local=local) == said


MATRIX = (
    Variant(0, "aio-sandbox-tiny", 3),
    Variant(1, "aio-sandbox-large", 2, persist=True, storage_size="10Gi"),
)


def test_the_matrix_has_a_line_a_variant_and_a_total() -> None:
    """A dry run shows each row with its storage, and how many sandboxes that makes."""
    cells = [line.split() for line in render_matrix(MATRIX).splitlines()]
    assert ["0", "aio-sandbox-tiny", "none", "3"] in cells
    assert ["1", "aio-sandbox-large", "10Gi", "2"] in cells
    assert ["total", "5"] in cells


FACTS: list[tuple[dict[str, Any], str]] = [
    # what the scenario says, how it is told
    ({}, "at most 10 calls at once, a poll every 10 s, ready within 900 s"),
    ({}, "auto-stop 60 min, auto-delete -1 (never)"),
    ({"auto_stop_interval": 0, "auto_delete_interval": 5}, "auto-stop 0 (never), auto-delete 5 min"),
    ({"poll_interval_sec": 0.5, "concurrency": 3}, "at most 3 calls at once, a poll every 0.5 s"),
]


@pytest.mark.parametrize(("more", "told"), FACTS)
def test_a_scenario_is_told_before_it_runs(more: dict[str, Any], told: str) -> None:
    """Its name, its limits and its matrix are told in units."""
    scenario = Scenario(name="burst", description="many", matrix=MATRIX, **more)
    text = render_scenario(scenario, {Job.LIFECYCLE})
    assert text.splitlines()[0] == "burst: many"
    assert told in text
    assert render_matrix(MATRIX) in text


def test_a_scenario_without_a_description() -> None:
    """Without a description its name stands alone."""
    text = render_scenario(Scenario(name="burst", description="", matrix=MATRIX), {Job.LIFECYCLE})
    assert text.splitlines()[0] == "burst"


def test_a_steady_load_is_told_before_it_runs() -> None:
    """Without a total, its users and its limits are told; without `-u` there is one user."""
    scenario = Scenario(name="steady", description="steady load on t", matrix=MATRIX, poll_interval_sec=1)
    text = render_steady(scenario, users=6)
    assert "steady load on t: 6 users" in text
    assert "a poll every 1 s, ready within 900 s" in text
    assert ": 1 users" in render_steady(scenario, users=None)
