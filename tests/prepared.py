"""The commands that prepare, as processes, against a local server."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from tests.runs import ROOT, clean_environment
from tests.servers import API_KEY, LocalServer

ADMIN = {"TREADSTONE_ADMIN_EMAIL": "local@example.com", "TREADSTONE_ADMIN_PASSWORD": API_KEY}
"""The admin of a local server has its key as password."""


@dataclass(frozen=True)
class Prep:
    """Commands on one server and one store. `environment` is on top of a new user's."""

    server: LocalServer
    folder: Path

    @property
    def store(self) -> Path:
        """The store's file."""
        return self.folder / "deep" / "assets.json"

    @property
    def content(self) -> dict[str, Any]:
        """What the store holds."""
        content: dict[str, Any] = json.loads(self.store.read_text())
        return content

    def command(self, step: str, *arguments: str) -> list[str]:
        """A command's words."""
        return [sys.executable, "-m", f"prep.{step}", "--store", str(self.store), *arguments]

    def environment(self, **more: str) -> dict[str, str]:
        """A new user's, who knows the server and its admin."""
        self.folder.mkdir(parents=True, exist_ok=True)
        told = {"TREADSTONE_BASE_URL": self.server.base_url, **ADMIN, **more}
        return clean_environment(self.folder, **told)

    def run(self, step: str, *arguments: str, **environment: str) -> tuple[int, str]:
        """Run a command to its end; returns its exit code, and what it printed."""
        done = subprocess.run(
            self.command(step, *arguments),
            cwd=ROOT,
            env=self.environment(**environment),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout + done.stderr

    def ready(self, accounts: int, *, tier: str = "pro") -> None:
        """Have so many accounts with keys."""
        for step in (["users", "--count", str(accounts), "--tier", tier], ["api_keys"]):
            code, said = self.run(*step)
            assert code == 0, said

    def ask(self, path: str, key: str = API_KEY, method: str = "GET", **more: Any) -> Any:
        """Ask the server something."""
        headers = {"Authorization": f"Bearer {key}"}
        response = requests.request(method, self.server.base_url + path, headers=headers, timeout=10, **more)
        return response.json() if response.content else response.status_code

    def registered(self) -> int:
        """How many accounts the server has, with its own."""
        return int(self.ask("/v1/auth/users")["total"])
