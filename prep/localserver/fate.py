"""What is in store for each sandbox and each create, drawn as the profile says."""

from __future__ import annotations

import math

from prep.localserver.errors import CREATE_REFUSALS, ApiError
from prep.localserver.profile import Profile
from prep.localserver.sandbox import Provision


class Fate:
    """Draws from streams of random numbers, one for each clause, so that none shifts another's draws."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._ready = profile.draws("ready")
        self._error = profile.draws("error")
        self._never = profile.draws("never")
        self._gone = profile.draws("gone")
        self._proxy = profile.draws("proxy")
        self._create = profile.draws("create")

    def refusal(self, template: str, name: str, running: int) -> ApiError | None:
        """Draw whether a create is refused, and with what; None lets it through."""
        point = self._create.random()
        for status, share in self._profile.create:
            if point < share:
                return CREATE_REFUSALS[status](template, name, running)
            point -= share
        return None

    def provision(self, now: float) -> Provision:
        """Draw how an attempt goes that begins now, in Unix seconds."""
        # Everything is drawn, also what then does not happen: the next sandbox's draws stay where they are.
        settles = now + self._profile.ready.sample(self._ready)
        fails = self._error.random() < self._profile.error
        is_stuck = self._never.random() < self._profile.never
        reached = settles + self._profile.proxy.sample(self._proxy)
        if is_stuck:
            return Provision.never(now)
        return Provision(now, settles, fails, math.inf if fails else reached)

    def gone(self, now: float) -> float:
        """Draw when a sandbox is gone that is deleted now, both in Unix seconds."""
        return now + self._profile.gone.sample(self._gone)
