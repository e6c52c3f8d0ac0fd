"""The CLI is found in a fixed order, told apart from other programs, or installed."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version as installed_version
from pathlib import Path

import pytest

from treadstone_user import binary
from treadstone_user.binary import Binary, find_binary, read_version
from treadstone_user.transports.base import ConfigError

REAL = Path(sys.executable).parent / "treadstone"
SYSTEM = {"PATH": "/usr/bin:/bin"}
TODO = "pip install treadstone-cli"


def program(path: Path, body: str) -> Path:
    """An executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def cli(path: Path, version: str) -> Path:
    """A stand-in that answers --version as the CLI does."""
    return program(path, f"echo 'treadstone, version {version}'")


INSTALLER = """\
#!/bin/sh
set -e
env | sort > "$TREADSTONE_INSTALL_DIR/environment"
cat > "$TREADSTONE_INSTALL_DIR/treadstone" <<END
#!/bin/sh
echo "treadstone, version ${TREADSTONE_VERSION#v}"
END
chmod +x "$TREADSTONE_INSTALL_DIR/treadstone"
"""


@dataclass
class Site:
    """What a web server on this machine answers, by path."""

    url: str
    pages: dict[str, tuple[int, Mapping[str, str], bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def put(self, path: str, body: str, *, status: int = 200, **headers: str) -> str:
        """Answer a path so from now on; returns its URL."""
        self.pages[path] = (status, headers, body.encode())
        return self.url + path


@pytest.fixture
def site() -> Iterator[Site]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            pages.asked.append(self.path)
            status, headers, body = pages.pages.get(self.path, (404, {}, b"no such page"))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    pages = Site(f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield pages
    server.shutdown()
    server.server_close()


@dataclass
class Search:
    """A search with a cache folder of its own, and no CLI beside Python unless told."""

    cache: Path
    announced: list[str] = field(default_factory=list)

    def find(
        self,
        *,
        explicit: str | None = None,
        version: str = "latest",
        url: str = "http://127.0.0.1:1/install.sh",
        env: Mapping[str, str] = SYSTEM,
    ) -> Binary:
        """`find_binary`, by default of any version and with an installer that nobody serves."""
        return find_binary(
            explicit=explicit,
            version=version,
            cache=self.cache,
            installer_url=url,
            env=env,
            announce=self.announced.append,
        )


@pytest.fixture
def search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Search:
    (tmp_path / "python").mkdir()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python" / "python3"))
    return Search(tmp_path / ".bin")


def test_the_real_cli_tells_its_version() -> None:
    assert read_version(REAL, dict(os.environ)) == installed_version("treadstone-cli")


def test_a_program_of_unknown_identity_sees_no_credential(tmp_path: Path) -> None:
    path = program(tmp_path / "treadstone", "env")
    env = {**SYSTEM, "TREADSTONE_API_KEY": "sk-1", "AWS_SECRET_ACCESS_KEY": "s", "GH_TOKEN": "t", "LANG": "C"}
    with pytest.raises(ConfigError) as caught:
        read_version(path, env)
    assert "LANG=C" in str(caught.value) or "PATH=" in str(caught.value)
    for secret in ("sk-1", "SECRET", "TOKEN"):
        assert secret not in str(caught.value)


NOT_THE_CLI = [
    # what it proves, the program's body, what the error says
    ("another program", "echo 'treadstone 1.0, a boot maker'", "said: treadstone 1.0, a boot maker"),
    ("a program that fails", "echo 'treadstone, version 1.0'; exit 3", "exit code 3"),
    ("a silent program", "true", "no output"),
    ("a program that writes no text", r"printf '\377\376'", "exit code 0"),
]


@pytest.mark.parametrize(
    ("body", "says"), [row[1:] for row in NOT_THE_CLI], ids=[row[0] for row in NOT_THE_CLI]
)
def test_another_program_is_not_the_cli(body: str, says: str, tmp_path: Path) -> None:
    path = program(tmp_path / "treadstone", body)
    with pytest.raises(ConfigError) as caught:
        read_version(path, SYSTEM)
    assert str(caught.value).startswith(f"{path} is not the treadstone CLI: ")
    assert says in str(caught.value)


def test_a_warning_does_not_hide_the_version(tmp_path: Path) -> None:
    """Whatever else is printed, one line is the CLI's."""
    path = program(tmp_path / "treadstone", "echo 'warning: old' >&2; echo 'treadstone, version 1.2.3'")
    assert read_version(path, SYSTEM) == "1.2.3"


def test_what_hangs_is_ended_with_all_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time limit holds for the whole process group."""
    monkeypatch.setattr(binary, "_VERSION_TIMEOUT", 0.5)
    path = program(tmp_path / "treadstone", f"sleep 60 & echo $! > {tmp_path}/child; wait")
    with pytest.raises(ConfigError, match="no answer to --version"):
        read_version(path, SYSTEM)
    child = int((tmp_path / "child").read_text())
    for _ in range(100):
        if not is_running(child):
            break
        time.sleep(0.02)
    assert not is_running(child)


def is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_child_that_keeps_the_output_open_does_not_hold_us_up(tmp_path: Path) -> None:
    path = program(tmp_path / "treadstone", "sleep 5 & echo 'treadstone, version 1.0'")
    started = time.monotonic()
    assert read_version(path, SYSTEM) == "1.0"
    assert time.monotonic() - started < 3


def test_the_end_of_the_output_is_read_after_the_program_has_ended(tmp_path: Path) -> None:
    """What fits the pipe may all be unread at that moment."""
    body = "head -c 60000 /dev/zero | tr '\\0' x; echo; echo 'treadstone, version 1.0'"
    assert read_version(program(tmp_path / "treadstone", body), SYSTEM) == "1.0"


def test_a_flood_of_output_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary, "_VERSION_TIMEOUT", 0.5)
    with pytest.raises(ConfigError, match="no answer to --version"):
        read_version(program(tmp_path / "treadstone", "yes"), SYSTEM)


def test_an_explicit_binary_goes_before_all(search: Search, tmp_path: Path) -> None:
    cli(search.cache / "treadstone", "0.9.3")
    named = cli(tmp_path / "mine", "1.0.0")
    assert search.find(explicit=str(named)) == Binary(named, "1.0.0", "--binary")


def test_an_explicit_binary_may_be_a_relative_path(
    search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the file of that name, never one on the PATH, and stays so after a change of folder."""
    monkeypatch.chdir(tmp_path)
    named = cli(tmp_path / "treadstone", "1.0.0")
    elsewhere = cli(tmp_path / "elsewhere" / "treadstone", "2.0.0")
    env = {"PATH": f"{elsewhere.parent}:/usr/bin:/bin"}
    assert search.find(explicit="treadstone", env=env) == Binary(named, "1.0.0", "--binary")


@pytest.mark.parametrize("wanted", ["0.9.3", "v0.9.3", "latest"])
def test_a_version_fits_with_or_without_its_v(wanted: str, search: Search, tmp_path: Path) -> None:
    assert search.find(explicit=str(cli(tmp_path / "a", "0.9.3")), version=wanted).version == "0.9.3"
    assert search.find(explicit=str(cli(tmp_path / "b", "v0.9.3")), version=wanted).version == "v0.9.3"


def test_an_explicit_binary_that_does_not_fit_is_told_with_both_versions(
    search: Search, tmp_path: Path
) -> None:
    named = cli(tmp_path / "mine", "0.9.2")
    with pytest.raises(ConfigError, match=r"is version 0\.9\.2, and version 0\.9\.3 is wanted"):
        search.find(explicit=str(named), version="v0.9.3")


def test_an_explicit_binary_must_be_an_executable_file(search: Search, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("")
    (tmp_path / "noise").write_bytes(b"\x7f")
    (tmp_path / "noise").chmod(0o755)
    for name, says in [
        ("no", "there is no such file"),
        (".", "there is no such file"),
        ("text", "not executable"),
        ("noise", "cannot be started: Exec format error"),
        ("a\0b", "there is no such file"),
        ("x" * 300, "there is no such file"),
    ]:
        with pytest.raises(ConfigError, match=says):
            search.find(explicit=str(tmp_path / name))


@pytest.mark.parametrize("wanted", ["", "new", "../0.9.3", "0.9.3;id", "v", "0.9.3\n"])
def test_a_version_is_a_number(wanted: str, search: Search) -> None:
    """It ends up in the installer's URL."""
    with pytest.raises(ConfigError, match=r"must be latest or a number such as 0\.9\.3"):
        search.find(version=wanted)


def test_the_order_is_cache_beside_python_path(search: Search, tmp_path: Path) -> None:
    """Each place counts once those before it hold nothing that fits."""
    on_path = cli(tmp_path / "path" / "treadstone", "1.0")
    env = {"PATH": f"{on_path.parent}:/usr/bin:/bin"}
    assert search.find(env=env) == Binary(on_path, "1.0", "PATH")
    beside = cli(tmp_path / "python" / "treadstone", "1.0")
    assert search.find(env=env) == Binary(beside, "1.0", "beside python")
    cached = cli(search.cache / "treadstone", "1.0")
    assert search.find(env=env) == Binary(cached, "1.0", "cache")
    assert search.announced == []
    cli(cached, "0.9")
    program(beside, "echo something else")
    assert search.find(env=env, version="1.0") == Binary(on_path, "1.0", "PATH")
    assert search.announced[0] == f"Passed over: {cached} is version 0.9, and 1.0 is wanted."
    assert search.announced[1].startswith(f"Passed over: {beside} is not the treadstone CLI")


def test_a_place_that_is_listed_twice_is_asked_once(search: Search, tmp_path: Path) -> None:
    """An activated virtual environment is both beside Python and on the PATH."""
    beside = cli(tmp_path / "python" / "treadstone", "0.9")
    with pytest.raises(ConfigError):
        search.find(version="1.0", env={"PATH": f"{beside.parent}:/usr/bin:/bin"})
    assert [said for said in search.announced if str(beside) in said] == [
        f"Passed over: {beside} is version 0.9, and 1.0 is wanted."
    ]


def test_only_the_given_environment_counts(
    search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CLI on this process's own PATH is not looked for."""
    on_path = cli(tmp_path / "path" / "treadstone", "1.0")
    monkeypatch.setenv("PATH", f"{on_path.parent}:/usr/bin:/bin")
    for env in ({}, {"PATH": ""}, SYSTEM):
        with pytest.raises(ConfigError, match=TODO):
            search.find(env=env)


def test_the_installer_runs_announced_and_without_credentials(search: Search, site: Site) -> None:
    """It is told the folder and the release's tag, and leaves a CLI that answers."""
    url = site.put("/install.sh", INSTALLER)
    env = {**SYSTEM, "TREADSTONE_API_KEY": "sk-1", "TREADSTONE_VERSION": "v7", "HOME": "/nowhere"}
    found = search.find(version="0.9.3", url=url, env=env)
    assert found == Binary(search.cache / "treadstone", "0.9.3", "installer")
    told = f"Installing the treadstone CLI, version 0.9.3, into {search.cache} with {url}"
    assert search.announced == [told]
    seen = (search.cache / "environment").read_text().splitlines()
    assert f"TREADSTONE_INSTALL_DIR={search.cache}" in seen
    assert "TREADSTONE_VERSION=v0.9.3" in seen
    assert "HOME=/nowhere" in seen
    assert not [line for line in seen if "sk-1" in line]
    assert search.find(version="0.9.3", url=url) == Binary(found.path, "0.9.3", "cache")
    assert site.asked == ["/install.sh"]


def test_the_installer_may_be_redirected_on_this_machine(search: Search, site: Site) -> None:
    site.put("/releases/install.sh", INSTALLER)
    url = site.put("/install.sh", "", status=302, Location="/releases/install.sh")
    assert search.find(url=url).version == "latest"
    assert site.asked == ["/install.sh", "/releases/install.sh"]


BAD_INSTALLERS = [
    # what it proves, the page's status, headers and body, what the error says
    ("no such page", 404, {}, "", "answered 404"),
    ("a server's failure", 500, {}, INSTALLER, "answered 500"),
    ("a web page", 200, {}, "<!doctype html>", "is not a shell script"),
    ("nothing", 200, {}, "", "is not a shell script"),
    ("a script without end", 200, {}, "#!/bin/sh\n" + "#" * 1_000_000, "is larger than 1000000 bytes"),
    ("plain http", 302, {"Location": "http://treadstone.example/"}, "", "must come over https"),
    ("a file", 302, {"Location": "file:///etc/passwd"}, "", "must come over https"),
    ("a circle", 302, {"Location": "/install.sh"}, "", "redirects more than 5 times"),
    ("no address", 302, {"Location": "http://[::1/"}, "", "cannot be fetched"),
    (
        "a failure",
        200,
        {},
        "#!/bin/sh\necho begun\necho no disk >&2\nexit 4",
        "exit code 4:\nbegun\nno disk\n",
    ),
    ("a script that installs nothing", 200, {}, "#!/bin/sh", "cannot be started: No such file"),
    (
        "another version",
        200,
        {},
        INSTALLER.replace("${TREADSTONE_VERSION#v}", "0.1"),
        "it brought version 0.1, and 0.9.3 is wanted",
    ),
]


@pytest.mark.parametrize(
    ("status", "headers", "body", "says"),
    [row[1:] for row in BAD_INSTALLERS],
    ids=[row[0] for row in BAD_INSTALLERS],
)
def test_a_bad_installer_is_told_with_what_to_do_next(
    status: int, headers: Mapping[str, str], body: str, says: str, search: Search, site: Site
) -> None:
    url = site.put("/install.sh", body, status=status, **headers)
    with pytest.raises(ConfigError) as caught:
        search.find(version="0.9.3", url=url)
    told = str(caught.value)
    assert told.startswith(f"The treadstone CLI was not installed by {url}: ")
    assert says in told
    assert told.endswith("install it with `pip install treadstone-cli==0.9.3`, or name one with --binary")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://127.0.0.1:1/install.sh", "cannot be fetched"),
        ("http://treadstone.example/install.sh", "must come over https"),
        ("http://127.0.0.1.treadstone.example/install.sh", "must come over https"),
        ("ftp://127.0.0.1/install.sh", "must come over https"),
        ("install.sh", "must come over https"),
        ("https://", "cannot be fetched"),
    ],
)
def test_an_installer_that_may_not_be_fetched(url: str, says: str, search: Search) -> None:
    """Only https, and http from this machine."""
    with pytest.raises(ConfigError, match=says) as caught:
        search.find(url=url)
    assert TODO in str(caught.value)


def test_an_installer_that_hangs_is_ended(
    search: Search, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binary, "_INSTALL_TIMEOUT", 0.5)
    url = site.put("/install.sh", "#!/bin/sh\nsleep 60")
    with pytest.raises(ConfigError, match=f"took more than .*{TODO}"):
        search.find(url=url)


def test_a_cache_folder_that_cannot_be_made(search: Search, site: Site) -> None:
    search.cache.write_text("a file")
    with pytest.raises(ConfigError, match=TODO):
        search.find(url=site.put("/install.sh", INSTALLER))


def test_the_real_cli_is_found_beside_python(tmp_path: Path) -> None:
    """As `pip install -r requirements.txt` leaves it."""
    found = Search(tmp_path / ".bin").find(env=dict(os.environ), version=installed_version("treadstone-cli"))
    assert found == Binary(REAL, installed_version("treadstone-cli"), "beside python")
    assert shutil.which(found.path) is not None
