"""The JSON shapes of the API's answers. Times come in as Unix seconds of the server's clock."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from prep.localserver.accounts import Account, ApiKey
from prep.localserver.catalogue import storage_gib
from prep.localserver.plans import Plan
from prep.localserver.sandbox import Sandbox, Status

Json = dict[str, Any]

_WHEN_READY = "Pod is Ready; Service Exists"
_WHEN_FAILED = "Pod failed to become Ready"


def stamp(moment: float) -> str:
    """Write a time as most of the API does: UTC, microseconds, `Z`."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def stamp_or_none(moment: float | None) -> str | None:
    """Write a time that may not have come."""
    return None if moment is None else stamp(moment)


def registered(account: Account) -> Json:
    """Answer a registration."""
    return {
        "id": account.id,
        "email": account.email,
        "role": account.role,
        "is_verified": account.is_verified,
        "verification_email_sent": not account.is_verified,
    }


def user(account: Account) -> Json:
    """Show the account that a request comes from."""
    return {
        "id": account.id,
        "email": account.email,
        "role": account.role,
        "is_active": True,
        "username": None,
        "is_verified": account.is_verified,
        "has_local_password": True,
    }


def new_api_key(key: ApiKey, secret: str) -> Json:
    """Show a key when it is made: the only time that its secret is told."""
    return _api_key(key, {"key": secret})


def api_key(key: ApiKey) -> Json:
    """Show a key as the list does."""
    return _api_key(key, {"key_prefix": key.preview})


def _api_key(key: ApiKey, shown: Json) -> Json:
    return {
        "id": key.id,
        "name": key.name,
        "is_enabled": True,
        **shown,
        "created_at": stamp(key.created),
        "updated_at": stamp(key.created),
        "expires_at": stamp_or_none(key.expires),
        "scope": {
            "control_plane": key.scope.control_plane,
            "data_plane": {"mode": key.scope.mode, "sandbox_ids": list(key.scope.sandbox_ids)},
        },
    }


def sandbox(box: Sandbox, now: float, base_url: str) -> Json:
    """Show a sandbox as create and the list do; `base_url` has no slash at its end."""
    spec = box.spec
    proxy = f"{base_url}/v1/sandboxes/{box.id}/proxy"
    return {
        "id": box.id,
        "name": box.name,
        "template": spec.template,
        "status": box.status(now),
        "labels": spec.labels,
        "auto_stop_interval": spec.auto_stop_interval,
        "auto_delete_interval": spec.auto_delete_interval,
        "persist": spec.persist,
        "storage_size": spec.storage_size,
        "pending_operation": None,
        "storage": _storage(spec.storage_size),
        "urls": {"proxy": proxy, "mcp": f"{proxy}/mcp", "web": None},
        "created_at": stamp(box.created),
    }


def sandbox_detail(box: Sandbox, now: float, base_url: str) -> Json:
    """Show a sandbox as get, start and stop do: the only place where `started_at` is told."""
    started = box.started_at(now)
    return {
        **sandbox(box, now, base_url),
        "image": None,
        "status_message": _status_message(box, now, started),
        "started_at": stamp_or_none(started),
        "stopped_at": stamp_or_none(box.stopped_at),
    }


def plan(account: Account, plan: Plan, now: float) -> Json:
    """Show an account's plan."""
    start, end = _billing_period(now)
    return {
        "id": f"plan{account.id.removeprefix('user')}",
        "user_id": account.id,
        "tier": plan.tier,
        "compute_units_monthly_limit": plan.compute_units_monthly_limit,
        "compute_units_monthly_used": plan.compute_units_monthly_used,
        "storage_capacity_limit_gib": plan.storage_capacity_limit_gib,
        "max_concurrent_running": plan.max_concurrent_running,
        "max_sandbox_duration_seconds": plan.max_sandbox_duration_seconds,
        "allowed_templates": list(plan.allowed_templates),
        "grace_period_seconds": plan.grace_period_seconds,
        "overrides": plan.overrides,
        "billing_period_start": start,
        "billing_period_end": end,
        "grace_period_started_at": None,
        "warning_80_notified_at": None,
        "warning_100_notified_at": None,
        "created_at": _offset_stamp(account.created),
        "updated_at": _offset_stamp(plan.updated or account.created),
    }


def usage(plan: Plan, now: float, *, running: int, storage_sizes: Iterable[str | None]) -> Json:
    """Show what an account uses of its plan. Compute is not metered here: what is left stays."""
    start, end = _billing_period(now)
    quota, used = plan.storage_capacity_limit_gib, sum(storage_gib(size) for size in storage_sizes)
    return {
        "tier": plan.tier,
        "billing_period": {"start": start, "end": end},
        "compute": {
            "compute_unit_hours": plan.compute_units_monthly_used,
            "monthly_limit": plan.compute_units_monthly_limit,
            "monthly_used": plan.compute_units_monthly_used,
            "monthly_remaining": plan.compute_left,
            "extra_remaining": 0.0,
            "total_remaining": plan.compute_left,
            "unit": "CU-hours",
        },
        "storage": {
            "gib_hours": 0.0,
            "current_used_gib": used,
            "total_quota_gib": quota,
            "available_gib": quota - used,
            "unit": "GiB",
        },
        "limits": {
            "max_concurrent_running": plan.max_concurrent_running,
            "current_running": running,
            "max_sandbox_duration_seconds": plan.max_sandbox_duration_seconds,
            "allowed_templates": list(plan.allowed_templates),
        },
        "grace_period": {
            "active": False,
            "started_at": None,
            "expires_at": None,
            "grace_period_seconds": plan.grace_period_seconds,
        },
    }


def verification_token(account: Account, token: str) -> Json:
    """Show the token that confirms an account's address."""
    return {
        "user_id": account.id,
        "email": account.email,
        "token": token,
        "verify_url": f"http://localhost/auth/verify-email?token={token}",
        "created_at": _offset_stamp(account.created),
    }


def _storage(size: str | None) -> Json | None:
    if size is None:
        return None
    return {"mode": "live_disk", "size": size, "snapshot_created_at": None, "zone": None}


def _status_message(box: Sandbox, now: float, started: float | None) -> str | None:
    if box.status(now) is Status.ERROR:
        return _WHEN_FAILED
    return None if started is None else _WHEN_READY


def _offset_stamp(moment: float) -> str:
    # The plan and usage routes write UTC as an offset, unlike the others.
    return stamp(moment).replace("Z", "+00:00")


def _billing_period(now: float) -> tuple[str, str]:
    today = datetime.fromtimestamp(now, UTC)
    start = today.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    end = (start + timedelta(days=31)).replace(day=1)
    return start.isoformat(), end.isoformat()
