"""Queries: what clients ask of the control plane beside creating and deleting."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from typing import Any

from treadstone_user.access import Access, Accesses
from treadstone_user.eventlog import EventLog
from treadstone_user.model import EventKind
from treadstone_user.sections import Query, QueryRules
from treadstone_user.steps import Report, Step, describe_failure
from treadstone_user.stock import Stock, Stocked
from treadstone_user.transports.base import CallError, Reply
from treadstone_user.trouble import Trouble

_LIST_LIMIT = 100
"""Rows of a page: the API's own default."""

REQUEST_TYPE = "query"


class Queries:
    """Asks one thing after the other, each of another account, and records each answer.

    trouble: says how much longer to pause after a failure.
    pause: sleeps so many seconds, or to the run's end.
    """

    def __init__(
        self,
        *,
        accesses: Accesses,
        rules: QueryRules,
        stock: Stock,
        log: EventLog,
        report: Report,
        trouble: Trouble,
        pause: Callable[[float], None],
    ) -> None:
        self._accounts = itertools.cycle(accesses)
        self._accesses = accesses
        self._rules = rules
        self._stock = stock
        self._log = log
        self._report = report
        self._trouble = trouble
        self._pause = pause
        self._random = random.Random()

    def ask(self) -> None:
        """Ask one thing, as often as the mix says, and pause."""
        query, sandbox = self._choose(), None
        if query is Query.GET:
            sandbox = self._stock.pick()
            if sandbox is None:  # nothing is there to be got: the list says so
                query = Query.LIST
        access = next(self._accounts) if sandbox is None else self._accesses[sandbox.account]
        self._pause(max(self._rules.pause_sec, self._ask(query, access, sandbox)))

    def _choose(self) -> Query:
        mix = self._rules.mix
        return self._random.choices(list(mix), weights=list(mix.values()))[0]

    def _ask(self, query: Query, access: Access, sandbox: Stocked | None) -> float:
        about: dict[str, Any] = {"query": str(query)}
        if access.account is not None:
            about["account"] = access.account
        if sandbox is not None:
            about["sandbox_id"] = sandbox.id
        sent = time.monotonic()
        try:
            timing = _call(query, access, sandbox)().timing
        except CallError as error:
            self._log.write(EventKind.QUERY_ERR, **about, **describe_failure(error))
            self._report(Step(str(query), error.timing.latency_ms, error.cause, REQUEST_TYPE))
            return self._trouble.failed(error, sent=sent)
        self._trouble.answered()
        self._log.write(EventKind.QUERY_OK, **about, latency_ms=timing.latency_ms, queue_ms=timing.queue_ms)
        self._report(Step(str(query), timing.latency_ms, request_type=REQUEST_TYPE))
        return 0.0


def _call(query: Query, access: Access, sandbox: Stocked | None) -> Callable[[], Reply[Any]]:
    transport = access.transport
    calls: dict[Query, Callable[[], Reply[Any]]] = {
        Query.LIST: lambda: transport.list_page(limit=_LIST_LIMIT),
        Query.GET: lambda: transport.get(sandbox.id if sandbox is not None else ""),
        Query.WHOAMI: transport.whoami,
        Query.TEMPLATES: transport.templates,
        Query.USAGE: access.http.usage,
    }
    return calls[query]
