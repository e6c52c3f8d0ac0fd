"""The form and the live page in a real browser: what a person sees, and how fast."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterator
from typing import Any

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from tests.browser import Browser, browser, needs_browser
from tests.runs import Run, free_port
from tests.test_e2e_webui import WebUi, web_run
from treadstone_user.live import Live

pytestmark = needs_browser

PROFILE = "ready=uniform(1,5) gone=uniform(1,3) seed=1"
HOSTILE = "<img src=x onerror='window.hacked = true'><b>bold</b>"


@pytest.fixture(scope="module")
def locust(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Run, WebUi]]:
    """Locust's web UI without a scenario, for all tests of this file."""
    port = free_port()
    arguments = ["-u", "15", "-r", "15", "--transport", "http", "--local", "--local-profile", PROFILE]
    with web_run(tmp_path_factory.mktemp("locust"), port, *arguments) as run:
        web = WebUi(port)
        run.until(lambda _: web.is_up())
        yield run, web


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests of this file."""
    with browser(tmp_path_factory.mktemp("browser") / "profile") as opened:
        yield opened


def start(window: Browser, scenario: str) -> None:
    """Fill in Locust's form, which is on the page, and press start."""
    driver = window.driver
    window.until(lambda: driver.find_elements(By.NAME, "scenario"))
    accordion = driver.find_element(By.XPATH, "//button[contains(., 'Custom parameters')]")
    accordion.send_keys(Keys.ENTER)
    field = driver.find_element(By.NAME, "scenario")
    window.until(field.is_displayed)
    Select(field).select_by_visible_text(scenario)
    driver.find_element(By.XPATH, "//button[@type='submit']").submit()


def test_a_run_from_the_form_to_its_files_and_a_second_one(
    locust: tuple[Run, WebUi], window: Browser
) -> None:
    """Choose a scenario, watch the sandboxes come, get ready and go, and open what is left in the folder."""
    run, web = locust
    driver = window.driver
    window.open(f"{web.url}/treadstone")
    window.until_shown("Start a run in Locust's form", "#headline")
    driver.find_element(By.PARTIAL_LINK_TEXT, "Locust").click()
    start(window, "pilot_stateless")
    run.until_event("create_submitted")
    driver.find_element(By.PARTIAL_LINK_TEXT, "live").click()

    window.until_shown("of 15 sandboxes ready", "#headline")
    seen: set[str] = set()

    def cleaning_up() -> bool:
        seen.add(window.text("#headline"))
        return any("Cleaning up" in headline for headline in seen)

    window.until(cleaning_up)
    ready = {found[1] for headline in seen if (found := re.match(r"(\d+) of 15 sandboxes ready", headline))}
    assert len(ready) > 1, "it moved"
    window.until_shown("15 of 15 sandboxes got ready", "#headline")
    window.until_shown("all are gone", "#headline")
    assert "All 15 sandboxes that were found are gone" in window.text("#cleanup")

    window.until(lambda: len(window.texts("#files a")) == 4)
    result = run.only
    page = driver.current_url
    for name in ("run.json", "summary.json", "events.jsonl", "truth.jsonl"):
        driver.find_element(By.LINK_TEXT, name).click()
        assert window.text("pre").strip() == (result.path / name).read_text().strip()
        driver.back()
        window.until(lambda: window.texts("#files a"))
    assert driver.current_url == page

    web.until_state("stopped")
    window.open(web.url)
    window.until(lambda: driver.find_elements(By.XPATH, "//button[contains(., 'New')]"))
    driver.find_element(By.XPATH, "//button[contains(., 'New')]").click()
    start(window, "pilot_stateless")
    window.open(page)
    window.until(lambda: len(run.all) == 2 and run.all[1].path.name in window.text("#facts"))
    window.until_shown("15 of 15 sandboxes got ready", "#headline")
    window.until_shown("all are gone", "#headline")


def view(live: Live, now_ms: float = 180_000.0, **more: Any) -> dict[str, Any]:
    """What the server says of a run with these events."""
    run: dict[str, Any] = {
        "run_id": "20260101-000000",
        "label": "loadtest:run-20260101-000000",
        "phase": "running",
        "ending": None,
        "scenario": "burst",
        "planned": 10_000,
        "base_url": "http://127.0.0.1:9",
        "transport": "http",
        "started_at": "2026-01-01T00:00:00.000Z",
        "elapsed_ms": now_ms,
        "live": live.snapshot(now_ms),
        "cleanup": None,
        "remedy": "remove them with: python -m treadstone_user sweep 20260101-000000",
        "verdict": None,
        "health": [],
        "folder": "results/20260101-000000",
        "files": [],
    }
    return {"run": run | more, "problem": None, "preparing": False}


def burst(count: int, template: str = "aio-sandbox-tiny") -> Live:
    """So many sandboxes of which every fiftieth fails."""
    live = Live(timeout_ms=900_000)
    for number in range(count):
        sent, took = number * 5.0, 4000.0 + (number * 7919) % 60_000
        about = {"task": number, "template": template, "persist": False, "storage_size": None}
        live.add({"event": "create_submitted", "t_ms": sent, **about})
        about |= {"sandbox_id": f"s{number}"}
        live.add({"event": "create_ok", "t_ms": sent + 10, "latency_ms": 10.0, **about})
        if number % 50:
            live.add({"event": "ready", "t_ms": sent + took, "ready_latency_ms": took, **about})
        else:
            failed = {"event": "failed_status", "last_status": template, "waited_ms": took}
            live.add({"t_ms": sent + took, **failed, **about})
    return live


@pytest.fixture
def page(locust: tuple[Run, WebUi], window: Browser) -> Browser:
    """The live page, which from now on shows what a test tells it to."""
    window.open(f"{locust[1].url}/treadstone")
    window.until(lambda: window.text("#headline") not in ("", "Loading…"))
    window.until(lambda: window.run("return Boolean(window.Plotly)"))
    window.run("window.fetch = () => new Promise(() => {})")
    return window


def show(page: Browser, shown: dict[str, Any]) -> float:
    """Draw it; returns how long that took, in ms, layout and painting included."""
    script = """
        const [text, done] = arguments, began = performance.now();
        show(JSON.parse(text));
        requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
    """
    took: float = page.driver.execute_async_script(script, json.dumps(shown))
    return took


def test_ten_thousand_sandboxes_are_drawn_in_300_ms(page: Browser) -> None:
    """Bins and not points. The median of nine, as others may use the machine at the same time."""
    shown = view(burst(10_000))
    took = [show(page, shown) for _ in range(9)]
    assert "9,800 of 10,000 sandboxes ready" in page.text("#headline")
    assert page.run("return document.querySelectorAll('.chart svg .trace').length") >= 5
    assert statistics.median(took) < 300, took


def test_foreign_text_is_shown_as_text(page: Browser) -> None:
    """A label, a template or an error may hold anything: nothing of it becomes HTML."""
    texts: dict[str, Any] = {"label": HOSTILE, "scenario": HOSTILE, "base_url": HOSTILE, "folder": HOSTILE}
    problem = {"ran": True, "verified": False, "problem": HOSTILE, "passes": 1, "found": 1, "remaining": 1}
    shown = view(burst(100, HOSTILE), **texts, phase="finished", ending="completed", cleanup=problem)
    show(page, shown)
    for place in ("#facts", "#next", "#templates", "#errors", "#cleanup", "#files"):
        assert HOSTILE in page.text(place), place
    assert page.run("return window.hacked") is None
    assert page.run("return document.querySelectorAll('img, td b, dd b').length") == 0


def test_what_is_left_is_named_with_a_command_that_can_be_copied(page: Browser) -> None:
    """The first thing that is read, with nothing stuck to the command."""
    left = {"ran": True, "verified": False, "problem": "3 still in the list", "found": 9, "remaining": 3}
    show(page, view(burst(100), phase="finished", ending="completed", cleanup=left))
    assert "3 still in the list" in page.text("#next")
    assert page.text("#next").endswith("python -m treadstone_user sweep 20260101-000000")


def test_a_run_in_which_sandboxes_failed_stands_out(page: Browser) -> None:
    """All being gone is not all being well."""
    over = {"ran": True, "verified": True, "problem": None, "found": 100, "remaining": 0}
    show(page, view(burst(100), phase="finished", ending="completed", planned=100, cleanup=over))
    assert page.text("#headline") == "98 of 100 sandboxes got ready, 2 did not; all are gone"
    assert page.run("return document.querySelector('#phase').classList.contains('bad')")


def test_a_run_that_is_prepared_or_refused_is_told(page: Browser) -> None:
    """A preflight takes seconds in which the last run must not be taken for the new one."""
    last = view(burst(100), phase="finished", ending="completed")
    show(page, last | {"preparing": True})
    assert "being prepared" in page.text("#headline")
    assert page.text("#facts") == ""
    assert page.run("return document.querySelector('main').offsetHeight") == 0
    show(page, last | {"problem": HOSTILE})
    assert "did not start" in page.text("#headline")
    assert page.text("#next") == HOSTILE


def test_a_second_that_has_only_begun_does_not_make_a_rate(page: Browser) -> None:
    """The last bin is a part of a second: its count is not multiplied."""
    live = Live(timeout_ms=900_000)
    about = {"template": "tiny", "persist": False, "storage_size": None}
    for number in range(8):
        live.add({"event": "create_submitted", "t_ms": 4100.0, "task": number, **about})
    show(page, view(live, now_ms=4200.0))
    assert "At most 8.0 creates sent" in page.text("#rates-text")


def test_dark_narrow_and_for_a_screen_reader(page: Browser) -> None:
    """No sideways scrolling on a phone, colours of the system, a text beside each chart."""
    show(page, view(burst(300)))
    light = page.run("return getComputedStyle(document.body).backgroundColor")
    dark = {"name": "prefers-color-scheme", "value": "dark"}
    page.emulate("setEmulatedMedia", features=[dark])
    assert page.run("return getComputedStyle(document.body).backgroundColor") != light
    page.emulate("setEmulatedMedia", features=[])
    page.emulate("setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=1, mobile=False)
    show(page, view(burst(300)))
    # Charts follow the window a moment later.
    page.until(lambda: page.run("return document.documentElement.scrollWidth") <= 360, timeout=10)
    page.emulate("clearDeviceMetricsOverride")
    charts = page.texts(".chart + .says, .beside + .says")
    assert len(charts) == page.run("return document.querySelectorAll('.chart').length") == 3
    assert all(charts)
    landmarks = page.run(
        "return ['header', 'main', 'nav', 'h1'].map((n) => document.querySelectorAll(n).length)"
    )
    assert landmarks == [1, 1, 1, 1]
    assert page.run("return document.querySelector('[role=status]').textContent")


def test_the_charts_are_not_waited_for(locust: tuple[Run, WebUi], window: Browser) -> None:
    """Their script is large: figures and texts are there before it, or without it."""
    window.driver.execute_cdp_cmd("Network.enable", {})
    window.driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": ["*charts.js*"]})
    try:
        window.open(f"{locust[1].url}/treadstone")
        window.until(lambda: window.text("#headline") not in ("", "Loading…"))
        show(window, view(burst(100)))
        assert "98 of 10,000 sandboxes ready" in window.text("#headline")
        assert "98 ready" in window.text("#states-text")
        assert window.texts(".chart svg") == []
    finally:
        window.driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": []})
        window.complaints()
    window.open(f"{locust[1].url}/treadstone")
    window.until(lambda: window.run("return Boolean(window.Plotly)"))


def test_nothing_is_fetched_from_elsewhere(locust: tuple[Run, WebUi], window: Browser) -> None:
    """The page works without a network, and the browser has nothing to complain about."""
    window.complaints()
    window.open(f"{locust[1].url}/treadstone")
    window.until(lambda: window.text("#headline") not in ("", "Loading…"))
    asked = window.run("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert len(asked) >= 4
    assert [name for name in asked if not name.startswith(locust[1].url)] == []
    assert window.complaints() == []
