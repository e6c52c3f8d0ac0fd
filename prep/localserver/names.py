"""Names for sandboxes whose creator chose none, such as `sb-jolly-nebula-ccbe`."""

from __future__ import annotations

import random
from collections.abc import Container

_MOODS = (
    "bold",
    "brave",
    "calm",
    "clever",
    "daring",
    "gentle",
    "jolly",
    "keen",
    "lucky",
    "merry",
    "proud",
    "swift",
)
_THINGS = (
    "brook",
    "canyon",
    "cloud",
    "comet",
    "forest",
    "harbor",
    "meadow",
    "nebula",
    "ocean",
    "river",
    "summit",
)


class Namer:
    """Makes names from a stream of random numbers."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def name(self, taken: Container[str]) -> str:
        """Make a name that is not taken.

        The real server does not look, and answers 409 in the rare case. Here a 409 comes only when the
        profile asks for it, so that counts can be relied on.
        """
        while True:
            mood, thing = self._rng.choice(_MOODS), self._rng.choice(_THINGS)
            name = f"sb-{mood}-{thing}-{self._rng.getrandbits(16):04x}"
            if name not in taken:
                return name
