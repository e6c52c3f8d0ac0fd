"""The words of a load test: what a sandbox says of itself."""

from __future__ import annotations

import pytest

from treadstone_user.model import Sandbox

# fmt: off
SERVER_TIMES: list[tuple[str, str | None, str | None, float | None]] = [
    # what it proves,             created_at,                     started_at,                     ms
    ("as the server writes them", "2026-01-01T00:00:01.25+00:00", "2026-01-01T00:00:09.5+00:00",  8250.0),
    ("a zone by its letter",      "2026-01-01T00:00:01Z",         "2026-01-01T00:00:02Z",         1000.0),
    ("two zones",                 "2026-01-01T00:00:01Z",         "2026-01-01T02:00:01.5+02:00",  500.0),
    ("no zone at all",            "2026-01-01T00:00:01",          "2026-01-01T00:00:03",          2000.0),
    ("one with a fraction",       "2026-01-01T00:00:01Z",         "2026-01-01T00:00:01.5Z",       500.0),
    ("a microsecond",             "2026-01-01T00:00:01.000001Z",  "2026-01-01T00:00:01.000002Z",  0.001),
    ("ten millionths",            "2026-01-01T00:00:01.1234567Z", "2026-01-01T00:00:02.1234567Z", 1000.0),
    ("over midnight",             "2026-12-31T23:59:59.9Z",       "2027-01-01T00:00:00.1Z",       200.0),
    ("days",                      "2026-01-01T00:00:00Z",         "2026-01-03T00:00:00Z",         1728e5),
    ("ready at once",             "2026-01-01T00:00:01Z",         "2026-01-01T00:00:01Z",         0.0),
    ("not ready yet",             "2026-01-01T00:00:01Z",         None,                           None),
    ("created never",             None,                           "2026-01-01T00:00:01Z",         None),
    ("neither",                   None,                           None,                           None),
    ("only one has a zone",       "2026-01-01T00:00:01",          "2026-01-01T00:00:02Z",         None),
    ("a word",                    "2026-01-01T00:00:01Z",         "soon",                         None),
    ("nothing at all",            "",                             "2026-01-01T00:00:01Z",         None),
    ("no such day",               "2026-02-30T00:00:01Z",         "2026-03-01T00:00:01Z",         None),
    ("Unix seconds",              "1767225601",                   "1767225602",                   None),
]
# fmt: on


@pytest.mark.parametrize(
    ("created", "started", "ms"), [row[1:] for row in SERVER_TIMES], ids=[row[0] for row in SERVER_TIMES]
)
def test_the_servers_own_time_to_ready(created: str | None, started: str | None, ms: float | None) -> None:
    """It is the difference of the server's two times, and nothing where they do not tell it."""
    sandbox = Sandbox(id="a", template="t", status="ready", created_at=created, started_at=started)
    assert sandbox.server_ready_ms == ms


def test_a_servers_wrong_clock_changes_no_duration() -> None:
    """A clock that is ahead is ahead in both times."""
    ahead = Sandbox("a", "t", "ready", created_at="2031-01-01T00:00:37Z", started_at="2031-01-01T00:00:39Z")
    assert ahead.server_ready_ms == 2000
