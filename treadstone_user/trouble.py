"""Calls that get no answer, or none but 401: users go slower, and see when going on makes no sense."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from treadstone_user.transports.base import AuthError, CallError, ConnectError, RequestTimeout

HOPELESS_SEC = 120.0
"""A server that has answered nothing for so long is gone for good."""

REFUSALS = 3
"""So many calls in a row that are answered 401: the credential has expired."""

_SHORTEST_SEC = 0.5
_LONGEST_SEC = 3.0


class Trouble:
    """What the queries and streams of this process meet, whoever of its users sends them.

    on_hopeless: told, with the reason, when going on makes no sense any more.
    """

    def __init__(self, on_hopeless: Callable[[str], None]) -> None:
        self._on_hopeless = on_hopeless
        self._since: float | None = None
        self._refused = 0
        self._refused_at = 0.0

    def answered(self) -> None:
        """Take note of an answer other than 401."""
        self._since, self._refused = None, 0

    def failed(self, error: CallError, *, sent: float) -> float:
        """Take note of a failure, and tell for how many seconds its user had better pause.

        sent: when the call was (monotonic s). The pause is about as long as the trouble has lasted, so
        it doubles from one to the next however many users there are.
        """
        if not isinstance(error, AuthError | ConnectError | RequestTimeout):
            self.answered()
            return 0.0
        now = time.monotonic()
        if not isinstance(error, AuthError):
            self._refused = 0
        elif sent >= self._refused_at:  # those that were on their way at once count once
            self._refused, self._refused_at = self._refused + 1, now
        self._since = self._since or now
        if self._refused >= REFUSALS:
            self._on_hopeless(
                f"the server refuses the credential of a query or stream ({error}): the run ends"
            )
        elif now - self._since > HOPELESS_SEC:
            self._on_hopeless(
                f"the server has answered no query or stream for {HOPELESS_SEC:g} s: the run ends"
            )
        return min(_LONGEST_SEC, max(_SHORTEST_SEC, now - self._since)) * random.uniform(0.5, 1.5)
