"""The live page and the tab, by the requests that a browser makes; `test_browser` has a real one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests as http

from tests.runs import Run, free_port, scenario_file
from tests.test_e2e_webui import WebUi, web_run

FAST = ["--local", "--transport", "http", "--local-profile", "ready=fixed(0.3) gone=fixed(0.1) seed=1"]


class Page:
    """The live page of a Locust process."""

    def __init__(self, port: int, base: str = "") -> None:
        self._url = f"http://127.0.0.1:{port}{base}/treadstone"

    def get(self, path: str = "", **more: Any) -> http.Response:
        """Ask for a part of it."""
        return http.get(self._url + path, timeout=10, **more)

    def state(self) -> dict[str, Any]:
        """What it draws."""
        content: dict[str, Any] = self.get("/state.json").json()
        return content


@pytest.fixture
def locust(tmp_path: Path) -> Iterator[tuple[Run, WebUi, Page]]:
    """Locust's web UI with a scenario of four sandboxes from the command line."""
    port = free_port()
    web = WebUi(port)
    scenario = scenario_file(tmp_path, 4, poll_interval_sec=0.2)
    with web_run(tmp_path, port, "--scenario", scenario, *FAST) as run:
        run.until(lambda _: web.is_up())
        yield run, web, Page(port)


def test_the_page_before_a_run_while_it_goes_and_after_it(locust: tuple[Run, WebUi, Page]) -> None:
    """It begins empty, moves with the run, and keeps the last one; its files are those of the folder."""
    run, web, page = locust
    assert page.state() == {"run": None, "problem": None, "preparing": False}
    html = page.get()
    assert html.ok
    assert "text/html" in html.headers["Content-Type"]
    assert page.get("/assets/page.js").ok
    assert page.get("/assets/page.css").ok
    charts = page.get("/assets/charts.js")
    assert len(charts.content) > 1_000_000
    assert "max-age=86400" in charts.headers["Cache-Control"]

    web.start(4)
    run.until(lambda _: (page.state()["run"] or {}).get("phase") == "running")
    run.until_said("results in")
    shown = page.state()["run"]
    result = run.only
    assert (shown["phase"], shown["ending"], shown["planned"]) == ("finished", "completed", 4)
    assert shown["live"]["totals"] == {"submitted": 4, "starting": 0, "ready": 0, "failed": 0, "deleted": 4}
    assert shown["live"]["time_to_ready_ms"] == result.overall["time_to_ready_ms"], "as in the summary"
    assert shown["cleanup"]["verified"] is True
    assert shown["verdict"] == result.summary["verdict"]
    assert {file["name"] for file in shown["files"]} == {
        "run.json",
        "summary.json",
        "events.jsonl",
        "truth.jsonl",
    }
    for file in shown["files"]:
        got = page.get(f"/files/{shown['run_id']}/{file['name']}")
        assert got.content == (result.path / file["name"]).read_bytes()
        assert len(got.content) == file["bytes"]


def test_only_the_artifacts_of_own_runs_are_served(locust: tuple[Run, WebUi, Page]) -> None:
    """No other file of the folder, no other folder, no path."""
    run, web, page = locust
    web.start(4)
    run.until_said("results in")
    folder = run.only.path
    run_id = folder.name
    (folder / "secret.txt").write_text("x")
    (run.results / "other").mkdir()
    (run.results / "other" / "run.json").write_text("{}")
    for path in (
        f"/files/{run_id}/secret.txt",
        f"/files/{run_id}/..%2F..%2Fscenario.yaml",
        "/files/other/run.json",
        "/files/../run.json",
        f"/files/{run_id}/",
        "/assets/..%2Fwebui.py",
        "/assets/index.html",
    ):
        assert page.get(path).status_code in (404, 405), path
    (folder / "summary.json").unlink()
    assert page.get(f"/files/{run_id}/summary.json").status_code == 404
    assert "summary.json" not in {file["name"] for file in page.state()["run"]["files"]}


def test_the_tab_in_locusts_own_page(locust: tuple[Run, WebUi, Page]) -> None:
    """By template and state, errors, clean-up; and a link to the live page."""
    run, web, _ = locust
    web.start(4)
    run.until_said("results in")
    rows = next(table["data"] for table in web.stats()["extended_stats"] if table["key"] == "sandboxes")
    assert rows[0] == {
        "what": "aio-sandbox-tiny",
        "count": 4,
        "starting": 0,
        "ready": 0,
        "failed": 0,
        "deleted": 4,
    }
    assert rows[-1]["what"] == "clean-up: all gone"
    html = http.get(web.url, timeout=10).text
    assert 'href="/treadstone"' in html
    arguments = json.loads(html.split("window.templateArgs = ", 1)[1].split("\n", 1)[0])
    assert arguments["extended_tabs"] == [{"title": "Sandboxes", "key": "sandboxes"}]


def test_the_form_offers_the_scenarios_by_name(locust: tuple[Run, WebUi, Page]) -> None:
    """And a steady load; the one of the command line is chosen; no other option of ours is there."""
    _, web, _ = locust
    html = http.get(web.url, timeout=10).text
    options = json.loads(html.split("window.templateArgs = ", 1)[1].split("\n", 1)[0])["extra_options"]
    assert list(options) == ["scenario"]
    names = sorted(path.stem for path in Path("scenarios").glob("*.yaml"))
    given = options["scenario"]["default_value"]
    assert given.endswith("scenario.yaml")
    assert options["scenario"]["choices"] == ["none: a steady load", *names, given]


def test_a_run_with_the_scenario_that_the_form_has_chosen(locust: tuple[Run, WebUi, Page]) -> None:
    """From the names in scenarios/; and the next run may have another one, or none."""
    run, web, page = locust
    web.start(15, scenario="pilot_stateless")
    run.until_said("results in")
    shown = page.state()["run"]
    assert (shown["scenario"], shown["planned"]) == ("pilot-stateless", 15)
    assert run.only.overall["ready"] == 15
    web.until_state("stopped")
    web.start(1, scenario="none: a steady load")
    run.until_event("delete_ok", 15 + 2)
    web.stop()
    assert page.state()["run"]["planned"] is None
    assert page.state()["run"]["cleanup"]["verified"] is True


@pytest.mark.parametrize(
    "chosen", ["../../etc/passwd", "/etc/passwd", "scenarios/pilot_stateless.yaml", "nonsense"]
)
def test_a_scenario_that_is_no_name_is_refused(tmp_path: Path, chosen: str) -> None:
    """Locust hands over whatever a request says: a path is not even looked at."""
    port = free_port()
    web, page = WebUi(port), Page(port)
    with web_run(tmp_path, port, *FAST) as run:
        run.until(lambda _: web.is_up())
        web.start(1, scenario=chosen)
        run.until_said("the run does not start: no scenario")
        assert chosen in page.state()["problem"]
        assert run.all == []
        assert "Traceback" not in run.output


def test_a_request_changes_nothing_but_the_scenario(tmp_path: Path) -> None:
    """Program, results, server, transport, clean-up, the way it ends: all as the command line says."""
    port = free_port()
    web = WebUi(port)
    elsewhere = tmp_path / "elsewhere"
    with web_run(tmp_path, port, "--scenario", "pilot_stateless", *FAST) as run:
        run.until(lambda _: web.is_up())
        web.start(
            15,
            host="http://127.0.0.1:9",
            base_url="http://127.0.0.1:9",
            binary="/bin/false",
            results_dir=elsewhere,
            transport="cli",
            local="false",
            local_profile="ready=never",
            no_cleanup="true",
            treadstone_config="/nowhere",
            installer_url="http://127.0.0.1:9",
            template="aio-sandbox-large",
            approve_remote="true",
            headless="true",
            dry_run="true",
        )
        run.until_said("results in")
        web.until_state("stopped")
        assert web.is_up(), "a run that is headless would have ended the process"
    result = run.only
    assert not elsewhere.exists()
    assert result.overall["ready"] == result.overall["deleted_ok"] == 15
    assert result.run["transport"] == "http"
    assert result.run["base_url"].startswith("http://127.0.0.1:")
    assert result.run["base_url"] != "http://127.0.0.1:9"


def test_the_page_behind_a_base_path(tmp_path: Path) -> None:
    """As behind a gateway: everything of it lies below that path."""
    port = free_port()
    page = Page(port, base="/load")
    with web_run(tmp_path, port, "--web-base-path", "/load", *FAST) as run:
        run.until(lambda _: WebUi(port, "/load").is_up())
        assert page.get().ok
        assert page.state() == {"run": None, "problem": None, "preparing": False}
        assert page.get("/assets/page.js").ok
        assert Page(port).get().status_code == 404
        assert 'href="/load/treadstone"' in http.get(f"http://127.0.0.1:{port}/load/", timeout=10).text


LOGIN = """
import runpy
from flask_login import UserMixin
from locust import events

globals().update(runpy.run_path({locustfile!r}))


class Somebody(UserMixin):
    def get_id(self):
        return "somebody"


@events.init.add_listener
def _(environment, **_):
    environment.web_ui.app.secret_key = "test"
    environment.web_ui.login_manager.user_loader(lambda user_id: Somebody())
"""


def test_the_page_asks_for_the_login_of_locusts_own_pages(tmp_path: Path) -> None:
    """Nothing of it is shown to somebody who has not logged in."""
    port = free_port()
    page = Page(port)
    locustfile = tmp_path / "locustfile.py"
    locustfile.write_text(LOGIN.format(locustfile=str(Path("locustfile.py").resolve())))
    with web_run(tmp_path, port, "-f", str(locustfile), "--web-login", *FAST) as run:
        run.until(lambda _: WebUi(port, "/login").is_up())
        for path in ("", "/state.json", "/assets/page.js", "/assets/charts.js", "/files/x/run.json"):
            answer = page.get(path, allow_redirects=False)
            assert (answer.status_code, answer.headers["Location"].split("?")[0]) == (302, "/login"), path
