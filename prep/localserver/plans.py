"""Plans: what each tier allows an account, and what a create or a start is refused for.

Without the clause `plans` nothing is enforced, and everybody is told a plan that is in nobody's way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any

from prep.localserver.catalogue import SMALLEST_TEMPLATE, TEMPLATES_BY_SIZE, storage_gib
from prep.localserver.errors import (
    compute_quota_exceeded,
    concurrent_limit_exceeded,
    duration_exceeded,
    invalid,
    not_found,
    storage_quota_exceeded,
    template_not_allowed,
)
from prep.localserver.sandbox import SandboxSpec

MAX_CONCURRENT_RUNNING = 10_000
"""Told where plans are not enforced: a local server shall not be in the way of a burst."""


@dataclass(frozen=True)
class Limits:
    """What a plan allows, by the API's names, which are also the names of overrides.

    Compute is in compute-unit hours a month, a duration of 0 is without limit.
    """

    compute_units_monthly_limit: float
    storage_capacity_limit_gib: int
    max_concurrent_running: int
    max_sandbox_duration_seconds: int
    allowed_templates: tuple[str, ...]
    grace_period_seconds: int


TIERS: Mapping[str, Limits] = MappingProxyType(
    {
        "free": Limits(10.0, 0, 1, 7200, (SMALLEST_TEMPLATE,), 900),
        "pro": Limits(180.0, 20, 5, 0, TEMPLATES_BY_SIZE[:3], 7200),
        "ultra": Limits(480.0, 60, 15, 0, TEMPLATES_BY_SIZE[:3], 21_600),
        "custom": Limits(1800.0, 200, 50, 0, TEMPLATES_BY_SIZE, 86_400),
    }
)
OVERRIDES = tuple(limit.name for limit in fields(Limits))

_NOBODYS_WAY = replace(
    TIERS["custom"], storage_capacity_limit_gib=100_000, max_concurrent_running=MAX_CONCURRENT_RUNNING
)
_KINDS: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(OVERRIDES, (int,)),
    "compute_units_monthly_limit": (int, float),
    "allowed_templates": (list,),
}


@dataclass(kw_only=True)
class Plan:
    """An account's plan. `used` and `extra` are compute-unit hours, times are Unix seconds."""

    tier: str
    limits: Limits
    created: float
    updated: float
    used: float = 0.0
    extra: float = 0.0
    """Granted on top of the month's."""
    overrides: dict[str, Any] | None = None

    @property
    def compute_left(self) -> float:
        """Compute-unit hours that are left."""
        return self.limits.compute_units_monthly_limit - self.used + self.extra

    def check_start(self, template: str, auto_stop_interval: int, *, running: int) -> None:
        """Refuse to start a sandbox that the plan does not allow beside the `running` ones.

        Raises:
            ApiError: 403, 402, 429 or 400, whichever the real server finds first.
        """
        self._check_running(template, running)
        self._check_duration(auto_stop_interval)

    def check_create(self, spec: SandboxSpec, *, running: int, stored_gib: int) -> None:
        """Refuse to create a sandbox that the plan does not allow beside what there is.

        Raises:
            ApiError: 403, 402, 429, 402 for storage or 400, whichever the real server finds first.
        """
        self._check_running(spec.template, running)
        wanted, quota = storage_gib(spec.storage_size), self.limits.storage_capacity_limit_gib
        if spec.persist and stored_gib + wanted > quota:
            raise storage_quota_exceeded(stored_gib, wanted, quota)
        self._check_duration(spec.auto_stop_interval)

    def _check_running(self, template: str, running: int) -> None:
        limits = self.limits
        if template not in limits.allowed_templates:
            raise template_not_allowed(self.tier, template, limits.allowed_templates)
        if self.compute_left <= 0:
            raise compute_quota_exceeded(self.used, limits.compute_units_monthly_limit, self.extra)
        if running >= limits.max_concurrent_running:
            raise concurrent_limit_exceeded(running, limits.max_concurrent_running)

    def _check_duration(self, auto_stop_interval: int) -> None:
        longest = self.limits.max_sandbox_duration_seconds
        if longest > 0 and (auto_stop_interval == 0 or auto_stop_interval * 60 > longest):
            raise duration_exceeded(self.tier, longest)


class Plans:
    """The plans of all accounts; one that nobody has asked for is made when somebody does.

    Args:
        clock: tells the time in Unix seconds.
        enforced: whether a plan refuses anything.
        credit: compute-unit hours that a new plan has left; None for all of its tier's.
    """

    def __init__(
        self, clock: Callable[[], float], *, enforced: bool = False, credit: float | None = None
    ) -> None:
        self._clock = clock
        self._credit = credit
        self.enforced = enforced
        self._plans: dict[str, Plan] = {}

    def of(self, account_id: str) -> Plan:
        """Give an account's plan."""
        if account_id not in self._plans:
            self._plans[account_id] = self._new(account_id)
        return self._plans[account_id]

    def change(self, account_id: str, tier: str | None, overrides: Mapping[str, Any] | None) -> Plan:
        """Move an account to a tier, with that tier's limits, and then override some of them.

        Raises:
            ApiError: 404 for a tier that there is not, 422 for an override that makes no sense; nothing is
                changed then.
        """
        plan = self.of(account_id)
        limits = plan.limits
        if tier is not None:
            if tier not in TIERS:
                raise not_found(f"TierTemplate '{tier}' not found.")
            limits = TIERS[tier]
        limits = _overridden(limits, overrides or {})
        if plan.limits is _NOBODYS_WAY:
            plan.overrides = None  # nobody has made them
        # As the real server: a new tier alone leaves the old overrides told, though they hold no longer.
        if tier is not None and overrides:
            plan.overrides = dict(overrides)
        elif overrides is not None and tier is None:
            plan.overrides = {**(plan.overrides or {}), **overrides}
        plan.tier, plan.limits, plan.updated = tier or plan.tier, limits, self._clock()
        return plan

    def forget(self, account_id: str) -> None:
        """Forget the plan of an account that is no more."""
        self._plans.pop(account_id, None)

    def _new(self, account_id: str) -> Plan:
        now = self._clock()
        if not self.enforced:
            told = {"max_concurrent_running": MAX_CONCURRENT_RUNNING}
            return Plan(tier="custom", limits=_NOBODYS_WAY, created=now, updated=now, overrides=told)
        plan = Plan(tier="free", limits=TIERS["free"], created=now, updated=now)
        self._give_credit(plan)
        return plan

    def begin(self, account_id: str, tier: str) -> None:
        """Let a new account begin with a tier other than free."""
        now = self._clock()
        plan = self._plans[account_id] = Plan(tier=tier, limits=TIERS[tier], created=now, updated=now)
        self._give_credit(plan)

    def _give_credit(self, plan: Plan) -> None:
        if self._credit is not None:
            missing = plan.compute_left - self._credit
            plan.used, plan.extra = max(missing, 0.0), max(-missing, 0.0)


def _overridden(limits: Limits, overrides: Mapping[str, Any]) -> Limits:
    for name in overrides:
        if name not in OVERRIDES:
            raise invalid(f"Invalid override key: '{name}'. Allowed keys: {', '.join(sorted(OVERRIDES))}")
    for name, value in overrides.items():
        if not isinstance(value, _KINDS[name]) or isinstance(value, bool):
            raise invalid(f"Invalid override value for '{name}'.")
    values: dict[str, Any] = dict(overrides)
    if "allowed_templates" in values:
        values["allowed_templates"] = tuple(values["allowed_templates"])
    return replace(limits, **values)
