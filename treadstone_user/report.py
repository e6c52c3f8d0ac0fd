"""A summary as people read it: pure text from values."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from treadstone_user.model import Variant
from treadstone_user.scenario import Scenario
from treadstone_user.sections import DEFAULT_QUERIES, DEFAULT_STREAM, Job

NOTHING_MADE = "the run makes no sandboxes"
"""Why a run of queries or streams alone cleans nothing up."""

_WIDTH = 118
_SHOWN = 80


_FIGURES = {
    "create": "create_latency_ms",
    "ready": "ready_latency_ms",
    "time to ready": "time_to_ready_ms",
    "server's own": "server_ready_ms",
    "first answer": "first_answer_ms",
}


def _text(*parts: Table | str) -> str:
    out = StringIO()
    console = Console(file=out, width=_WIDTH, color_system=None, highlight=False, markup=False, emoji=False)
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, str))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()).strip("\n")


def _table(title: str, first: str, others: Iterable[str]) -> Table:
    table = Table(title=title, title_justify="left", title_style="", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table


def render_matrix(matrix: Iterable[Variant]) -> str:
    """What a scenario creates, a line a variant."""
    matrix = list(matrix)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("#", justify="right")
    table.add_column("template")
    table.add_column("storage")
    table.add_column("sandboxes", justify="right")
    for variant in matrix:
        storage = variant.storage_size or "none"
        table.add_row(str(variant.index), variant.template, storage, str(variant.count))
    table.add_section()
    table.add_row("", "total", "", str(sum(variant.count for variant in matrix)))
    return _text(table)


def render_steady(scenario: Scenario, *, users: int | None) -> str:
    """What a steady load will do, before it does."""
    return (
        f"{scenario.description}: {users or 1} users create, wait and delete, one sandbox after the other\n"
        f"a poll every {scenario.poll_interval_sec:g} s, ready within {scenario.ready_timeout_sec:g} s"
    )


def render_scenario(scenario: Scenario, jobs: Collection[Job]) -> str:
    """What will run, before it runs. jobs: what users will do."""
    delete = "-1 (never)" if scenario.auto_delete_interval == -1 else f"{scenario.auto_delete_interval} min"
    stop = "0 (never)" if scenario.auto_stop_interval == 0 else f"{scenario.auto_stop_interval} min"
    facts = (
        f"at most {scenario.concurrency} calls at once, a poll every {scenario.poll_interval_sec:g} s, "
        f"ready within {scenario.ready_timeout_sec:g} s; auto-stop {stop}, auto-delete {delete}"
    )
    title = f"{scenario.name}: {scenario.description}" if scenario.description else scenario.name
    lines = [title]
    if Job.LIFECYCLE in jobs:
        lines += [facts, render_matrix(scenario.matrix)]
        if scenario.exec is not None:
            lines.append(f"in each ready sandbox: {_short(scenario.exec.command)}")
    if Job.QUERY in jobs:
        mix = (scenario.query or DEFAULT_QUERIES).mix
        lines.append("queries: " + ", ".join(f"{query} {count}" for query, count in mix.items()))
    if Job.STREAM in jobs:
        stream = scenario.stream or DEFAULT_STREAM
        rows = f", filled in from {stream.data.file}" if stream.data is not None else ""
        lines.append(f"streams: {stream.method} {stream.path}{rows}")
    if scenario.accounts is not None:
        lines.append(f"on the accounts of {scenario.accounts}")
    return "\n".join(lines)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else line[: _SHOWN - 3] + "..."


def _duration(figures: Mapping[str, Any], name: str) -> str:
    if figures[name] is None:
        return "-"
    bound = "≥ " if name in figures.get("at_least", ()) else ""
    text = f"{bound}{figures[name] / 1000:.2f} s"
    return f"({text})" if name in figures["unsupported"] else text


def _percent(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.1%}"


def _latencies(figures: Mapping[str, Any]) -> list[str]:
    return [_duration(figures, name) for name in ("p50", "p95", "p99", "max")]


_FLOW = {
    "first output": "first_output_ms",
    "mean gap": "mean_gap_ms",
    "longest gap": "longest_gap_ms",
    "whole stream": "total_ms",
}

_COUNTS = {
    "submitted": "submitted",
    "created": "created_ok",
    "ready": "ready",
    "failed": "failed_status",
    "timeout": "poll_timeout",
    "interr.": "interrupted",
    "lost": "lost",
    "deleted": "deleted_ok",
}


def _counts(name: str, bucket: Mapping[str, Any], keys: Iterable[str]) -> list[str]:
    rates = [_percent(bucket["create_success_rate"]), _percent(bucket["ready_rate_of_submitted"])]
    return [name, *(str(bucket[key]) for key in keys), *rates]


def render_summary(summary: Mapping[str, Any]) -> str:
    """The final tables: counts with rates, and latencies with percentiles."""
    rows = {"all": summary["overall"]}
    if len(summary["by_template"]) > 1:
        rows |= summary["by_template"]
    if len(summary["by_persist"]) > 1:
        rows |= {f"persist={name}": bucket for name, bucket in summary["by_persist"].items()}
    columns = dict(_COUNTS)
    if not summary["overall"]["lost"]:
        del columns["lost"]  # only workers get lost
    counts = _table("Sandboxes", "", [*columns, "create rate", "ready rate"])
    latencies = _table("Latency", "", ["n", "p50", "p95", "p99", "max"])
    for name, bucket in rows.items():
        counts.add_row(*_counts(name, bucket, columns.values()))
        for title, key in _FIGURES.items():
            if bucket[key]["n"]:
                latencies.add_row(f"{title} {name}", str(bucket[key]["n"]), *_latencies(bucket[key]))
    notes = (
        ["(figures in brackets: too few samples to carry that percentile)"] if "(" in _text(latencies) else []
    )
    figures = [latencies] if latencies.row_count else []
    others = [*_queries(summary["queries"]), *_streams(summary["streams"])]
    has_sandboxes = summary["overall"]["submitted"] or not others
    sandboxes: list[Table | str] = [counts, *figures, *notes] if has_sandboxes else []
    return _text(*_verdict(summary["verdict"]), *sandboxes, *others, *_failures(summary))


def _milliseconds(figures: Mapping[str, Any]) -> list[str]:
    """Figures of what takes milliseconds rather than seconds."""
    told = []
    for name in ("p50", "p95", "p99", "max"):
        text = "-" if figures[name] is None else f"{figures[name]:,.1f} ms"
        told.append(f"({text})" if name in figures["unsupported"] else text)
    return told


def _queries(queries: Mapping[str, Any]) -> list[Table]:
    table = _table("Queries", "", ["asked", "failed", "p50", "p95", "p99", "max"])
    for name, found in queries.items():
        table.add_row(name, str(found["asked"]), str(found["failed"]), *_milliseconds(found["latency_ms"]))
    return [table] if queries else []


def _streams(streams: Mapping[str, Any]) -> list[Table]:
    """Streams by their path: how many, how much, and how they flowed."""
    if not streams:
        return []
    amounts = _table("Streams", "", ["asked", "failed", "outputs", "characters", "tokens"])
    flow = _table("Flow", "", ["n", "p50", "p95", "p99", "max"])
    for path, found in streams.items():
        counts = [found[name] for name in ("asked", "failed", "outputs", "characters", "tokens")]
        amounts.add_row(path, *("-" if count is None else str(count) for count in counts))
        for title, name in _FLOW.items():
            if found[name]["n"]:
                flow.add_row(f"{title} {path}", str(found[name]["n"]), *_milliseconds(found[name]))
        for title in ("outputs", "characters", "tokens"):
            rates = found[f"{title}_per_sec"]
            if rates["n"]:
                values = [f"{rates[one]:.1f}/s" for one in ("p50", "p95", "p99", "max")]
                flow.add_row(f"{title} {path}", str(rates["n"]), *values)
    return [amounts, flow] if flow.row_count else [amounts]


def _verdict(verdict: Mapping[str, Any]) -> list[str]:
    """The verdict in words; nothing where the server was measured."""
    if not verdict["reasons"]:
        return []
    lines = ["verdict: client_saturated, some figures measure this client and not the server"]
    for reason in verdict["reasons"]:
        lines.append(f"  {', '.join(reason['figures'])}: {reason['text']}")
        lines.append(f"    remedy: {reason['remedy']}")
    return [*lines, ""]


def _failures(summary: Mapping[str, Any]) -> list[str]:
    overall = summary["overall"]
    groups = {
        "creates refused": overall["create_errors"],
        "sandboxes failed": overall["failed_statuses"],
        "commands failed": overall["exec_errors"],
        "deletes refused": overall["delete_errors"],
        "polls failed": summary["polls_failed"],
    }
    return [
        f"{title}: " + ", ".join(f"{count} x {name}" for name, count in counts.items())
        for title, counts in groups.items()
        if counts
    ]


def removal(run_id: str, results: Path, *, local: bool) -> str:
    """How to remove what a run left."""
    if local:
        return "they end with the run's own local server"
    folder = "" if results == Path("results") else f" --results-dir {shlex.quote(str(results))}"
    return f"remove them with: python -m treadstone_user sweep {run_id}{folder}"


def render_sweep(runs: Sequence[tuple[str, int, str]]) -> str:
    """What runs have on a server: run id, number of sandboxes, and a note."""
    table = _table("", "run", ["sandboxes"])
    table.add_column("")
    for run_id, sandboxes, note in runs:
        table.add_row(run_id, str(sandboxes), note)
    return _text(table)


def render_cleanup(cleanup: Mapping[str, Any], *, label: str, remedy: str) -> str:
    """How the clean-up went: what is left, and how to remove it."""
    if cleanup.get("reason") == NOTHING_MADE:
        return f"no clean-up: {NOTHING_MADE}"
    if not cleanup["ran"]:
        reason = cleanup["reason"]
        return f"no clean-up ({reason}): the run's sandboxes stay, labelled {label}\n{remedy}"
    if cleanup["verified"]:
        lines = [f"clean-up: all {cleanup['found']} sandboxes found are gone, none left"]
    else:
        lines = [f"clean-up NOT complete: {cleanup['problem']}"]
        lines += [f"  {sandbox_id}: {reason}" for sandbox_id, reason in cleanup.get("remaining", {}).items()]
        if cleanup.get("unanswered_creates"):
            lines.append(f"  {cleanup['unanswered_creates']} creates without an answer may have made more")
        lines.append(remedy)
    for sandbox_id, reason in cleanup.get("kept", {}).items():
        lines.append(f"left alone: {sandbox_id} carries {label}, but is {reason}")
    return "\n".join(lines)
