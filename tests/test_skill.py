"""The skill is true: each recipe of its cookbook runs as it stands, and its commands are there."""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import requests
import yaml

from tests.prepared import Prep
from tests.runs import LOCUST, ROOT, clean_environment, free_port
from tests.s3 import S3
from tests.servers import LocalServer
from treadstone_user.signing import tc3_canonical_request, tc3_signature

SKILL = ROOT / ".agents" / "skills" / "treadstone-loadtest"
COOKBOOK = (SKILL / "references" / "locust-cookbook.md").read_text()
SAID = (SKILL / "SKILL.md").read_text()
TC3_KEY = "tc3-secret-of-a-test"


@dataclass(frozen=True)
class Recipe:
    """A section: its files by name, and the command that runs them."""

    title: str
    files: dict[str, str]
    command: str
    needs_plugin: bool


def _recipes() -> Iterator[Recipe]:
    on_plugin, _, alone = COOKBOOK.partition("\n## Self-contained\n")
    for text, needs_plugin in ((on_plugin, True), (alone, False)):
        for section in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
            blocks = re.findall(r"```(\w+)\n(.*?)```", section, re.DOTALL)
            files = {
                block.partition("\n")[0].removeprefix("# file: "): block.partition("\n")[2]
                for kind, block in blocks
                if kind != "console"
            }
            (command,) = [block for kind, block in blocks if kind == "console"]
            title = section.partition("\n")[0]
            yield Recipe(title, files, command.strip().removeprefix("$ "), needs_plugin)


RECIPES = list(_recipes())
EXPECTED = {
    # what Locust's table must hold of each recipe that is a locustfile
    "own_class.py": ["templates", "1_create aio-sandbox-tiny", "4_delete aio-sandbox-tiny"],
    "signed.py": ["0_bucket", "1_put"],
    "lifecycle.py": [f"{step} aio-sandbox-tiny" for step in ("1_create", "2_ready", "3_exec", "4_delete")],
    "stream.py": ["first_output", "longest_gap"],
    "tc3.py": ["ListSandboxes"],
    "sigv4.py": ["1_put", "2_list"],
    "rows.py": ["1_read /v1/usage", "1_read /health"],
    "first_answer.yaml": ["3_exec aio-sandbox-tiny"],
    "queries.yaml": ["list", "get"],
    "chat.yaml": ["first output /v1/chat/completions"],
}


class _Gateway(BaseHTTPRequestHandler):
    """Lets those through whose TC3 signature is right."""

    def do_POST(self) -> None:
        """Check the signature with the code that the published vectors hold true."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        names = ("content-type", "host", "x-tc-action")
        signed = {name: self.headers[name] for name in names}
        sent = requests.Request("POST", f"http://{signed['host']}{self.path}", data=body).prepare()
        digest = hashlib.sha256(tc3_canonical_request(sent, signed).encode()).hexdigest()
        said = self.headers["Authorization"]
        scope = said.partition("Credential=")[2].partition(",")[0].partition("/")[2]
        date, service, _ = scope.split("/")
        text = f"TC3-HMAC-SHA256\n{self.headers['X-TC-Timestamp']}\n{scope}\n{digest}"
        right = said.endswith(tc3_signature(TC3_KEY, date, service, text))
        self.send_response(200 if right else 401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def _gateway() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", free_port()), _Gateway)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module", name="kitchen")
def _kitchen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Everything that a recipe may need, as its environment: a server with assets, a store, a gateway."""
    folder = tmp_path_factory.mktemp("kitchen")
    profile = "ready=fixed(0.5) gone=fixed(0.1)"
    with LocalServer(profile=profile) as server, S3(folder / "s3") as s3, _gateway() as gateway:
        prep = Prep(server, folder)
        prep.ready(2)
        code, said = prep.run("sandboxes", "--count", "2")
        assert code == 0, said
        (folder / "results").mkdir()
        (folder / "results" / "assets.json").write_text(prep.store.read_text())
        sandbox = prep.content["sandboxes"][0]
        (key,) = [key for key in prep.content["api_keys"] if key["email"] == sandbox["email"]]
        yield {
            "FOLDER": str(folder),
            "TREADSTONE_BASE_URL": server.base_url,
            "TREADSTONE_API_KEY": key["key"],
            "SANDBOX_PROXY": sandbox["proxy"],
            "GATEWAY_URL": gateway,
            "TC3_SECRET_ID": "AKIDx",
            "TC3_SECRET_KEY": TC3_KEY,
            **s3.environment,
        }


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.title)
def test_a_recipe_runs_as_it_stands(recipe: Recipe, kitchen: dict[str, str]) -> None:
    """Its command ends well, nothing fails, and Locust's table holds what it is about."""
    folder = Path(kitchen["FOLDER"])
    for name, text in recipe.files.items():
        (folder / name).write_text(text)
    environment = clean_environment(folder, **kitchen)
    environment["PATH"] = f"{LOCUST.parent}:{environment['PATH']}"
    if recipe.needs_plugin:  # it is run in the repository, whose locustfile is then the one that is found
        environment |= {"PYTHONPATH": str(ROOT), "LOCUST_LOCUSTFILE": str(ROOT / "locustfile.py")}
    done = subprocess.run(
        recipe.command,
        shell=True,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert "Traceback" not in output
    expected = next(names for name, names in EXPECTED.items() if name in recipe.files)
    for name in expected:
        assert re.search(rf"{re.escape(name)} +[1-9]\d* +0\(0\.00%\)", output), f"{name} in:\n{output}"
    there = requests.get(
        f"{kitchen['TREADSTONE_BASE_URL']}/v1/sandboxes",
        headers={"Authorization": f"Bearer {kitchen['TREADSTONE_API_KEY']}"},
        timeout=10,
    ).json()
    assert there["total"] == 2, "those that were prepared, and nothing of the recipe's"


def test_every_recipe_is_expected_to_do_something() -> None:
    """A recipe that is added is held to its figures, too."""
    files = [name for recipe in RECIPES for name in recipe.files]
    assert len(files) == len(set(files))
    assert all(any(name in EXPECTED for name in recipe.files) for recipe in RECIPES)
    assert len(RECIPES) == len(EXPECTED)


def test_the_skill_says_when_to_use_it() -> None:
    """Its front matter has a name, its folder's, and the words that people use."""
    head = yaml.safe_load(SAID.split("---\n")[1])
    assert head["name"] == SKILL.name
    words = ["performance", "load", "stress test", "benchmark", "压测", "性能测试", "429", "poll timeouts"]
    for word in [*words, "stalls", "auth failures", "leftovers"]:
        assert word in " ".join(head["description"].split()), word
    assert len(head["description"]) <= 1024


def test_what_the_skill_names_is_there() -> None:
    """Each module, scenario and file that a command of it names."""
    for module in re.findall(r"python -m ([\w.]+)", SAID):
        assert (ROOT / module.replace(".", "/")).with_suffix(".py").exists() or (
            ROOT / module.replace(".", "/") / "__main__.py"
        ).exists(), module
    for scenario in re.findall(r"--scenario ([a-z_]+)", SAID):
        assert (ROOT / "scenarios" / f"{scenario}.yaml").exists(), scenario
    for link in re.findall(r"\]\(([^)#]+)\)", SAID):
        assert (SKILL / link).exists(), link
