"""The API's routes: what each request asks for and how it is answered."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

import gevent
from flask import Flask, Response, g, jsonify, request
from flask.typing import ResponseReturnValue

from prep.localserver import render
from prep.localserver.access import SESSION_COOKIE, Access
from prep.localserver.accounts import Account, Accounts, new_key_secret
from prep.localserver.catalogue import TEMPLATES
from prep.localserver.errors import internal_error, invalid
from prep.localserver.plans import Plans
from prep.localserver.profile import Profile
from prep.localserver.sandbox import Sandbox
from prep.localserver.validation import read_create, read_credentials, read_new_key, read_page, read_token
from prep.localserver.world import World

_SESSION_ATTRIBUTES = "HttpOnly; Max-Age=604800; Path=/; SameSite=lax"
_NO_SESSION = f'{SESSION_COOKIE}=""; HttpOnly; Max-Age=0; Path=/; SameSite=lax'


class AccountRoutes:
    """Registration, verification, login, keys, templates and usage."""

    def __init__(self, accounts: Accounts, world: World, plans: Plans) -> None:
        self._accounts = accounts
        self._access = Access(accounts)
        self._world = world
        self._plans = plans

    def register(self, app: Flask) -> None:
        """Add the routes to an app."""
        route(app, "GET", "/health", self.health)
        route(app, "POST", "/v1/auth/register", self.sign_up)
        route(app, "POST", "/v1/auth/verification/confirm", self.verify)
        route(app, "POST", "/v1/auth/login", self.login)
        route(app, "POST", "/v1/auth/logout", self.logout)
        route(app, "GET", "/v1/auth/user", self.user)
        route(app, "POST", "/v1/auth/api-keys", self.create_key)
        route(app, "GET", "/v1/auth/api-keys", self.list_keys)
        route(app, "DELETE", "/v1/auth/api-keys/<key_id>", self.delete_key)
        route(app, "GET", "/v1/sandbox-templates", self.templates)
        route(app, "GET", "/v1/usage", self.usage)
        route(app, "GET", "/v1/usage/plan", self.plan)

    def health(self) -> ResponseReturnValue:
        """Say that the server is up."""
        return jsonify(status="ok")

    def sign_up(self) -> ResponseReturnValue:
        """Register an account and log it in."""
        account = self._accounts.register(*read_credentials(request.get_data()))
        return self._logged_in(account, render.registered(account), HTTPStatus.CREATED)

    def verify(self) -> ResponseReturnValue:
        """Verify the address that a token was mailed to; whoever has the token may do so."""
        self._accounts.verify(read_token(request.get_data()))
        return jsonify(detail="Email verified")

    def login(self) -> ResponseReturnValue:
        """Log an account in."""
        account = self._accounts.login(*read_credentials(request.get_data()))
        return self._logged_in(account, {"detail": "Login successful"}, HTTPStatus.OK)

    def logout(self) -> ResponseReturnValue:
        """End the session, if there is one."""
        self._accounts.close_session(request.cookies.get(SESSION_COOKIE, ""))
        response = jsonify(detail="Logout successful")
        response.headers["Set-Cookie"] = _NO_SESSION
        return response

    def user(self) -> ResponseReturnValue:
        """Show whose credential it is."""
        return jsonify(render.user(self._access.control()))

    def create_key(self) -> ResponseReturnValue:
        """Make a key; only now is its secret told."""
        account = self._access.control()
        name, lifetime, scope = read_new_key(request.get_data())
        if not self._world.owns(account, scope.sandbox_ids):
            raise invalid("sandbox_ids must all belong to the current user.")
        secret = new_key_secret()
        key = self._accounts.add_key(account, name, secret=secret, lifetime=lifetime, scope=scope)
        return jsonify(render.new_api_key(key, secret)), HTTPStatus.CREATED

    def list_keys(self) -> ResponseReturnValue:
        """List the account's keys."""
        keys = self._accounts.keys_of(self._access.control())
        return jsonify(items=[render.api_key(key) for key in keys])

    def delete_key(self, key_id: str) -> ResponseReturnValue:
        """Revoke a key."""
        self._accounts.delete_key(self._access.control(), key_id)
        return no_content()

    def templates(self) -> ResponseReturnValue:
        """List the templates."""
        self._access.control()
        return jsonify(items=TEMPLATES)

    def usage(self) -> ResponseReturnValue:
        """Show what the account uses of its plan."""
        return jsonify(usage_of(self._access.control(), self._world, self._plans))

    def plan(self) -> ResponseReturnValue:
        """Show the account's plan."""
        account = self._access.control()
        return jsonify(render.plan(account.id, self._plans.of(account.id), self._world.advance()))

    def _logged_in(self, account: Account, body: render.Json, status: HTTPStatus) -> ResponseReturnValue:
        response = jsonify(body)
        token = self._accounts.open_session(account)
        # Written by hand, for the real server's spelling of the attributes.
        response.headers["Set-Cookie"] = f"{SESSION_COOKIE}={token}; {_SESSION_ATTRIBUTES}"
        return response, status


class SandboxRoutes:
    """The sandboxes.

    on_create, on_delete: called after each create and each accepted delete, which may be the next
        thing to end.
    """

    def __init__(
        self,
        accounts: Accounts,
        world: World,
        profile: Profile,
        on_create: Callable[[], None],
        on_delete: Callable[[], None],
    ) -> None:
        self._access = Access(accounts)
        self._world = world
        self._profile = profile
        self._latency = profile.draws("latency")
        self._on_create, self._on_delete = on_create, on_delete

    def register(self, app: Flask) -> None:
        """Add the routes to an app."""
        one = "/v1/sandboxes/<sandbox_id>"
        route(app, "POST", "/v1/sandboxes", self.create)
        route(app, "GET", "/v1/sandboxes", self.list)
        route(app, "GET", one, self.get)
        route(app, "DELETE", one, self.delete)
        route(app, "POST", f"{one}/start", self.start)
        route(app, "POST", f"{one}/stop", self.stop)

    def create(self) -> ResponseReturnValue:
        """Create a sandbox: it is there at once, and the answer comes after the profile's latency."""
        account = self._access.control()
        spec = read_create(request.get_data())
        try:
            sandbox, now = self._world.create(account, spec)
            self._on_create()
        finally:
            gevent.sleep(self._profile.latency.sample(self._latency))
        g.sandbox_id = sandbox.id
        return jsonify(render.sandbox(sandbox, now, base_url())), HTTPStatus.ACCEPTED

    def list(self) -> ResponseReturnValue:
        """List a page of the account's sandboxes."""
        account = self._access.control()
        limit, offset, labels = read_page(request.args, request.args.getlist("label"))
        if labels and not self._profile.label_filter:
            raise internal_error()
        page, total, now = self._world.page(account, limit=limit, offset=offset, labels=labels)
        base = base_url()
        return jsonify(items=[render.sandbox(sandbox, now, base) for sandbox in page], total=total)

    def get(self, sandbox_id: str) -> ResponseReturnValue:
        """Show one sandbox."""
        return _detail(self._world.get(self._account_for(sandbox_id), sandbox_id))

    def start(self, sandbox_id: str) -> ResponseReturnValue:
        """Start a stopped sandbox."""
        return _detail(self._world.start(self._account_for(sandbox_id), sandbox_id))

    def stop(self, sandbox_id: str) -> ResponseReturnValue:
        """Stop a sandbox."""
        return _detail(self._world.stop(self._account_for(sandbox_id), sandbox_id))

    def delete(self, sandbox_id: str) -> ResponseReturnValue:
        """Begin to delete a sandbox."""
        self._world.delete(self._account_for(sandbox_id), sandbox_id)
        self._on_delete()
        return no_content()

    def _account_for(self, sandbox_id: str) -> Account:
        g.sandbox_id = sandbox_id
        return self._access.control()


def usage_of(account: Account, world: World, plans: Plans) -> render.Json:
    """Show what an account uses of its plan."""
    now = world.advance()
    running, stored = world.running(account), world.stored_gib(account)
    return render.usage(plans.of(account.id), now, running=running, stored_gib=stored)


def base_url() -> str:
    """Give the URL by which the client reached the server, without a slash at its end."""
    return request.host_url.rstrip("/")


def no_content() -> Response:
    """Answer 204; the real server names a content type even then."""
    return Response(status=HTTPStatus.NO_CONTENT, content_type="application/json")


def _detail(found: tuple[Sandbox, float]) -> ResponseReturnValue:
    return jsonify(render.sandbox_detail(*found, base_url()))


def route(app: Flask, method: str, path: str, view: Callable[..., ResponseReturnValue]) -> None:
    """Add a route to an app."""
    app.add_url_rule(path, endpoint=f"{method} {path}", view_func=view, methods=[method])
