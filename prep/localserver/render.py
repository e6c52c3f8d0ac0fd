"""The JSON shapes of the API's answers. Times come in as Unix seconds of the server's clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from prep.localserver.accounts import Account, ApiKey, Mail
from prep.localserver.plans import Plan
from prep.localserver.profile import Profile
from prep.localserver.sandbox import Sandbox, Status

Json = dict[str, Any]

_VERIFY_URL = "http://localhost/auth/verify-email?token="
"""Of the web app, which the real server knows by its settings."""
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


def listed_user(account: Account) -> Json:
    """Show an account as the list of users does."""
    return {"id": account.id, "email": account.email, "role": account.role, "is_active": True}


def verification(mail: Mail) -> Json:
    """Show a mail to whoever may read it."""
    return {
        "user_id": mail.account_id,
        "email": mail.email,
        "token": mail.token,
        "verify_url": _VERIFY_URL + mail.token,
        "created_at": _offset_stamp(mail.sent),
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
            "data_plane": {"mode": key.scope.data_plane, "sandbox_ids": list(key.scope.sandbox_ids)},
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


def plan(account_id: str, plan: Plan, now: float) -> Json:
    """Show an account's plan."""
    start, end = _billing_period(now)
    limits = plan.limits
    return {
        "id": f"plan{account_id.removeprefix('user')}",
        "user_id": account_id,
        "tier": plan.tier,
        "compute_units_monthly_limit": float(limits.compute_units_monthly_limit),
        "compute_units_monthly_used": plan.used,
        "storage_capacity_limit_gib": limits.storage_capacity_limit_gib,
        "max_concurrent_running": limits.max_concurrent_running,
        "max_sandbox_duration_seconds": limits.max_sandbox_duration_seconds,
        "allowed_templates": limits.allowed_templates,
        "grace_period_seconds": limits.grace_period_seconds,
        "overrides": plan.overrides,
        "billing_period_start": start,
        "billing_period_end": end,
        "grace_period_started_at": None,
        "warning_80_notified_at": None,
        "warning_100_notified_at": None,
        "created_at": _offset_stamp(plan.created),
        "updated_at": _offset_stamp(plan.updated),
    }


def usage(plan: Plan, now: float, *, running: int, stored_gib: int) -> Json:
    """Show what an account uses of its plan. Compute is not metered here: what is used stays as it began."""
    start, end = _billing_period(now)
    limits = plan.limits
    limit, quota = float(limits.compute_units_monthly_limit), limits.storage_capacity_limit_gib
    return {
        "tier": plan.tier,
        "billing_period": {"start": start, "end": end},
        "compute": {
            "compute_unit_hours": plan.used,
            "monthly_limit": limit,
            "monthly_used": plan.used,
            "monthly_remaining": max(limit - plan.used, 0.0),
            "extra_remaining": plan.extra,
            "total_remaining": max(limit - plan.used, 0.0) + plan.extra,
            "unit": "CU-hours",
        },
        "storage": {
            "gib_hours": 0.0,
            "current_used_gib": stored_gib,
            "total_quota_gib": quota,
            "available_gib": quota - stored_gib,
            "unit": "GiB",
        },
        "limits": {
            "max_concurrent_running": limits.max_concurrent_running,
            "current_running": running,
            "max_sandbox_duration_seconds": limits.max_sandbox_duration_seconds,
            "allowed_templates": limits.allowed_templates,
        },
        "grace_period": {
            "active": False,
            "started_at": None,
            "expires_at": None,
            "grace_period_seconds": limits.grace_period_seconds,
        },
    }


def platform_limits(profile: Profile, now: float, *, users: int, sandboxes: int, stored_gib: int) -> Json:
    """Show the caps on the whole server, and what there is of each."""
    return {
        "config": {
            "max_registered_users": profile.max_users,
            "max_total_sandboxes": profile.max_sandboxes,
            "max_total_storage_gib": profile.max_storage,
            "max_waitlist_applications": None,
        },
        "usage": {
            "registered_users": users,
            "total_sandboxes": sandboxes,
            "total_storage_gib": stored_gib,
            "waitlist_applications": 0,
        },
        "refreshed_at": stamp(now),
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
