"""What holds for all tests."""

from __future__ import annotations

import os

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Keep the tests apart from whatever the machine's user has set."""
    for name in [name for name in os.environ if name.startswith(("TREADSTONE_", "LOCUST_"))]:
        del os.environ[name]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> pytest.TestReport:  # type: ignore[misc]
    """In CI a test that skips has failed: something was not installed."""
    report: pytest.TestReport = yield
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
    return report
