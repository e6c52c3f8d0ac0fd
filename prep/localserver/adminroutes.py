"""Routes of verification and of administration."""

from __future__ import annotations

from flask import Flask, jsonify, request
from flask.typing import ResponseReturnValue

from prep.localserver import render
from prep.localserver.accounts import Account, Accounts
from prep.localserver.errors import conflict, forbidden, not_found
from prep.localserver.plans import Plans
from prep.localserver.profile import Profile
from prep.localserver.routes import add_route, current_account, no_content
from prep.localserver.validation import read_plan_change, read_token
from prep.localserver.world import World

_OWNS_ROWS = "Resource already exists or constraint violated."


class AdminRoutes:
    """What an admin may do, and how anybody confirms an address."""

    def __init__(self, accounts: Accounts, world: World, plans: Plans, profile: Profile) -> None:
        self._accounts = accounts
        self._world = world
        self._plans = plans
        self._profile = profile

    def register(self, app: Flask) -> None:
        """Add the routes to an app."""
        add_route(app, "GET", "/v1/admin/verification-token-by-email", self.verification_token)
        add_route(app, "POST", "/v1/auth/verification/confirm", self.confirm)
        add_route(app, "PATCH", "/v1/admin/users/<user_id>/plan", self.change_plan)
        add_route(app, "GET", "/v1/admin/platform-limits", self.platform_limits)
        add_route(app, "DELETE", "/v1/auth/users/<user_id>", self.delete_user)

    def verification_token(self) -> ResponseReturnValue:
        """Tell the token that was mailed; only a server that keeps its mails in memory can."""
        self._admin()
        if not self._profile.mail:
            raise not_found("Verification tokens are not available: the mail backend is smtp.")
        email = request.args.get("email", "")
        account = self._accounts.by_email(email)
        if account is None or account.is_verified:
            raise not_found(f"Verification token '{email}' not found.")
        token = self._accounts.verification_token(account)
        return jsonify(render.verification_token(account, token))

    def confirm(self) -> ResponseReturnValue:
        """Confirm an address by its token."""
        self._accounts.verify(read_token(request.get_data()))
        return jsonify(detail="Email verified")

    def change_plan(self, user_id: str) -> ResponseReturnValue:
        """Set an account's tier, limits of its own, or both."""
        self._admin()
        tier, overrides = read_plan_change(request.get_data())
        account = self._user(user_id)
        now = self._world.advance()
        return jsonify(render.plan(account, self._plans.set(account, tier, overrides, now), now))

    def platform_limits(self) -> ResponseReturnValue:
        """Tell the platform's caps, and what is used of them."""
        self._admin()
        now = self._world.advance()
        profile = self._profile
        config = {
            "max_registered_users": profile.max_users,
            "max_total_sandboxes": profile.max_sandboxes,
            "max_total_storage_gib": profile.max_storage,
            "max_waitlist_applications": None,
        }
        usage = {
            "registered_users": len(self._accounts),
            "total_sandboxes": self._world.total(),
            "total_storage_gib": self._world.total_storage_gib(),
            "waitlist_applications": 0,
        }
        return jsonify(config=config, usage=usage, refreshed_at=render.stamp(now))

    def delete_user(self, user_id: str) -> ResponseReturnValue:
        """Delete an account that owns nothing any more."""
        admin = self._admin()
        account = self._user(user_id)
        if account.id == admin.id:
            raise conflict("You cannot delete your own account.")
        if self._world.owns_any(account) or self._accounts.keys_of(account):
            raise conflict(_OWNS_ROWS)
        self._accounts.delete(account)
        self._plans.forget(account)
        return no_content()

    def _admin(self) -> Account:
        account = current_account(self._accounts)
        if account.role != "admin":
            raise forbidden("Admin required")
        return account

    def _user(self, user_id: str) -> Account:
        account = self._accounts.by_id(user_id)
        if account is None:
            raise not_found(f"User '{user_id}' not found.")
        return account
