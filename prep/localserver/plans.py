"""Plans: what each account may have, and what the platform as a whole may hold.

Tiers, their limits, and the order of the checks are those of Treadstone 0.9 (its table `tier_template` and
`SandboxService.create`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from prep.localserver.accounts import Account
from prep.localserver.catalogue import MAX_CONCURRENT_RUNNING, SMALLEST_TEMPLATE, storage_gib
from prep.localserver.errors import (
    compute_quota_exceeded,
    concurrent_limit_exceeded,
    duration_exceeded,
    invalid,
    not_found,
    platform_full,
    storage_quota_exceeded,
    template_not_allowed,
)
from prep.localserver.profile import Profile
from prep.localserver.sandbox import SandboxSpec

_ALL_TEMPLATES = tuple(f"aio-sandbox-{size}" for size in ("tiny", "small", "medium", "large", "xlarge"))
NEW_ACCOUNT_TIER = "free"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What an account may have: CU-hours a month, GiB of storage, durations in seconds (0 for any)."""

    tier: str
    compute_units_monthly_limit: float
    storage_capacity_limit_gib: int
    max_concurrent_running: int
    max_sandbox_duration_seconds: int = 0
    allowed_templates: tuple[str, ...] = _ALL_TEMPLATES
    grace_period_seconds: int = 86400
    compute_units_monthly_used: float = 0.0
    overrides: Mapping[str, Any] | None = None
    updated: float | None = None

    @property
    def compute_left(self) -> float:
        """How many CU-hours are left this month."""
        return max(0.0, self.compute_units_monthly_limit - self.compute_units_monthly_used)


TIERS: Mapping[str, Plan] = MappingProxyType(
    {
        "free": Plan(
            tier="free",
            compute_units_monthly_limit=10.0,
            storage_capacity_limit_gib=0,
            max_concurrent_running=1,
            max_sandbox_duration_seconds=7200,
            allowed_templates=(SMALLEST_TEMPLATE,),
            grace_period_seconds=900,
        ),
        "pro": Plan(
            tier="pro",
            compute_units_monthly_limit=180.0,
            storage_capacity_limit_gib=20,
            max_concurrent_running=5,
            grace_period_seconds=7200,
        ),
        "ultra": Plan(
            tier="ultra",
            compute_units_monthly_limit=480.0,
            storage_capacity_limit_gib=60,
            max_concurrent_running=15,
            grace_period_seconds=21600,
        ),
        "custom": Plan(
            tier="custom",
            compute_units_monthly_limit=1800.0,
            storage_capacity_limit_gib=200,
            max_concurrent_running=50,
        ),
    }
)

_LIMITLESS = replace(
    TIERS["custom"],
    storage_capacity_limit_gib=100_000,
    max_concurrent_running=MAX_CONCURRENT_RUNNING,
    overrides={"max_concurrent_running": MAX_CONCURRENT_RUNNING},
)
"""Of a server that enforces nothing: it shall not be in the way of a burst."""

_OVERRIDES: Mapping[str, type] = MappingProxyType(
    {
        "compute_units_monthly_limit": float,
        "storage_capacity_limit_gib": int,
        "max_concurrent_running": int,
        "max_sandbox_duration_seconds": int,
        "allowed_templates": list,
        "grace_period_seconds": int,
    }
)


@dataclass(frozen=True, slots=True)
class Use:
    """What is there: of an account, and of the whole platform. Adding up storage takes time, so it waits."""

    running: int
    storage_gib: Callable[[], int]
    all_sandboxes: int
    all_storage_gib: Callable[[], int]


class Plans:
    """The plan of each account. Without ``plans=TIER`` in the profile nothing is enforced."""

    def __init__(self, profile: Profile) -> None:
        self._enforced = profile.plans is not None
        self._credit = profile.credit
        self._max_sandboxes = profile.max_sandboxes
        self._max_storage = profile.max_storage
        self._plans: dict[str, Plan] = {}

    def of(self, account: Account) -> Plan:
        """Tell an account's plan."""
        default = self._with_credit(TIERS[NEW_ACCOUNT_TIER]) if self._enforced else _LIMITLESS
        return self._plans.get(account.id, default)

    def set(
        self, account: Account, tier: str | None, overrides: Mapping[str, Any] | None, now: float
    ) -> Plan:
        """Change an account's plan: to a tier, with limits of its own, or both.

        Raises:
            ApiError: 404 for an unknown tier, 422 for an unknown override or a value of another type.
        """
        if tier is not None and tier not in TIERS:
            raise not_found(f"TierTemplate '{tier}' not found.")
        plan = self.of(account) if tier is None else self._with_credit(TIERS[tier])
        if overrides:
            plan = replace(plan, **_read_overrides(overrides), overrides=dict(overrides))
        self._plans[account.id] = plan = replace(plan, updated=now)
        return plan

    def forget(self, account: Account) -> None:
        """Forget the plan of an account that is gone."""
        self._plans.pop(account.id, None)

    def check(self, account: Account, spec: SandboxSpec, use: Use) -> None:
        """Refuse a create that the account's plan, or the platform's caps, do not allow.

        Raises:
            ApiError: 403, 402, 429 or 400 of the plan, 503 of the platform.
        """
        size = storage_gib(spec.storage_size)
        if self._enforced:
            _check_plan(self.of(account), spec, use, size)
        if self._max_sandboxes is not None and use.all_sandboxes >= self._max_sandboxes:
            raise platform_full("sandbox_cap_exceeded", "sandboxes", use.all_sandboxes, self._max_sandboxes)
        if self._max_storage is not None and size and use.all_storage_gib() + size > self._max_storage:
            used = use.all_storage_gib()
            raise platform_full("global_storage_cap_exceeded", "storage (GiB)", used, self._max_storage)

    def _with_credit(self, plan: Plan) -> Plan:
        if self._credit is None:
            return plan
        return replace(
            plan, compute_units_monthly_used=max(0.0, plan.compute_units_monthly_limit - self._credit)
        )


def _check_plan(plan: Plan, spec: SandboxSpec, use: Use, size: int) -> None:
    if spec.template not in plan.allowed_templates:
        raise template_not_allowed(plan.tier, spec.template, plan.allowed_templates)
    if plan.compute_left <= 0:
        raise compute_quota_exceeded(plan.compute_units_monthly_used, plan.compute_units_monthly_limit)
    if use.running >= plan.max_concurrent_running:
        raise concurrent_limit_exceeded(use.running, plan.max_concurrent_running)
    if size and use.storage_gib() + size > plan.storage_capacity_limit_gib:
        raise storage_quota_exceeded(use.storage_gib(), size, plan.storage_capacity_limit_gib)
    longest = plan.max_sandbox_duration_seconds
    if longest and not 0 < spec.auto_stop_interval * 60 <= longest:
        raise duration_exceeded(plan.tier, longest)


def _read_overrides(overrides: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in overrides.items():
        kind = _OVERRIDES.get(name)
        if kind is None:
            raise invalid(f"Unknown override '{name}'. Allowed: {', '.join(sorted(_OVERRIDES))}")
        right = isinstance(value, int | float if kind is float else kind) and not isinstance(value, bool)
        if not right:
            raise invalid(f"body -> overrides -> {name}: Input should be a valid {kind.__name__}")
        found[name] = tuple(map(str, value)) if kind is list else value
    return found
