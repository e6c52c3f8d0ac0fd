"""The routes of an admin: others' accounts and plans, and the caps on the whole server."""

from __future__ import annotations

from flask import Flask, jsonify, request
from flask.typing import ResponseReturnValue

from prep.localserver import render
from prep.localserver.access import Access
from prep.localserver.accounts import Accounts
from prep.localserver.errors import bad_request, conflict, not_found
from prep.localserver.plans import Plans
from prep.localserver.profile import Profile
from prep.localserver.routes import no_content, route, usage_of
from prep.localserver.validation import read_bounds, read_email, read_plan_change
from prep.localserver.world import World


class AdminRoutes:
    """What an admin may see and change; some of it opens to a session only, as at the real server."""

    def __init__(self, accounts: Accounts, world: World, plans: Plans, profile: Profile) -> None:
        self._accounts = accounts
        self._access = Access(accounts)
        self._world = world
        self._plans = plans
        self._profile = profile

    def register(self, app: Flask) -> None:
        """Add the routes to an app."""
        route(app, "GET", "/v1/auth/users", self.users)
        route(app, "DELETE", "/v1/auth/users/<user_id>", self.delete_user)
        route(app, "GET", "/v1/admin/users/lookup-by-email", self.lookup)
        route(app, "GET", "/v1/admin/users/<user_id>/usage", self.usage)
        route(app, "PATCH", "/v1/admin/users/<user_id>/plan", self.change_plan)
        route(app, "GET", "/v1/admin/verification-token-by-email", self.verification_token)
        route(app, "GET", "/v1/admin/platform-limits", self.platform_limits)

    def users(self) -> ResponseReturnValue:
        """List all accounts, newest first; whoever is no admin sees none but the own."""
        account = self._access.control()
        limit, offset = read_bounds(request.args)
        found = self._accounts.newest_first(request.args.get("email", "").strip())
        if account.role != "admin":
            found = [one for one in found if one.id == account.id]
        page = found[offset : offset + limit]
        return jsonify(items=[render.listed_user(one) for one in page], total=len(found))

    def delete_user(self, user_id: str) -> ResponseReturnValue:
        """Delete an account with all that it has.

        The real server's records of compute have no account to fall to and are never removed: once a sandbox
        of the account's has been ready, the account cannot be deleted any more.
        """
        admin = self._access.admin()
        if user_id == admin.id:
            raise bad_request("Cannot delete yourself")
        account = self._accounts.find(user_id)
        if self._world.has_run(account):
            raise conflict("Resource already exists or constraint violated.")
        self._accounts.delete(account)
        self._plans.forget(account.id)
        self._world.orphan(account)
        return no_content()

    def lookup(self) -> ResponseReturnValue:
        """Find an account by its address."""
        self._access.admin_session()
        email = read_email(request.args)
        for account in self._accounts.newest_first(email):
            if account.email == email:
                return jsonify(user_id=account.id, email=account.email)
        raise not_found(f"User '{email}' not found.")

    def usage(self, user_id: str) -> ResponseReturnValue:
        """Show what somebody's account uses of its plan."""
        self._access.admin()
        return jsonify(usage_of(self._accounts.find(user_id), self._world, self._plans))

    def change_plan(self, user_id: str) -> ResponseReturnValue:
        """Give an account another tier, other limits, or both."""
        self._access.admin()
        tier, overrides = read_plan_change(request.get_data())
        account = self._accounts.find(user_id)
        plan = self._plans.change(account.id, tier, overrides)
        return jsonify(render.plan(account.id, plan, self._world.advance()))

    def verification_token(self) -> ResponseReturnValue:
        """Show the mail that verifies an address, where mail is kept and not sent."""
        self._access.admin_session()
        email = read_email(request.args)
        if self._profile.mail != "memory":
            raise not_found("endpoint 'verification-token' not found.")
        return jsonify(render.verification(self._accounts.mail_to(email)))

    def platform_limits(self) -> ResponseReturnValue:
        """Show the caps on the whole server."""
        self._access.admin_session()
        now, (sandboxes, stored) = self._world.advance(), self._world.totals()
        shown = render.platform_limits(
            self._profile, now, users=len(self._accounts), sandboxes=sandboxes, stored_gib=stored
        )
        return jsonify(shown)
