"""How a run's accounts reach the server: one by the environment's credential, or many by their keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from treadstone_user.assets import load_assets
from treadstone_user.binary import Binary
from treadstone_user.clientwatch import usable_cores
from treadstone_user.preflight import measure_startup, nowhere
from treadstone_user.settings import read_base_url
from treadstone_user.transports.base import AuthError, ConfigError, PreflightError, Transport
from treadstone_user.transports.cli import CliTransport
from treadstone_user.transports.credentials import Credential, find_credential
from treadstone_user.transports.dataplane import DataPlane
from treadstone_user.transports.http import HttpTransport
from treadstone_user.transports.places import Places
from treadstone_user.transports.warm import warm_or_cold

_NAMED = 3


class Access:
    """How one account reaches the server.

    account: its e-mail address; None for that of the environment's credential.
    transport: what is measured. http: the same account over HTTP, for what the CLI has no command for.
    key: its API key; None for a login session.
    """

    def __init__(
        self, account: str | None, transport: Transport, http: HttpTransport, key: str | None
    ) -> None:
        self.account = account
        self.transport = transport
        self.http = http
        self._key = key

    @cached_property
    def plane(self) -> DataPlane:
        """The way into the account's sandboxes. Raises `AuthError` without a key: it takes no session."""
        return DataPlane(key=self._key)

    def close(self) -> None:
        """Close its connections into sandboxes."""
        if "plane" in self.__dict__:
            self.plane.close()


class Accesses:
    """The accounts of a run, in order. They share connections, places, and the CLI's processes."""

    def __init__(self, base_url: str, accesses: list[Access]) -> None:
        self.base_url = base_url
        self._by_account = {access.account: access for access in accesses}
        self.first = accesses[0]
        self.cli = self.first.transport if isinstance(self.first.transport, CliTransport) else None
        """The transport, where it is the CLI."""

    def __getitem__(self, account: str | None) -> Access:
        return self._by_account[account]

    def __iter__(self) -> Iterator[Access]:
        return iter(self._by_account.values())

    def __len__(self) -> int:
        return len(self._by_account)

    def proxy_of(self, sandbox_id: str) -> str:
        """Where the API puts a sandbox's proxy, should it not say so itself."""
        return f"{self.base_url}/v1/sandboxes/{sandbox_id}/proxy"

    def close(self) -> None:
        """Let go of all connections and processes; see `Transport.close`."""
        self.first.transport.close()
        self.first.http.close()
        for access in self:
            access.close()


def check_key(accesses: Accesses) -> None:
    """Raise `PreflightError` where there is no API key, which alone opens the proxies of sandboxes."""
    try:
        accesses.first.plane  # noqa: B018 - made when it is first asked for
    except AuthError as error:
        raise PreflightError(f"exec and streams: {error}. Set TREADSTONE_API_KEY") from error


@dataclass(frozen=True, slots=True)
class Accounts:
    """The accounts of a store: its file, its server, and the API keys by e-mail address, in its order."""

    path: str
    base_url: str
    keys: Mapping[str, str] = field(repr=False)


def read_accounts(path: str) -> Accounts:
    """The accounts of a store.

    Raises `TreadstoneError` where it cannot be read, or holds accounts without a key.
    """
    store = load_assets(Path(path))
    keys = {key.email: key.key for key in store.api_keys}
    accounts = [user.email for user in store.users] or list(keys)
    if not accounts:
        raise ConfigError(f"{path} holds no accounts: make some with python -m prep.users")
    without = [email for email in accounts if email not in keys]
    if without:
        named = ", ".join(without[:_NAMED]) + (", ..." if len(without) > _NAMED else "")
        raise ConfigError(
            f"{len(without)} of {len(accounts)} accounts in {path} have no key ({named}): "
            f"make them with python -m prep.api_keys --store {path}"
        )
    return Accounts(path, store.base_url, {email: keys[email] for email in accounts})


def connect_cli(
    binary: Binary,
    *,
    base_url: str,
    environment: Mapping[str, str],
    warm: bool | None = None,
    at_once: int = 5,
    startup_sec: float | None = None,
    say: Callable[[str], None],
) -> CliTransport:
    """A CLI transport with places for `at_once` calls.

    startup_sec: what starting the CLI takes on this machine; None has it measured first.
    """
    cores, environment = usable_cores(), _without_detour(environment, base_url)
    with nowhere() as refusing:
        launcher = warm_or_cold(binary.path, environment, wanted=warm, nowhere=refusing, say=say)
        try:
            if startup_sec is None:
                # In a run, a poll competes with as many creates as there are cores.
                startup_sec = measure_startup(launcher, base_url=refusing, at_once=cores + 1)
        except BaseException:
            launcher.close()
            raise
    kept = "kept warm, " if launcher.warm else ""
    say(f"treadstone {binary.version} ({binary.source}), {kept}starts in {startup_sec:.2f} s")
    return CliTransport(
        launcher=launcher,
        base_url=base_url,
        places=Places(in_flight=at_once, starting=cores, startup_sec=startup_sec),
    )


def connect(
    *,
    binary: Binary | None,
    warm_cli: bool | None,
    at_once: int,
    base_url: str,
    environment: Mapping[str, str],
    accounts: Accounts | None = None,
    startup_sec: float | None = None,
    say: Callable[[str], None],
) -> Accesses:
    """Ways to reach a server: by this CLI, or where that is None over HTTP.

    accounts: of a store; None for the one account of the environment's credential.
    Raises `ConfigError` for accounts of another server, which must not see their keys.
    """
    if accounts is not None and accounts.base_url != base_url:
        raise ConfigError(
            f"the accounts in {accounts.path} are of {accounts.base_url}, and this goes to {base_url}: "
            "name that server, or another store"
        )
    credential = find_credential(environment, base_url) if accounts is None else None
    places = Places(in_flight=at_once, starting=at_once)
    http = HttpTransport(base_url=base_url, credential=credential, places=places)
    if binary is None:
        proxies = sorted(name for name in environment if name.lower() in ("http_proxy", "https_proxy"))
        if proxies and not read_base_url(base_url, "the server").on_this_machine:
            say(f"--transport http goes straight to the server: {', '.join(proxies)} is not heard")
        cli = None
    else:
        cli = connect_cli(
            binary,
            base_url=base_url,
            environment=environment,
            warm=warm_cli,
            at_once=at_once,
            startup_sec=startup_sec,
            say=say,
        )
    if accounts is None:
        key = credential.api_key if credential else None
        return Accesses(base_url, [Access(None, cli or http, http, key)])
    return Accesses(base_url, [_with_key(email, key, cli, http) for email, key in accounts.keys.items()])


def _with_key(email: str, key: str, cli: CliTransport | None, http: HttpTransport) -> Access:
    own = http.with_credential(Credential.of_key(key))
    return Access(email, cli.with_key(key) if cli else own, own, key)


def _without_detour(environment: Mapping[str, str], base_url: str) -> dict[str, str]:
    """The environment with this machine exempt from any proxy; no proxy at all for a server on it."""
    if read_base_url(base_url, "the server").on_this_machine:
        return {name: value for name, value in environment.items() if not name.lower().endswith("_proxy")}
    names = ("NO_PROXY", "no_proxy")
    exempt = [environment[name] for name in names if environment.get(name)][:1]
    return {**environment, **dict.fromkeys(names, ",".join([*exempt, "127.0.0.1", "localhost", "::1"]))}
