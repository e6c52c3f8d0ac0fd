"""A browser for tests: Debian's Chromium, with a profile of its own that ends with the test."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")

needs_browser = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None,
    reason="no Chromium here: apt-get install chromium chromium-driver",
)

_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


class Browser:
    """A window of the browser; the page's own text is what a person reads."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        """Go to an address."""
        self.driver.get(url)

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script in the page and give what it returns."""
        return self.driver.execute_script(script, *arguments)

    def text(self, selector: str = "body") -> str:
        """What is shown of the first element that fits; empty where there is none."""
        found: str = self.run(
            "const e = document.querySelector(arguments[0]); return e ? e.innerText : ''", selector
        )
        return found

    def texts(self, selector: str) -> list[str]:
        """What is shown of each element that fits."""
        found: list[str] = self.run(
            "return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText)", selector
        )
        return found

    def until(self, condition: Callable[[], object], timeout: float = 30) -> None:
        """Wait for a condition; fails the test with what the page shows when it does not come true."""
        end = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > end:
                pytest.fail(f"waited in vain at {self.driver.current_url}:\n{self.text()}")
            time.sleep(0.05)

    def until_shown(self, text: str, selector: str = "body", timeout: float = 30) -> None:
        """Wait until an element shows a text."""
        self.until(lambda: text in self.text(selector), timeout)

    def emulate(self, command: str, **parameters: Any) -> None:
        """Have the browser pretend something, by the DevTools protocol's domain Emulation."""
        self.driver.execute_cdp_cmd(f"Emulation.{command}", parameters)

    def complaints(self) -> list[str]:
        """What the browser's console has complained about since the last time."""
        return [entry["message"] for entry in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]


@contextmanager
def browser(profile: Path, *, width: int = 1280, height: int = 800) -> Iterator[Browser]:
    """Open a browser. profile: a folder that is not there yet."""
    assert CHROMIUM is not None
    assert DRIVER is not None
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*_FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(executable_path=DRIVER))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
