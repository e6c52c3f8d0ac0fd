"""How long to wait before trying again: pure arithmetic, the caller sleeps."""

from __future__ import annotations


def backoff(attempt: int, *, first_sec: float = 0.5, longest_sec: float = 10.0) -> float:
    """Seconds to wait after failed attempt number `attempt` (from 1): doubled each time, capped."""
    return float(min(longest_sec, first_sec * 2.0 ** min(attempt - 1, 30)))
