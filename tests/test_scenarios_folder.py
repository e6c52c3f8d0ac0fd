"""The scenarios that are shipped hold what the README says of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from treadstone_user.scenario import find_scenario, load_scenario

FOLDER = Path(__file__).parent.parent / "scenarios"

TSM = ("tiny", "small", "medium")
SIZES = ("5Gi", "10Gi", "20Gi")

SHIPPED = {
    # name: (concurrency, ready timeout in s, sandboxes of each template and storage size)
    "pilot_stateless": (5, 600, {("tiny", None): 15}),
    "pilot_mixed": (5, 600, {("tiny", None): 6}),
    "stateless_burst": (10, 900, {("tiny", None): 100}),
    "stateless_burst_500": (20, 900, {("tiny", None): 500}),
    "stateful_burst": (5, 1800, {("large", "5Gi"): 20}),
    "mixed_burst": (10, 1200, {("tiny", None): 70, ("medium", "5Gi"): 30}),
    "mixed_templates_180": (
        15,
        1200,
        {("small", None): 50, ("tiny", None): 50, ("medium", "5Gi"): 50, ("large", "5Gi"): 30},
    ),
    "mixed_tiny_small_medium_120": (
        15,
        1200,
        {(template, None): 20 for template in TSM}
        | {(template, size): count for template, count in zip(TSM, (7, 7, 6), strict=True) for size in SIZES},
    ),
}
TOTALS = {
    "pilot_stateless": 15,
    "pilot_mixed": 6,
    "stateless_burst": 100,
    "stateless_burst_500": 500,
    "stateful_burst": 20,
    "mixed_burst": 100,
    "mixed_templates_180": 180,
    "mixed_tiny_small_medium_120": 120,
}


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_scenario_holds_what_is_said_of_it(name: str) -> None:
    """Its counts, total, concurrency and timeout, and a poll every second."""
    concurrency, timeout, counts = SHIPPED[name]
    scenario = load_scenario(find_scenario(name, folder=FOLDER))
    held: Counter[tuple[str, str | None]] = Counter()
    for variant in scenario.matrix:
        held[variant.template.removeprefix("aio-sandbox-"), variant.storage_size] += variant.count
    assert held == counts
    assert scenario.total == TOTALS[name]
    assert (scenario.concurrency, scenario.ready_timeout_sec) == (concurrency, timeout)
    assert scenario.poll_interval_sec == 1
    assert all(variant.template.startswith("aio-sandbox-") for variant in scenario.matrix)
    assert scenario.cleanup_after_run is None


def test_the_folder_holds_no_other_files() -> None:
    """Every file of the folder is one of the shipped scenarios."""
    assert {file.name for file in FOLDER.iterdir()} == {f"{name}.yaml" for name in SHIPPED}


def test_every_scenario_says_what_question_it_answers() -> None:
    """A comment at the top asks it."""
    for file in FOLDER.iterdir():
        text = file.read_text()
        assert text.startswith("# ")
        assert "?" in text.partition("name:")[0], file.name
