"""The live page ``/treadstone`` in Locust's web UI, and the tab "Sandboxes" beside Locust's own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from flask import Blueprint, Response, abort, jsonify, send_file
from flask import request as incoming
from locust.web import WebUI

from treadstone_user.live import State
from treadstone_user.view import ARTIFACTS

_PAGE = Path(__file__).parent / "page"
_DAY_SEC = 86_400
_TAB = "sandboxes"
_COLUMNS = {"what": "", "count": "Sandboxes"} | {str(state): state.capitalize() for state in State}
_LINK = (
    '<a href="{base}/treadstone" style="position:fixed;left:1rem;bottom:1rem;z-index:2000;'
    "padding:.5rem .8rem;border-radius:.4rem;background:#0b5d48;color:#fff;"
    'font:600 14px system-ui,sans-serif">'
    "Sandboxes, live</a>"
)


class Source(Protocol):
    """Where the page gets its content from."""

    def view(self) -> Mapping[str, Any]:
        """``run``: the present run, or the last one, or None; ``preparing``: whether the next is on its way.

        ``problem``: why that did not start, or None.
        """
        ...

    def folder(self, run_id: str) -> Path | None:
        """The folder of a run of this process; None for any other."""
        ...


def install(web_ui: WebUI, source: Source, *, base_path: str) -> None:
    """Add the page and the tab. Both ask for the login that Locust's own pages ask for.

    base_path: of ``--web-base-path``; empty, or with a slash at its beginning.
    """
    app = web_ui.app
    assert app is not None, "Locust makes its app before init"
    base = base_path.rstrip("/")
    pages = Blueprint("treadstone", __name__, url_prefix=f"{base}/treadstone")

    def page() -> Response:
        return send_file(_PAGE / "index.html", max_age=0)

    def asset(name: str) -> Response:
        if name == "charts.js":
            return send_file(_charts(), max_age=_DAY_SEC)
        if name not in ("page.js", "page.css"):
            abort(404)
        return send_file(_PAGE / name, max_age=0)

    def state() -> Response:
        return jsonify(source.view())

    def artifact(run_id: str, name: str) -> Response:
        folder = source.folder(run_id)
        if folder is None or name not in ARTIFACTS or not (folder / name).is_file():
            abort(404)
        return send_file((folder / name).resolve(), mimetype="text/plain", max_age=0)

    for rule, function in {
        "": page,
        "/state.json": state,
        "/assets/<name>": asset,
        "/files/<run_id>/<name>": artifact,
    }.items():
        pages.add_url_rule(rule, function.__name__, web_ui.auth_required_if_enabled(function))
    app.register_blueprint(pages)
    _add_tab(web_ui, base)

    @app.after_request
    def add(response: Response) -> Response:
        if response.status_code == 200 and incoming.path == f"{base}/stats/requests":
            stats = response.get_json(silent=True)
            if isinstance(stats, dict):  # else it is the page that asks for a login
                stats["extended_stats"] = [{"key": _TAB, "data": rows(source.view())}]
                response.set_data(json.dumps(stats))
        elif response.status_code == 200 and incoming.path == f"{base}/" and response.mimetype == "text/html":
            link = _LINK.format(base=base)
            response.set_data(response.get_data(as_text=True).replace("</body>", f"{link}</body>"))
        return response


def _charts() -> Path:
    """Plotly's script, in its installed package; the package itself need not be loaded."""
    found = find_spec("plotly")
    assert found is not None, "plotly is in requirements.txt"
    assert found.origin is not None, "it is no namespace"
    return Path(found.origin).parent / "package_data" / "plotly.min.js"


def _add_tab(web_ui: WebUI, base: str) -> None:
    structure = [{"key": key, "title": title} for key, title in _COLUMNS.items()]
    web_ui.template_args["extended_tabs"] = [{"title": "Sandboxes", "key": _TAB}]
    web_ui.template_args["extended_tables"] = [{"key": _TAB, "structure": structure}]
    web_ui.template_args["extended_csv_files"] = [
        {"href": f"{base}/treadstone", "title": "Sandboxes, live: charts, clean-up, and the files of the run"}
    ]


def rows(view: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of the tab: by template and state, errors by kind, clean-up."""
    run = view["run"]
    if run is None:
        return []
    live, cleanup = run["live"], run["cleanup"]
    found = [
        {"what": row["template"], "count": row["submitted"], **{state: row[state] for state in State}}
        for row in live["templates"]
    ]
    found += [
        {"what": f"error in {row['step']}: {row['error']}", "count": row["count"], **_blank()}
        for row in live["errors"]
    ]
    found += [
        {"what": f"{row['kind']} {row['name']}: {row['failed']} failed", "count": row["count"], **_blank()}
        for row in live["others"]
    ]
    if cleanup is not None and cleanup["ran"]:
        what = "clean-up: all gone" if cleanup["verified"] else "clean-up: still to be removed"
        found.append({"what": what, "count": cleanup["remaining"], **_blank()})
    return found


def _blank() -> dict[str, str]:
    return dict.fromkeys(State, "")
