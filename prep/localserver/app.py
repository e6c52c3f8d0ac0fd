"""The Flask application: routes put together, refusals as envelopes, a line for each request."""

from __future__ import annotations

from collections.abc import Callable

from flask import Flask, Response, g, jsonify, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import HTTPException

from prep.localserver.accounts import Accounts
from prep.localserver.admin import AdminRoutes
from prep.localserver.dataplane import DataPlaneRoutes
from prep.localserver.errors import ApiError, internal_error
from prep.localserver.faults import FAULT, Faults
from prep.localserver.plans import Plans
from prep.localserver.profile import Profile
from prep.localserver.routes import AccountRoutes, SandboxRoutes
from prep.localserver.streamlog import StreamLog
from prep.localserver.truth import JsonLines, moment
from prep.localserver.world import World


def create_app(
    *,
    accounts: Accounts,
    world: World,
    plans: Plans,
    profile: Profile,
    requests_log: JsonLines,
    streams: StreamLog,
    clock: Callable[[], float],
    faults: Faults,
    on_create: Callable[[], None],
    on_delete: Callable[[], None],
) -> Flask:
    """Put the application together."""
    app = Flask("prep.localserver", static_folder=None)
    app.json.sort_keys = False  # type: ignore[attr-defined]  # the fields come in the recorded order
    AccountRoutes(accounts, world, plans).register(app)
    AdminRoutes(accounts, world, plans, profile).register(app)
    SandboxRoutes(accounts, world, profile, on_create, on_delete).register(app)
    DataPlaneRoutes(accounts, world, profile, streams, clock).register(app)
    _answer_errors(app)
    _log_requests(app, requests_log, clock)
    faults.install(app)
    return app


def _answer_errors(app: Flask) -> None:
    @app.errorhandler(ApiError)
    def refused(error: ApiError) -> ResponseReturnValue:
        return jsonify(error.envelope()), error.status

    @app.errorhandler(HTTPException)
    def unrouted(error: HTTPException) -> ResponseReturnValue:
        status, name = error.code or 500, error.name or "Error"
        return refused(ApiError(status, name.lower().replace(" ", "_"), name))

    @app.errorhandler(Exception)
    def unforeseen(error: Exception) -> ResponseReturnValue:
        app.logger.exception("unforeseen: %s %s", request.method, request.path, exc_info=error)
        return refused(internal_error())


def _log_requests(app: Flask, requests_log: JsonLines, clock: Callable[[], float]) -> None:
    @app.before_request
    def arrived() -> None:
        g.arrived = clock()

    @app.after_request
    def answered(response: Response) -> Response:
        # Neither headers, nor bodies, nor the query: no secret can get in.
        requests_log.write(
            {
                "ts": moment(g.arrived),
                "method": request.method,
                "path": request.path,
                "status": response.status_code,
                "sandbox_id": g.get("sandbox_id"),
                "fault": g.get("fault") or request.environ.get(FAULT),
            }
        )
        return response
