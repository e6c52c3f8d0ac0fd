"""Which server a run speaks to is decided by one table, and another machine's is never taken unasked."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadstone_user.settings import (
    CLI_DEFAULT_BASE_URL,
    REMOTE_LIMIT,
    BaseUrl,
    check_remote,
    read_base_url,
    resolve_base_url,
    steady_scenario,
)
from treadstone_user.transports.base import ConfigError

OPTION = "http://option:1"
VARIABLE = "http://variable:2"
HOST = "http://host:3"
FILE = "http://file:4"
OWN = "http://own:5"
DEFAULT = CLI_DEFAULT_BASE_URL

PRECEDENCE: list[tuple[str, str | None, str | None, str | None, str | None, str | None, str, str]] = [
    # what it proves; --base-url, TREADSTONE_BASE_URL, --host, config file, the CLI's own; url, source
    ("the option first", OPTION, VARIABLE, None, FILE, OWN, OPTION, "--base-url"),
    ("then the variable", None, VARIABLE, None, FILE, OWN, VARIABLE, "TREADSTONE_BASE_URL"),
    ("--host says the same as the option", None, None, HOST, FILE, OWN, HOST, "--host"),
    ("no variable overrules --host", None, VARIABLE, HOST, FILE, OWN, HOST, "--host"),
    ("both options may agree", HOST, None, HOST, FILE, OWN, HOST, "--base-url"),
    ("they agree with a slash, too", HOST + "/", None, HOST, FILE, OWN, HOST, "--base-url"),
    ("then the config file", None, None, None, FILE, OWN, FILE, "treadstone.config.yaml"),
    ("then the CLI's own file", None, None, None, None, OWN, OWN, "the CLI's config.toml"),
    ("at last the CLI's default", None, None, None, None, None, DEFAULT, "the CLI's default"),
    ("an empty option says nothing", "", None, None, FILE, OWN, FILE, "treadstone.config.yaml"),
    ("an empty --host says nothing", None, None, "", FILE, OWN, FILE, "treadstone.config.yaml"),
]


def _environment(home: Path, *, own: str | None = None, variable: str | None = None) -> dict[str, str]:
    folder = home / ".config" / "treadstone"
    folder.mkdir(parents=True)
    if own is not None:
        (folder / "config.toml").write_text(f'[default]\nbase_url = "{own}"\n')
    return {"HOME": str(home)} | ({} if variable is None else {"TREADSTONE_BASE_URL": variable})


@pytest.mark.parametrize(
    ("option", "variable", "host", "configured", "own", "url", "source"),
    [row[1:] for row in PRECEDENCE],
    ids=[row[0] for row in PRECEDENCE],
)
def test_who_names_the_server(
    option: str | None,
    variable: str | None,
    host: str | None,
    configured: str | None,
    own: str | None,
    url: str,
    source: str,
    tmp_path: Path,
) -> None:
    """The first that says something names the server, and its name is told."""
    found = resolve_base_url(
        option=variable if option is None else option,  # the option's parser reads the variable
        host=host,
        environment=_environment(tmp_path, own=own, variable=variable),
        configured=configured,
    )
    assert (found.url, found.source) == (url, source)
    assert found.named is (url != DEFAULT)


def test_options_that_disagree(tmp_path: Path) -> None:
    """Two options that name different servers are a mistake; neither wins."""
    with pytest.raises(ConfigError, match="disagree: give only one"):
        resolve_base_url(option=OPTION, host=HOST, environment=_environment(tmp_path), configured=None)


OWN_FILES = [
    # what it proves, the content of the CLI's config.toml, the server
    ("its default table counts", '[default]\nbase_url = "http://own:5/"\napi_key = "sk-x"', OWN),
    ("without a base_url it says nothing", '[default]\napi_key = "sk-x"', DEFAULT),
    ("an empty base_url says nothing", '[default]\nbase_url = ""', DEFAULT),
    ("other tables say nothing", 'base_url = "http://x"\n[other]\nbase_url = "http://y"', DEFAULT),
    ("a default that is no table says nothing", "default = 1", DEFAULT),
    ("an empty file says nothing", "", DEFAULT),
]


@pytest.mark.parametrize(("content", "url"), [row[1:] for row in OWN_FILES], ids=[r[0] for r in OWN_FILES])
def test_the_clis_own_file(content: str, url: str, tmp_path: Path) -> None:
    """The CLI's config.toml is read where the CLI reads it."""
    environment = _environment(tmp_path)
    (tmp_path / ".config" / "treadstone" / "config.toml").write_text(content)
    found = resolve_base_url(option=None, host=None, environment=environment, configured=None)
    assert found.url == url


BROKEN_FILES = [
    # what it proves, the content, what the error says
    ("no TOML", b"[default", r"config\.toml cannot be read"),
    ("no text", b'[default]\nbase_url = "\xff"', r"config\.toml cannot be read"),
    ("no address", b'[default]\nbase_url = "own:5"', r"the CLI's config\.toml: 'own:5' is not an address"),
    ("a number", b"[default]\nbase_url = 5", r"the CLI's config\.toml: '5' is not an address"),
]


@pytest.mark.parametrize(
    ("content", "says"), [row[1:] for row in BROKEN_FILES], ids=[row[0] for row in BROKEN_FILES]
)
def test_a_broken_file_of_the_cli(content: bytes, says: str, tmp_path: Path) -> None:
    """A file that cannot be read is told, but only where it would have been the one to say."""
    environment = _environment(tmp_path)
    (tmp_path / ".config" / "treadstone" / "config.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=says):
        resolve_base_url(option=None, host=None, environment=environment, configured=None)
    assert resolve_base_url(option=OPTION, host=None, environment=environment, configured=None).url == OPTION


def test_a_home_that_is_a_file(tmp_path: Path) -> None:
    """A home in which nothing can lie is told as well."""
    home = tmp_path / "home"
    home.write_text("")
    with pytest.raises(ConfigError, match=r"config\.toml cannot be read"):
        resolve_base_url(option=None, host=None, environment={"HOME": str(home)}, configured=None)


ADDRESSES = [
    # as given, as used
    ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
    ("http://127.0.0.1:8000/", "http://127.0.0.1:8000"),
    ("  https://x.example.com//  ", "https://x.example.com"),
    ("https://x.example.com/treadstone/", "https://x.example.com/treadstone"),
    ("http://[::1]:8000", "http://[::1]:8000"),
]


@pytest.mark.parametrize(("given", "used"), ADDRESSES)
def test_addresses_are_written_as_the_cli_does(given: str, used: str) -> None:
    """An address loses spaces around it and slashes at its end: saved sessions are found by it."""
    assert read_base_url(given, "--base-url") == BaseUrl(used, "--base-url")


NO_ADDRESSES = [
    # as given, what the error says
    ("127.0.0.1:8000", "is not an address like https"),
    ("localhost", "is not an address like https"),
    ("", "is not an address like https"),
    ("ftp://x", "is not an address like https"),
    ("http://", "is not an address like https"),
    ("http://:80", "is not an address like https"),
    ("http://[::1", "is not an address like https"),
    ("http://x:port", "is not an address like https"),
    ("http://x:99999", "is not an address like https"),
    ("http://user:Passw0rd@x", "leave user and password out"),
    ("http://user@x", "leave user and password out"),
    ("http://x/?a=1", "has a query or a fragment"),
    ("http://x?", "has a query or a fragment"),
    ("http://x/#a", "has a query or a fragment"),
]


@pytest.mark.parametrize(("given", "says"), NO_ADDRESSES)
def test_what_is_no_address(given: str, says: str) -> None:
    """What cannot be a server's address is refused, with the name of who said it."""
    with pytest.raises(ConfigError, match=f"^--host: .*{says}"):
        read_base_url(given, "--host")


PASSWORDS = [
    "http://me:Passw0rd@x",
    "ftp://me:Passw0rd@x",
    "me:Passw0rd@x",
    "http://me:Passw0rd@x:port",
    "http://me:Passw0rd@x?a",
]


@pytest.mark.parametrize("given", PASSWORDS)
def test_a_password_is_never_repeated(given: str) -> None:
    """Whatever is wrong with an address, a password in it is not printed."""
    with pytest.raises(ConfigError) as caught:
        read_base_url(given, "--base-url")
    assert "Passw0rd" not in str(caught.value)


HOSTS = [
    # address, whether it is this machine
    ("http://127.0.0.1:8000", True),
    ("http://127.1.2.3", True),
    ("http://[::1]:8000", True),
    ("http://localhost", True),
    ("http://LOCALHOST:8000", True),
    ("http://localhost.example.com", False),
    ("http://127.0.0.1.example.com", False),
    ("http://0.0.0.0", False),
    ("http://10.0.0.1", False),
    ("http://192.168.0.1", False),
    ("http://[fe80::1]", False),
    ("https://api.treadstone-ai.dev", False),
]


@pytest.mark.parametrize(("url", "here"), HOSTS)
def test_what_is_this_machine(url: str, here: bool) -> None:
    """Only loopback addresses are this machine; no name is looked up for that."""
    assert read_base_url(url, "--base-url").on_this_machine is here


THERE = BaseUrl("https://x.example.com", "--base-url")
HERE = BaseUrl("http://127.0.0.1:8000", "--base-url")
UNNAMED = BaseUrl(CLI_DEFAULT_BASE_URL, "the CLI's default", named=False)

LIMITS: list[tuple[str, BaseUrl, int, bool, str | None]] = [
    # what it proves, server, sandboxes, approved, what the error says
    ("this machine has no limit", HERE, 10_000, False, None),
    ("another has one", THERE, REMOTE_LIMIT, False, None),
    ("beyond it wants approval", THERE, REMOTE_LIMIT + 1, False, "21 sandboxes on https://x.example.com"),
    ("approval lifts it", THERE, 10_000, True, None),
    ("nobody named a server", UNNAMED, 1, False, "no server was named"),
    ("approval names none", UNNAMED, 1, True, "no server was named"),
]


@pytest.mark.parametrize(
    ("server", "sandboxes", "approved", "says"), [row[1:] for row in LIMITS], ids=[row[0] for row in LIMITS]
)
def test_other_machines(server: BaseUrl, sandboxes: int, approved: bool, says: str | None) -> None:
    """Load goes to another machine only if it was named, and beyond 20 sandboxes only if approved."""
    if says is None:
        check_remote(server, sandboxes=sandboxes, approved=approved)
    else:
        with pytest.raises(ConfigError, match=says):
            check_remote(server, sandboxes=sandboxes, approved=approved)


def test_a_steady_load_is_bound_by_its_users_alone() -> None:
    """Without a scenario file, one stateless variant is run and calls need not wait for each other."""
    scenario = steady_scenario("aio-sandbox-small")
    assert [(v.template, v.persist) for v in scenario.matrix] == [("aio-sandbox-small", False)]
    assert scenario.concurrency >= 10_000
