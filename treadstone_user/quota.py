"""What accounts' plans allow: which account takes which task, and what the server will refuse."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from treadstone_user.model import Task, Variant


@dataclass(frozen=True, slots=True)
class Allowance:
    """What an account's plan allows, and how much of it is in use.

    max_running, running: sandboxes that are being created or ready, at most and now.
    max_duration_sec: the longest `auto_stop_interval`, 0 for no limit.
    storage_left_gib, compute_left: of persistent storage (GiB) and of compute units (CU-hours).
    """

    tier: str
    max_running: int
    running: int
    templates: tuple[str, ...]
    max_duration_sec: int
    storage_left_gib: float
    compute_left: float


@dataclass(frozen=True, slots=True)
class Refusal:
    """A create that a plan does not allow: the status that the server answers, and why."""

    status: int
    reason: str


@dataclass(frozen=True, slots=True)
class Spread:
    """Tasks with their accounts, and how many of them the server will refuse, by reason."""

    tasks: tuple[Task, ...]
    refused: Mapping[Refusal, int]

    def by_status(self) -> dict[str, int]:
        """How many creates will be refused with each HTTP status."""
        found: Counter[str] = Counter()
        for refusal, count in self.refused.items():
            found[str(refusal.status)] += count
        return dict(sorted(found.items()))

    def sentences(self) -> list[str]:
        """The foretold refusals for people, a line each."""
        return [
            f"{count} of {len(self.tasks)} creates will be refused with {refusal.status}: {refusal.reason}"
            for refusal, count in sorted(self.refused.items(), key=lambda item: item[0].status)
        ]


def storage_gib(variant: Variant) -> int:
    """How much persistent storage (GiB) a sandbox of this kind takes."""
    return int((variant.storage_size or "0Gi").removesuffix("Gi")) if variant.persist else 0


def foretell(variant: Variant, allowance: Allowance, *, auto_stop_interval: int) -> Refusal | None:
    """What the server will say to a create of this kind; None where it will make the sandbox.

    The checks and their order are those of Treadstone's `SandboxService.create` (0.9): template,
    compute, running at once, storage, duration.
    auto_stop_interval: minutes, 0 for never.
    """
    tier = f"the {allowance.tier} plan"
    if variant.template not in allowance.templates:
        allowed = ", ".join(allowance.templates) or "none"
        return Refusal(403, f"{tier} does not offer {variant.template} (it does: {allowed})")
    if allowance.compute_left <= 0:
        return Refusal(402, f"no compute credit is left on {tier}")
    if allowance.running >= allowance.max_running:
        return Refusal(429, f"{tier} allows {allowance.max_running} running at once")
    if variant.persist and storage_gib(variant) > allowance.storage_left_gib:
        return Refusal(402, f"{allowance.storage_left_gib:g} GiB of storage are left on {tier}")
    if allowance.max_duration_sec and not 0 < auto_stop_interval * 60 <= allowance.max_duration_sec:
        longest = allowance.max_duration_sec // 60
        asked = f"{auto_stop_interval} min" if auto_stop_interval else "never"
        return Refusal(400, f"{tier} wants auto-stop within {longest} min, and the scenario says {asked}")
    return None


def spread(
    tasks: Sequence[Task], allowances: Mapping[str | None, Allowance], *, auto_stop_interval: int
) -> Spread:
    """Give each task an account, round robin, none beyond what its plan allows while another has room.

    A task that no account has room for goes round robin all the same, and is foretold as refused.

    allowances: by account, of one at least; what is running already counts. Nothing is taken to end
        before the last create, as a run deletes at its end.
    """
    left = dict(allowances)
    everyone, open_ones = deque(left), deque(left)
    full: dict[Variant, Refusal] = {}
    """Kinds that nobody takes any more: what an account has left only shrinks."""
    placed: list[Task] = []
    refused: Counter[Refusal] = Counter()
    for task in tasks:
        account = (
            None if task.variant in full else _find_room(task.variant, left, open_ones, auto_stop_interval)
        )
        if account is not None:
            taken = left[account[0]]
            left[account[0]] = replace(
                taken,
                running=taken.running + 1,
                storage_left_gib=taken.storage_left_gib - storage_gib(task.variant),
            )
            placed.append(replace(task, account=account[0]))
            continue
        found = foretell(task.variant, left[everyone[0]], auto_stop_interval=auto_stop_interval)
        assert found is not None, "no account has room, so this one has none"
        refused[full.setdefault(task.variant, found)] += 1
        placed.append(replace(task, account=everyone[0]))
        everyone.rotate(-1)
    return Spread(tuple(placed), refused)


def _find_room(
    variant: Variant,
    left: Mapping[str | None, Allowance],
    open_ones: deque[str | None],
    auto_stop_interval: int,
) -> tuple[str | None] | None:
    """The next account that may make a sandbox of this kind, in a tuple of one, as None names one, too.

    Accounts that can make no sandbox of any kind leave `open_ones`.
    """
    for _ in range(len(open_ones)):
        account = open_ones.popleft()
        allowance = left[account]
        if allowance.running < allowance.max_running and allowance.compute_left > 0:
            open_ones.append(account)
        if foretell(variant, allowance, auto_stop_interval=auto_stop_interval) is None:
            return (account,)
    return None


def foretell_platform(
    tasks: Sequence[Task], limits: Mapping[str, Any], usage: Mapping[str, Any]
) -> list[tuple[Refusal, int]]:
    """What the platform's own caps will refuse with 503, and how many creates.

    limits, usage: `config` and `usage` of ``GET /v1/admin/platform-limits``; null is no cap.
    """
    found = []
    cap = limits.get("max_total_sandboxes")
    if cap is not None:
        beyond = usage.get("total_sandboxes", 0) + len(tasks) - cap
        if beyond > 0:
            found.append(
                (Refusal(503, f"the platform is capped at {cap} sandboxes"), min(beyond, len(tasks)))
            )
    cap = limits.get("max_total_storage_gib")
    if cap is not None:
        room = cap - usage.get("total_storage_gib", 0)
        beyond = 0
        for task in tasks:
            size = storage_gib(task.variant)
            if size > room:
                beyond += 1
            else:
                room -= size
        if beyond:
            found.append((Refusal(503, f"the platform is capped at {cap} GiB of storage"), beyond))
    return found
