"""Whether a run measured the server, or its own client: pure judgement of figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

SERVER_MEASURED = "server_measured"
CLIENT_SATURATED = "client_saturated"
NOT_JUDGED = "not_judged"

STALL_MS = 100.0
"""An event loop that stood still for so long shows in the latencies of whoever waited then."""

_STARTUP_SHARE = 1 / 3
_LAG_P99_MS = 20.0
_STALLED_SHARE = 0.001
_LONG_STALL_MS = 150.0  # a stall of 200 ms is named in a run of any length; its first tick may miss 20 ms
_BUSY = 0.9
_BLOCKED_SHARE = 1 / 4
_LATE_POLLS = 1.5
_PAST_THE_CLI = "usage"  # which it has no command for

Reason = dict[str, Any]


def judge_client(
    overall: Mapping[str, Any], client: Mapping[str, Any], queries: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """The verdict on who was measured.

    overall: the bucket of all sandboxes. client: what the client saw of itself. queries: what was asked.
    Returns `status`, and the `reasons` why the client explains a figure: each with its `code`,
    the `figures` it explains, a sentence, and the remedy.
    """
    if "loop_lag_ms" not in client:  # the run was killed before it could tell
        return {"status": NOT_JUDGED, "reasons": []}
    reasons = [
        *_lost_parent(client),
        *_startup(overall, client),
        *_startup_of_queries(queries, client),
        *_places(client),
        *_polls(client),
        *_event_loop(client),
        *_cpu(client),
    ]
    return {"status": CLIENT_SATURATED if reasons else SERVER_MEASURED, "reasons": reasons}


def pool_clients(clients: Sequence[tuple[str, str, Mapping[str, Any]]]) -> dict[str, Any]:
    """What all workers together saw of themselves: the worst of each figure, as the worst explains most.

    clients: each worker's name, its machine, and its figures. CPU of one machine adds up. What each
    one saw stands in `workers`.
    """
    if not clients:
        return {}
    figures = [client for _, _, client in clients]
    machines: dict[str, list[Mapping[str, Any]]] = {}
    for _, machine, client in clients:
        machines.setdefault(machine, []).append(client)
    pooled: dict[str, Any] = {name: _worst([client.get(name) for client in figures]) for name in figures[0]}
    busiest = (sum(one["cpu_of_all_cores"] for one in group) for group in machines.values())
    return pooled | {
        "cores": sum(group[0]["cores"] for group in machines.values()),
        "cpu_sec": round(sum(client["cpu_sec"] for client in figures), 2),
        "cpu_cli_sec": round(sum(client["cpu_cli_sec"] for client in figures), 2),
        "cpu_of_all_cores": round(max(busiest), 3),
        "workers": {name: client for name, _, client in clients},
    }


def _worst(values: Sequence[Any]) -> Any:
    """The largest of some figures; of distributions, the largest of each of their figures."""
    known = [value for value in values if value is not None]
    if not known or not isinstance(known[0], Mapping):
        return max(known, default=None)
    return {
        name: sorted({word for value in known for word in value[name]})
        if name == "unsupported"
        else _worst([value[name] for value in known])
        for name in known[0]
    }


def startup_share(overall: Mapping[str, Any], client: Mapping[str, Any]) -> float | None:
    """Which part of the median create latency the CLI's start-up explains, from 0 to 1."""
    return _share(client.get("cli_startup_ms"), overall["create_latency_ms"]["p50"])


def _share(startup: float | None, median: float | None) -> float | None:
    return min(startup / median, 1.0) if startup and median else None


def _lost_parent(client: Mapping[str, Any]) -> Iterator[Reason]:
    if client.get("warm_cli_lost"):
        yield {
            "code": "warm_cli_lost",
            "figures": ["create_latency_ms", "queue_ms"],
            "text": "the warm CLI was lost on the way: some calls skip the CLI's start-up and others do not",
            "remedy": "run it again, or --transport http",
        }


def _startup(overall: Mapping[str, Any], client: Mapping[str, Any]) -> Iterator[Reason]:
    share = startup_share(overall, client)
    if share is None or share < _STARTUP_SHARE:
        return
    startup, create = client["cli_startup_ms"], overall["create_latency_ms"]["p50"]
    yield {
        "code": "cli_startup",
        "figures": ["create_latency_ms"],
        "text": f"{share:.0%} of the p50 ({create:.0f} ms) is the CLI's start ({startup:.0f} ms)",
        "remedy": "--transport http measures the server without the CLI",
    }


def _startup_of_queries(
    queries: Mapping[str, Mapping[str, Any]], client: Mapping[str, Any]
) -> Iterator[Reason]:
    startup = client.get("cli_startup_ms")
    shares = {
        f"queries.{query}.latency_ms": _share(startup, found["latency_ms"]["p50"])
        for query, found in queries.items()
        if query != _PAST_THE_CLI
    }
    large = {name: share for name, share in shares.items() if share is not None and share >= _STARTUP_SHARE}
    if not large:
        return
    yield {
        "code": "cli_startup",
        "figures": list(large),
        "text": f"{min(large.values()):.0%} or more of each p50 is the CLI's start ({startup:.0f} ms)",
        "remedy": "--transport http measures the server without the CLI",
    }


def _places(client: Mapping[str, Any]) -> Iterator[Reason]:
    blocked, spread = client.get("start_blocked_sec"), client.get("burst_spread_sec")
    if not blocked or not spread or blocked / spread < _BLOCKED_SHARE:
        return
    rate = client.get("creates_per_sec") or 0
    yield {
        "code": "cli_places",
        "figures": ["create_latency_ms", "queue_ms", "burst_spread_sec"],
        "text": f"creates went out at {rate:.1f} a second, as fast as this machine starts the CLI",
        "remedy": "--transport http, or more machines",
    }


def _polls(client: Mapping[str, Any]) -> Iterator[Reason]:
    period, wanted = client.get("poll_period_ms") or {}, client.get("poll_interval_ms")
    median = period.get("p50")
    if not median or not wanted or median < _LATE_POLLS * wanted:
        return
    yield {
        "code": "late_polls",
        "figures": ["ready_latency_ms"],
        "text": f"polls began {median / 1000:.1f} s apart (p50) where {wanted / 1000:g} s was wanted",
        "remedy": "a longer poll_interval_sec, or --transport http",
    }


def _event_loop(client: Mapping[str, Any]) -> Iterator[Reason]:
    lag = client.get("loop_lag_ms") or {}
    longest, p99 = lag.get("max") or 0.0, lag.get("p99") or 0.0
    stalled = client.get("stalled_share") or 0.0
    if longest < _LONG_STALL_MS and stalled < _STALLED_SHARE and p99 < _LAG_P99_MS:
        return
    yield {
        "code": "event_loop",
        "figures": ["create_latency_ms", "ready_latency_ms"],
        "text": f"the client's event loop stood still for up to {longest:.0f} ms (p99 {p99:.0f} ms)",
        "remedy": "fewer users, a quieter machine, or more workers",
    }


def _cpu(client: Mapping[str, Any]) -> Iterator[Reason]:
    own, all_cores = client.get("cpu_of_one_core") or 0.0, client.get("cpu_of_all_cores") or 0.0
    if own < _BUSY and all_cores < _BUSY:
        return
    yield {
        "code": "cpu",
        "figures": ["create_latency_ms", "ready_latency_ms", "burst_spread_sec"],
        "text": f"Locust used {own:.0%} of one core, and with its CLI calls {all_cores:.0%} of all cores",
        "remedy": "--transport http, fewer at once, or more workers",
    }
