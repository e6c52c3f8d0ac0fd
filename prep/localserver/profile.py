"""The profile: a short string that says how the local server behaves.

Clauses are separated by white space and each may stand once, in any order:

    ready=lognormal(2.0,0.4) error=2% never=5% gone=uniform(0.1,0.5) create=429:5%,500:1%
    latency=fixed(0.01) label_filter=on foreign=1500 clock=+37 seed=7

on a bad day:

    list=500:5% get=500:5% delete=500:10%,429:5% lost=5% lost_delete=1% garble=cut:2%,html:2%
    expire=20 down=5+30 down_delete=0+inf

with plans that are enforced, and with caps on the whole platform:

    plans=pro credit=10 max_users=50 max_sandboxes=500 max_storage=1000 mail=smtp

and in the sandboxes:

    proxy=uniform(0,2) exec=fixed(0.01) exec_status=500:5% stream=0.3+50x0.02 chunks=mixed breaks=5%

Distributions give seconds: `lognormal(median,sigma)`, `uniform(a,b)`, `exponential(mean)`, `fixed(x)`,
`mix(share,rare,usual)`, or a bare number. A stream is `FIRST+COUNTxGAP`: its first output after so many
seconds, so many outputs, so many seconds from one to the next. A clause is a row in `CLAUSES` and a field of
`Profile`: that is all that a new one takes.
"""

from __future__ import annotations

import difflib
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from prep.localserver import clauses as read
from prep.localserver.errors import CREATE_REFUSALS
from prep.localserver.plans import TIERS
from prep.localserver.timing import Distribution, Rhythm

MAX_FOREIGN = 100_000
MAX_CAP = 1_000_000_000
GARBLES = ("cut", "json", "html", "page", "big", "slow", "reset")
"""Half a body; half a JSON; a proxy's page with 502, and with 200; 10 MB; a trickle; a connection reset."""
CHUNKS = ("whole", "mixed", "crlf")
"""An event a write; events cut and joined at random, with comments and all line ends; CR LF as line end."""
MAILS = ("memory", "smtp")
"""Mail that an admin can read back, and mail that is really sent."""

_STATUSES = (404, 409, 429, 500, 502, 503)


_USUALLY_READY = Distribution("lognormal", (2.0, 0.4))
_USUALLY_GONE = Distribution("uniform", (0.1, 0.5))
_AT_ONCE = Distribution("fixed", (0.0,))
_QUICKLY = Distribution("fixed", (0.01,))
_SHORT_STREAM = Rhythm(0.05, 5, 0.02)


class ProfileError(ValueError):
    """A profile that cannot be used, with every problem in it."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True, kw_only=True)
class Profile:
    """How the local server behaves. Times are distributions of seconds, shares are 0 to 1."""

    ready: Distribution = _USUALLY_READY
    """From create to ready (or to error)."""
    error: float = 0.0
    """Share of sandboxes that turn error at the time they would have been ready."""
    never: float = 0.0
    """Share of sandboxes that stay creating."""
    gone: Distribution = _USUALLY_GONE
    """From delete until the sandbox is no longer there."""
    create: tuple[tuple[int, float], ...] = ()
    """HTTP statuses with which creates are refused, each with its share of the create calls."""
    latency: Distribution = _QUICKLY
    """Time that a create takes to answer."""
    label_filter: bool = False
    """Whether the list's label filter works; on the real server it answers 500."""
    foreign: int = 0
    """Ready sandboxes that are there from the start and belong to nobody's run."""
    clock: float = 0.0
    """Seconds that the server's clock is ahead of this machine's, negative if behind."""
    seed: int = 1
    list: tuple[tuple[int, float], ...] = ()
    """HTTP statuses with which lists are refused, each with its share; likewise gets and deletes."""
    get: tuple[tuple[int, float], ...] = ()
    delete: tuple[tuple[int, float], ...] = ()
    lost: float = 0.0
    """Share of creates that are carried out and never answered."""
    lost_delete: float = 0.0
    """Share of deletes that are carried out and never answered."""
    garble: tuple[tuple[str, float], ...] = ()
    """How answers to creates, gets and lists are garbled, each with its share."""
    expire: float | None = None
    """Seconds after which no credential is valid any more."""
    down: tuple[float, float] | None = None
    """Seconds from the first create until the server is away, and for how long it is."""
    down_delete: tuple[float, float] | None = None
    """The same, from the first delete."""
    plans: str | None = None
    """Tier of the account that is there from the start, all others begin as free; None enforces no plans."""
    credit: float | None = None
    """Compute-unit hours that an account has left when it is new; None for all that its tier gives."""
    max_users: int | None = None
    """Accounts that there can be on the whole server; likewise sandboxes, and GiB of their storage."""
    max_sandboxes: int | None = None
    max_storage: int | None = None
    mail: str = "memory"
    """Where the mail goes that verifies an address: one of `MAILS`."""
    proxy: Distribution = _AT_ONCE
    """From ready until the proxy reaches the sandbox."""
    exec: Distribution = _QUICKLY
    """Time that a command in a sandbox takes, where it is not streamed."""
    exec_status: tuple[tuple[int, float], ...] = ()
    """HTTP statuses with which commands are refused, each with its share."""
    stream: Rhythm = _SHORT_STREAM
    """When the outputs of a stream are sent."""
    chunks: str = "whole"
    """How the bytes of a stream are written: one of `CHUNKS`."""
    breaks: float = 0.0
    """Share of streams that are cut after half of their outputs."""

    @classmethod
    def parse(cls, text: str) -> Profile:
        """Read a profile string.

        Raises:
            ProfileError: with all problems of the string.
        """
        values: dict[str, Any] = {}
        problems: list[str] = []
        for clause in _CLAUSE.findall(text):
            name, equals, value = clause.partition("=")
            if problem := _misnamed(name, equals, values):
                problems.append(problem)
                continue
            try:
                values[name] = CLAUSES[name](value)
            except ValueError as error:
                values[name] = None  # so that a second one is still told as a duplicate
                problems.append(f"{clause}: {error}")
        if "credit" in values and "plans" not in values:
            problems.append("credit: means nothing without plans=TIER")
        if problems:
            raise ProfileError(problems)
        return cls(**values)

    def draws(self, purpose: str) -> random.Random:
        """Give the random numbers for one purpose.

        Each purpose has a stream of its own, so that adding a clause leaves the other clauses' draws alone.
        """
        return random.Random(f"{self.seed}/{purpose}")


_CLAUSE = re.compile(r"(?:[^\s(]|\([^)]*\)?)+")  # white space separates, except within parentheses


def _misnamed(name: str, equals: str, seen: Mapping[str, Any]) -> str | None:
    if name not in CLAUSES:
        close = difflib.get_close_matches(name, CLAUSES, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(CLAUSES)}"
        return f"{name}: no such clause; {hint}"
    if not equals:
        return f"{name}: write {name}=VALUE"
    if name in seen:
        return f"{name}: given more than once"
    return None


CLAUSES: Mapping[str, Callable[[str], Any]] = MappingProxyType(
    {
        "ready": read.distribution,
        "error": read.share,
        "never": read.share,
        "gone": read.distribution,
        "create": read.refusals("creates", CREATE_REFUSALS),
        "latency": read.distribution,
        "label_filter": read.switch,
        "foreign": read.up_to(MAX_FOREIGN),
        "clock": read.offset,
        "seed": read.up_to(2**53),
        "list": read.refusals("lists", _STATUSES),
        "get": read.refusals("gets", _STATUSES),
        "delete": read.refusals("deletes", _STATUSES),
        "lost": read.share,
        "lost_delete": read.share,
        "garble": read.shares(
            "answers are not garbled by", {kind: kind for kind in GARBLES}, "KIND:P%, such as cut:5%"
        ),
        "expire": read.seconds,
        "down": read.window,
        "down_delete": read.window,
        "plans": read.one_of(*TIERS),
        "credit": lambda text: read.number(text, at_most=MAX_CAP),
        "max_users": read.up_to(MAX_CAP),
        "max_sandboxes": read.up_to(MAX_CAP),
        "max_storage": read.up_to(MAX_CAP),
        "mail": read.one_of(*MAILS),
        "proxy": read.distribution,
        "exec": read.distribution,
        "exec_status": read.refusals("commands", _STATUSES),
        "stream": read.rhythm,
        "chunks": read.one_of(*CHUNKS),
        "breaks": read.share,
    }
)
"""Each clause's name, which is also its field in `Profile`, and how its value is read (ValueError if not)."""
