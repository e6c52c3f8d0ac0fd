"""Takes down what a store lists, in the right order: sandboxes, keys, accounts. ``python -m prep.remove``.

Accounts go by the admin of the environment (TREADSTONE_ADMIN_EMAIL and TREADSTONE_ADMIN_PASSWORD); the server
refuses to delete one of which a sandbox has ever been ready. What is gone leaves the store at once; what is
left stays in it, and the exit code is 5. An account keeps its key until a whole list of it shows nothing of
the store or of a run. Can be interrupted and repeated.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from prep.api import Login
from prep.commandline import Work, counted, find_admin, open_work, parser, run_command, say
from prep.listing import label_of, list_loadtest
from treadstone_user.assets import Key, User
from treadstone_user.exitcode import ExitCode
from treadstone_user.model import run_label
from treadstone_user.transports.base import (
    AuthError,
    ConfigError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    ServerError,
    TransportError,
    TreadstoneError,
)

CONFLICT = 409
_GIVE_UP_SEC = 120.0
_LOOK_SEC = 0.5
_TRIES = 3
"""Lists of an account that may fail in a row, each of which has been tried again already."""


class StillThere(TreadstoneError):
    """An account whose sandboxes have not gone in time."""

    kind = "still_there"


def main(arguments: list[str] | None = None) -> int:
    """Remove; returns the exit code."""
    made = parser("remove", __doc__)
    made.add_argument("--keep-users", action="store_true", help="leave the accounts, and their keys")
    options = made.parse_args(arguments)

    def command() -> ExitCode:
        work = open_work("remove", options, may_make=False)
        admin = None if options.keep_users else find_admin(work.api)
        if admin is None and not options.keep_users and work.store.users:
            say("no admin in the environment: the accounts stay")
        return remove(work, admin, keep_users=options.keep_users)

    return run_command(command)


def remove(work: Work, admin: Login | None, *, keep_users: bool) -> ExitCode:
    """Take everything down, and say what is left."""
    store = work.store
    busy = _Sandboxes(work).remove()
    if not keep_users:
        _remove_keys(work, busy)
        if admin is not None:
            _remove_users(work, admin, busy)
    left = len(store.sandboxes) + (0 if keep_users else len(store.api_keys) + len(store.users))
    parts = (
        f"{counted(len(store.sandboxes), 'sandbox')}, {counted(len(store.api_keys), 'key')} and "
        f"{counted(len(store.users), 'account')} left"
    )
    if not left and not keep_users:
        following = f"nothing: {work.path} may be removed"
    elif keep_users:
        following = f"python -m prep.sandboxes --store {work.path}, or another run on its accounts"
    else:
        following = f"say who the admin is and run this again: {work.path} alone knows the passwords"
    hint = "run the same command again to try what failed"
    if any(failed.status == CONFLICT for failed in work.failed):
        say("the server keeps accounts of which a sandbox has ever been ready")
        hint = "use them again, and next time say --keep-users, which leaves accounts and keys as they are"
    code = work.end(parts.replace("sandboxs", "sandboxes"), following, hint)
    failed = any(failed.step == work.step for failed in work.failed)
    return ExitCode.LEFT_BEHIND if left or failed else code


class _Sandboxes:
    """Deletes what carries the store's label, until a whole list of each account shows none any more."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._label = run_label(work.store.run_id)
        self._passwords = {user.email: user.password for user in work.store.users if user.user_id}
        self._logins = {key.email: Login(key=key.key) for key in work.store.api_keys}
        self._unclear = {*self._passwords, *self._logins, *(one.email for one in work.store.sandboxes)}
        self._failures: Counter[str] = Counter()
        self._others: dict[str, Counter[str]] = {}

    def remove(self) -> set[str]:
        """Remove them; returns the accounts whose keys are still of use. Raises `Interrupted`."""
        until = time.monotonic() + _GIVE_UP_SEC
        busy: set[str] = set()
        while self._unclear and time.monotonic() < until:
            last: dict[str, TreadstoneError] = {}
            self._work.look(sorted(self._unclear), self._one_pass, self._take, last.__setitem__)
            for email, error in last.items():
                self._failures[email] += 1
                if self._failures[email] >= _TRIES or not isinstance(error, TransportError | ServerError):
                    self._unclear.discard(email)
                    busy.add(email)
                    self._work.fail(email, error)
            if self._unclear:
                say(f"sandboxes of {counted(len(self._unclear), 'account')} are being deleted")
                time.sleep(_LOOK_SEC)
        for email in sorted(self._unclear):
            self._work.fail(email, StillThere(f"its sandboxes are still there after {_GIVE_UP_SEC:g} s"))
        runs: Counter[str] = Counter()
        for labels in self._others.values():
            runs.update(labels)
        for label, count in runs.items():
            run_id = label.removeprefix(run_label(""))
            say(f"the accounts have {count} of run {run_id}, and keep their keys; take those down with")
            say(f"  python -m treadstone_user sweep {run_id} --accounts {self._work.path}")
        return busy | self._unclear | {email for email, labels in self._others.items() if labels}

    def _one_pass(self, email: str) -> Sequence[dict[str, Any]]:
        rows = self._list(email)
        for row in rows:
            if label_of(row) == self._label and row.get("status") != "deleting":
                try:
                    self._work.api.call("DELETE", f"/v1/sandboxes/{row['id']}", self._logins[email])
                except (NotFound, Conflict):
                    continue
        return rows

    def _list(self, email: str) -> list[dict[str, Any]]:
        """By the account's key, or by its password where that opens nothing."""
        known, password = self._logins.get(email), self._passwords.get(email)
        if known is not None:
            try:
                return list_loadtest(self._work.api, known)
            except (AuthError, Forbidden):
                if password is None:
                    raise
        if password is None:
            raise ConfigError("it has neither a key nor a password here")
        self._logins[email] = self._work.api.log_in(email, password)
        return list_loadtest(self._work.api, self._logins[email])

    def _take(self, email: str, rows: Sequence[dict[str, Any]]) -> None:
        store = self._work.store
        self._failures.pop(email, None)
        self._others[email] = Counter(label for row in rows if (label := label_of(row)) != self._label)
        if not any(label_of(row) == self._label for row in rows):
            self._unclear.discard(email)
            store.sandboxes = [one for one in store.sandboxes if one.email != email]


def _remove_keys(work: Work, busy: set[str]) -> None:
    """Revoke the keys of the accounts that have nothing any more."""
    store = work.store
    passwords = {user.email: user.password for user in store.users}

    def remove_key(key: Key) -> None:
        try:
            login = work.api.log_in(key.email, passwords[key.email]) if key.email in passwords else None
            work.api.call("DELETE", f"/v1/auth/api-keys/{key.key_id}", login or Login(key=key.key))
        except NotFound:
            return

    work.run(
        "keys",
        [key for key in store.api_keys if key.email not in busy],
        remove_key,
        name=lambda key: key.key_id,
        take=lambda key, _: store.api_keys.remove(key),
    )


def _remove_users(work: Work, admin: Login, busy: set[str]) -> None:
    """Delete the accounts that own nothing any more."""
    store = work.store
    blocked = busy | {key.email for key in store.api_keys} | {one.email for one in store.sandboxes}

    def remove_user(user: User) -> None:
        user_id = user.user_id or _find_id(work, user)
        if user_id is None:
            return  # it was never registered
        try:
            work.api.call("DELETE", f"/v1/auth/users/{user_id}", admin)
        except NotFound:
            return

    work.run(
        "accounts",
        [user for user in store.users if user.email not in blocked],
        remove_user,
        name=lambda user: user.email,
        take=lambda user, _: store.users.remove(user),
    )


def _find_id(work: Work, user: User) -> str | None:
    """The id of an account whose registration was never answered; None where it was never made."""
    try:
        login = work.api.log_in(user.email, user.password)
    except (AuthError, Invalid):
        return None
    return str(work.api.object("GET", "/v1/auth/user", login)["id"])


if __name__ == "__main__":
    sys.exit(main())
