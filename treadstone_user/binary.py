"""The treadstone CLI: found where it may already be, or installed by its official installer.

Looked for in this order: ``--binary``, the project's cache folder, beside this Python, the
``PATH``, the installer. The environment is an argument throughout, and neither a program whose
identity is not yet known nor the installer sees a credential in it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import gevent
import requests
from gevent import subprocess
from gevent.os import nb_read

from treadstone_user.transports.base import ConfigError

INSTALLER_URL = "https://treadstone-ai.dev/install.sh"
"""The official installer; it reads TREADSTONE_INSTALL_DIR and TREADSTONE_VERSION (``v0.9.3``)."""

LATEST = "latest"
"""The version that any binary fits."""

_NAME = "treadstone"
_VERSION_OUTPUT = re.compile(rf"^{_NAME}, version (\S+)\s*$", re.MULTILINE)
_VERSION = re.compile(r"v?(\d[0-9A-Za-z.+-]*)")
_CREDENTIAL = re.compile(r"TREADSTONE_|KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)

_VERSION_TIMEOUT = 20.0  # seconds; a start-up takes 0.4 s of CPU, and more on a busy machine
_INSTALL_TIMEOUT = 300.0
_DOWNLOAD_TIMEOUT = 30.0
_MAX_SCRIPT = 1_000_000  # bytes
_MAX_OUTPUT = 20_000  # bytes kept of a program's output, the last ones
_MAX_REDIRECTS = 5


@dataclass(frozen=True, slots=True)
class Binary:
    """A CLI that answered; `source` says where it was found, in the words of this module."""

    path: Path
    version: str
    source: str


def find_binary(
    *,
    explicit: str | None,
    version: str,
    cache: Path,
    installer_url: str = INSTALLER_URL,
    env: Mapping[str, str],
    announce: Callable[[str], None],
) -> Binary:
    """The CLI of the wanted version, with or without a leading v, or of any with ``latest``.

    `announce` is told, in a sentence, what is passed over and what is installed.
    `ConfigError` says what to do when there is none.
    """
    wanted = _bare_version(version)
    if explicit is not None:
        return _explicit(Path(explicit).absolute(), wanted, env)
    for source, path in _candidates(cache, env):
        try:
            found = read_version(path, env)
        except ConfigError as error:
            announce(f"Passed over: {error}")
            continue
        if _fits(found, wanted):
            return Binary(path, found, source)
        announce(f"Passed over: {path} is version {found}, and {wanted} is wanted.")
    return _install(wanted, cache.absolute(), installer_url, env, announce)


def read_version(path: Path, env: Mapping[str, str]) -> str:
    """The version that a CLI gives for itself; `ConfigError` when it is something else."""
    try:
        ended = _run(
            [str(path.absolute()), "--version"], env=_without_credentials(env), timeout=_VERSION_TIMEOUT
        )
    except subprocess.TimeoutExpired:
        raise _not_the_cli(path, f"no answer to --version in {_VERSION_TIMEOUT:.0f} s") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be started: {getattr(error, 'strerror', None) or error}") from error
    found = _VERSION_OUTPUT.search(ended.output)
    if ended.code != 0 or found is None:
        said = _last_lines(ended.output, count=3) or "no output"
        raise _not_the_cli(path, f"--version ended with exit code {ended.code} and said: {said}")
    return found[1]


def _not_the_cli(path: Path, why: str) -> ConfigError:
    return ConfigError(f"{path} is not the treadstone CLI: {why}")


def _bare_version(version: str) -> str:
    if version == LATEST:
        return version
    match = _VERSION.fullmatch(version)
    if match is None:
        raise ConfigError(f"the CLI version must be {LATEST} or a number such as 0.9.3, not {version!r}")
    return match[1]


def _fits(found: str, wanted: str) -> bool:
    return wanted in (LATEST, found.removeprefix("v"))


def _explicit(path: Path, wanted: str, env: Mapping[str, str]) -> Binary:
    if not os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises on names no file can have
        raise ConfigError(f"--binary {path}: there is no such file")
    if not os.access(path, os.X_OK):
        raise ConfigError(f"--binary {path}: the file is not executable")
    found = read_version(path, env)
    if not _fits(found, wanted):
        raise ConfigError(f"--binary {path} is version {found}, and version {wanted} is wanted")
    return Binary(path, found, "--binary")


def _candidates(cache: Path, env: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Where a CLI may already be, each executable once."""
    on_path = shutil.which(_NAME, path=env.get("PATH", ""))
    places = [
        ("cache", (cache / _NAME).absolute()),
        ("beside python", Path(sys.executable).parent / _NAME),
        *([("PATH", Path(on_path).absolute())] if on_path else []),
    ]
    seen: set[Path] = set()
    for source, path in places:
        if path not in seen and path.is_file() and os.access(path, os.X_OK):
            seen.add(path)
            yield source, path


def _install(
    wanted: str, cache: Path, url: str, env: Mapping[str, str], announce: Callable[[str], None]
) -> Binary:
    """Run the official installer into the cache folder, and see what came of it."""
    pinned = "" if wanted == LATEST else f"=={wanted}"
    todo = f"install it with `pip install treadstone-cli{pinned}`, or name one with --binary"
    announce(f"Installing the treadstone CLI, version {wanted}, into {cache} with {url}")
    try:
        script = _download(url, env)
        cache.mkdir(parents=True, exist_ok=True)
        ended = _run_script(script, {**_without_credentials(env), **_installer_settings(wanted, cache)})
        if ended.code != 0:
            raise ConfigError(
                f"it ended with exit code {ended.code}:\n{_last_lines(ended.output, count=10)}\n"
            )
        path = cache / _NAME
        found = read_version(path, env)
        if not _fits(found, wanted):
            raise ConfigError(f"it brought version {found}, and {wanted} is wanted")
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"The installer {url} took more than {_INSTALL_TIMEOUT:.0f} s; {todo}") from error
    except (ConfigError, OSError) as error:
        raise ConfigError(f"The treadstone CLI was not installed by {url}: {error}; {todo}") from error
    return Binary(path, found, "installer")


def _installer_settings(wanted: str, cache: Path) -> dict[str, str]:
    """The installer takes a release's tag, which begins with v."""
    tag = wanted if wanted == LATEST else f"v{wanted}"
    return {"TREADSTONE_INSTALL_DIR": str(cache), "TREADSTONE_VERSION": tag}


def _run_script(script: bytes, env: Mapping[str, str]) -> _Ended:
    with tempfile.TemporaryDirectory(prefix="treadstone-install-") as folder:
        file = Path(folder) / "install.sh"
        file.write_bytes(script)
        return _run(["sh", str(file)], env=env, timeout=_INSTALL_TIMEOUT)


def _download(url: str, env: Mapping[str, str]) -> bytes:
    """A shell script, over https or from this machine; `ConfigError` for all else."""
    deadline = time.monotonic() + _DOWNLOAD_TIMEOUT
    here = url
    try:
        with requests.Session() as session:
            session.trust_env = False  # no .netrc, and no environment but the one that was given
            session.verify = env.get("REQUESTS_CA_BUNDLE") or env.get("CURL_CA_BUNDLE") or True
            for _ in range(_MAX_REDIRECTS + 1):
                _check_scheme(here, start=url)
                proxies = _proxies(here, env)
                response = session.get(here, timeout=10, stream=True, allow_redirects=False, proxies=proxies)
                with response:
                    if response.is_redirect:
                        here = urljoin(here, response.headers["Location"])
                        continue
                    if response.status_code != requests.codes.ok:
                        raise ConfigError(f"{here} answered {response.status_code}")
                    return _script_of(response, deadline)
    except (requests.RequestException, ValueError) as error:  # ValueError: not a URL at all
        raise ConfigError(f"{here} cannot be fetched: {error}") from error
    raise ConfigError(f"it redirects more than {_MAX_REDIRECTS} times")


def _check_scheme(url: str, *, start: str) -> None:
    """An installer comes over https; over http only from this machine, and only if asked for so."""
    allowed = "https" if urlsplit(start).scheme == "https" or not _is_loopback(url) else "http"
    if urlsplit(url).scheme not in ("https", allowed):
        raise ConfigError(f"an installer must come over https, and this is {url}")


def _proxies(url: str, env: Mapping[str, str]) -> dict[str, str]:
    proxy = env.get("HTTPS_PROXY") or env.get("https_proxy")
    return {"https": proxy} if proxy and not _is_loopback(url) else {}


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _script_of(response: requests.Response, deadline: float) -> bytes:
    script = b""
    for chunk in response.iter_content(4096):
        script += chunk
        if len(script) > _MAX_SCRIPT:
            raise ConfigError(f"{response.url} is larger than {_MAX_SCRIPT} bytes")
        if time.monotonic() > deadline:
            raise ConfigError(f"{response.url} took more than {_DOWNLOAD_TIMEOUT:.0f} s")
    if not script.startswith(b"#!"):
        raise ConfigError(f"{response.url} is not a shell script")
    return script


def _without_credentials(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if not _CREDENTIAL.search(name)}


@dataclass(frozen=True, slots=True)
class _Ended:
    code: int
    output: str


def _run(command: Sequence[str], *, env: Mapping[str, str], timeout: float) -> _Ended:
    """Run a program in a process group of its own, which is killed when it does not end in time.

    Its output is drained by a greenlet that keeps the end of it: a program that floods does not
    fill the memory, and one that leaves a child with the pipe behind does not hold us up.
    """
    process = subprocess.Popen(
        command,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    kept = bytearray()
    assert process.stdout is not None
    drain = gevent.spawn(_keep_end, process.stdout.fileno(), kept)
    try:
        process.wait(timeout=timeout)
    except BaseException:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
        raise
    finally:
        drain.join(timeout=1)
        drain.kill()
        process.stdout.close()
    return _Ended(process.returncode, kept.decode(errors="replace"))


def _keep_end(descriptor: int, kept: bytearray) -> None:
    while chunk := nb_read(descriptor, _MAX_OUTPUT):
        kept += chunk
        del kept[:-_MAX_OUTPUT]


def _last_lines(output: str, *, count: int) -> str:
    return "\n".join(output.strip().splitlines()[-count:])
