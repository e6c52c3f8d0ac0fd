"""A key for each account of a store: ``python -m prep.api_keys``.

Logs in with each account's password and makes a key, whose secret the server tells only once. Can be
interrupted and repeated: a key that works stays, one that was revoked or has expired is made anew, and one
whose answer was lost is revoked before another one is made.
"""

from __future__ import annotations

import re
import sys
from typing import Any

from prep.api import Login
from prep.commandline import Work, add_from_file, counted, index, open_work_from, parser, run_command
from treadstone_user.assets import Key, User
from treadstone_user.exitcode import ExitCode
from treadstone_user.transports.base import AuthError, BadOutput, ConfigError, Forbidden

SCOPES: dict[str, dict[str, Any] | None] = {
    "all": None,
    "control": {"control_plane": True, "data_plane": {"mode": "none", "sandbox_ids": []}},
    "data": {"control_plane": False, "data_plane": {"mode": "all", "sandbox_ids": []}},
}
_UNITS = {"m": 60, "h": 3600, "d": 86400}


def main(arguments: list[str] | None = None) -> int:
    """Make keys; returns the exit code."""
    made = parser("api_keys", __doc__)
    add_from_file(made)
    add = made.add_argument
    add(
        "--scope",
        choices=tuple(SCOPES),
        default="all",
        help="what the keys open: the API, the sandboxes, all",
    )
    add("--expires-in", metavar="AGE", help="until the keys expire, such as 12h or 30d (default: never)")
    add("--name", help="of the keys (default: loadtest-STORE)")
    options = made.parse_args(arguments)

    def command() -> ExitCode:
        lifetime = None if options.expires_in is None else read_lifetime(options.expires_in)
        work = open_work_from("api_keys", options)
        name = options.name or f"loadtest-{work.store.run_id}"
        return make_keys(work, name=name, scope=SCOPES[options.scope], lifetime_sec=lifetime)

    return run_command(command)


def read_lifetime(text: str) -> int:
    """Seconds of an age such as ``12h`` or ``30d``. Raises `ConfigError`."""
    match = re.fullmatch(r"([0-9]{1,6})([mhd])", text)
    if match is None or not int(match[1]):
        raise ConfigError(f"--expires-in: {text!r} is not an age such as 90m, 12h or 30d")
    return int(match[1]) * _UNITS[match[2]]


def make_keys(work: Work, *, name: str, scope: dict[str, Any] | None, lifetime_sec: int | None) -> ExitCode:
    """Make a key for each account that has none that works."""
    store = work.store
    body: dict[str, Any] = {"name": name}
    if scope is not None:
        body["scope"] = scope
    if lifetime_sec is not None:
        body["expires_in"] = lifetime_sec

    keys: dict[str, Key] = index(store.api_keys, lambda key: key.email)

    def make(user: User) -> Key:
        if user.email in keys and _works(work, keys[user.email]):
            return keys[user.email]
        login = work.api.log_in(user.email, user.password)
        listed = work.api.object("GET", "/v1/auth/api-keys", login).get("items", [])
        for row in listed:
            if row.get("name") == name:  # its secret was never heard
                work.api.call("DELETE", f"/v1/auth/api-keys/{row['id']}", login)
        answer = work.api.object("POST", "/v1/auth/api-keys", login, json=body, tries=1)
        if not isinstance(answer.get("key"), str):
            raise BadOutput("the server made a key and did not tell its secret")
        return Key(user.email, str(answer["id"]), answer["key"], name, answer.get("expires_at"))

    def take(_: User, key: Key) -> None:
        keys[key.email] = key
        store.api_keys = list(keys.values())

    work.run("keys", store.users, make, name=lambda user: user.email, take=take)
    place = {user.email: number for number, user in enumerate(store.users)}
    store.api_keys.sort(key=lambda key: place.get(key.email, len(place)))
    line = f"{counted(len(store.api_keys), 'key')} for {counted(len(store.users), 'account')}"
    return work.end(
        line, f"python -m prep.sandboxes --store {work.path}, or `accounts: {work.path}` in a scenario"
    )


def _works(work: Work, key: Key) -> bool:
    try:
        work.api.call("GET", "/v1/auth/user", Login(key=key.key))
    except AuthError:
        return False
    except Forbidden:  # it opens something else
        return True
    return True


if __name__ == "__main__":
    sys.exit(main())
