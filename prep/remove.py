"""Takes down what a store lists, in the right order: sandboxes, keys, accounts. ``python -m prep.remove``.

Accounts go by the admin of the environment (TREADSTONE_ADMIN_EMAIL and TREADSTONE_ADMIN_PASSWORD); the server
refuses to delete one of which a sandbox has ever been ready. What is gone leaves the store at once; what is
left stays in it, and the exit code is 5. Can be interrupted and repeated.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from prep.api import Login
from prep.commandline import Work, counted, find_admin, open_work, parser, run_command, say
from prep.listing import list_labelled
from treadstone_user.assets import Key, User
from treadstone_user.exitcode import ExitCode
from treadstone_user.model import run_label
from treadstone_user.transports.base import Conflict, NotFound

CONFLICT = 409
_GIVE_UP_SEC = 120.0
_LOOK_SEC = 0.5


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
    _remove_sandboxes(work)
    if not keep_users:
        blocked = {one.email for one in store.sandboxes}
        keys = [key for key in store.api_keys if key.email not in blocked]
        passwords = {user.email: user.password for user in store.users}

        def remove_key(key: Key) -> None:
            try:
                login = work.api.log_in(key.email, passwords[key.email]) if key.email in passwords else None
                work.api.call("DELETE", f"/v1/auth/api-keys/{key.key_id}", login or Login(key=key.key))
            except NotFound:
                return

        work.run(
            "keys",
            keys,
            remove_key,
            name=lambda key: key.key_id,
            take=lambda key, _: store.api_keys.remove(key),
        )
        if admin is not None:
            before = len(work.failed)
            _remove_users(work, admin)
            if any(failed.status == CONFLICT for failed in work.failed[before:]):
                say("the server keeps accounts of which a sandbox has ever been ready: use them again, and")
                say("next time say --keep-users, which leaves accounts and keys as they are")
    left = len(store.sandboxes) + (0 if keep_users else len(store.api_keys) + len(store.users))
    parts = (
        f"{counted(len(store.sandboxes), 'sandbox')}, {counted(len(store.api_keys), 'key')} and "
        f"{counted(len(store.users), 'account')} left"
    )
    code = work.end(parts.replace("sandboxs", "sandboxes"), f"nothing: {work.path} may be removed")
    return ExitCode.LEFT_BEHIND if left else code


def _remove_sandboxes(work: Work) -> None:
    """Delete, and list again, until no account shows one under the store's label."""
    store, label = work.store, run_label(work.store.run_id)
    logins = {key.email: Login(key=key.key) for key in store.api_keys}
    emails, until = sorted(logins), time.monotonic() + _GIVE_UP_SEC
    shown: set[str] = set()
    while emails and time.monotonic() < until:
        shown.clear()

        def one_pass(email: str) -> Sequence[dict[str, Any]]:
            rows = list_labelled(work.api, logins[email], label)
            for row in [row for row in rows if row.get("status") != "deleting"]:
                try:
                    work.api.call("DELETE", f"/v1/sandboxes/{row['id']}", logins[email])
                except (NotFound, Conflict):
                    continue
            return rows

        def take(email: str, rows: Sequence[dict[str, Any]]) -> None:
            if rows:
                shown.add(email)
            else:
                store.sandboxes = [one for one in store.sandboxes if one.email != email]

        work.look(emails, one_pass, take)
        emails = sorted(shown)
        if emails:
            say(f"sandboxes of {counted(len(emails), 'account')} are being deleted")
            time.sleep(_LOOK_SEC)


def _remove_users(work: Work, admin: Login) -> None:
    """Delete the accounts that own nothing any more."""
    store = work.store
    blocked = {key.email for key in store.api_keys} | {one.email for one in store.sandboxes}
    users = [user for user in store.users if user.email not in blocked]

    def remove_user(user: User) -> None:
        if not user.user_id:
            return  # it was never registered
        try:
            work.api.call("DELETE", f"/v1/auth/users/{user.user_id}", admin)
        except NotFound:
            return

    work.run(
        "accounts",
        users,
        remove_user,
        name=lambda user: user.email,
        take=lambda user, _: store.users.remove(user),
    )


if __name__ == "__main__":
    sys.exit(main())
