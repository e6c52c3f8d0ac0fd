"""Accounts in bulk: ``python -m prep.users --count 20 --base-url URL``.

Registers accounts with numbered addresses. Where the environment names an admin (TREADSTONE_ADMIN_EMAIL and
TREADSTONE_ADMIN_PASSWORD), each is verified and given a plan; without one, the accounts must verify by mail
before they may create sandboxes.

Can be interrupted and repeated: the accounts of the store count, and none is made twice.
"""

from __future__ import annotations

import csv
import json
import secrets
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from prep.api import Api, Login
from prep.commandline import (
    ADMIN_EMAIL,
    ADMIN_PASSWORD,
    Work,
    counted,
    find_admin,
    index,
    open_work,
    parser,
    run_command,
    say,
    whole,
)
from treadstone_user.assets import User
from treadstone_user.exitcode import ExitCode
from treadstone_user.transports.base import CallError, ConfigError, Conflict, TransportError, TreadstoneError

TIERS = ("free", "pro", "ultra", "custom")
_REFUSED = (400, 401)
"""The statuses of a login that is wrong."""
_UNCLEAR = (500, 502, 504)
"""Statuses after which an account may have been made all the same."""


class Duplicate(TreadstoneError):
    """An address that is asked for more than once."""

    kind = "duplicate"


def main(arguments: list[str] | None = None) -> int:
    """Register accounts; returns the exit code."""
    made = parser("users", __doc__)
    add = made.add_argument
    add("--count", type=whole, default=1, metavar="N", help="how many accounts there shall be (default: 1)")
    add("--prefix", default="loadtest", help="of their addresses: PREFIX-0001@DOMAIN (default: loadtest)")
    add("--domain", default="example.com", help="of their addresses (default: example.com)")
    add(
        "--from-file",
        type=Path,
        metavar="FILE",
        help="register the addresses of a file instead: a line each, a CSV or JSON with `email`, or a store",
    )
    add("--tier", choices=TIERS, help="the plan that the admin gives each account")
    add("--max-running", type=whole, metavar="N", help="sandboxes at once that the admin allows each account")
    options = made.parse_args(arguments)

    def command() -> ExitCode:
        if options.from_file is not None:
            emails = read_addresses(options.from_file)
        else:
            emails = [f"{options.prefix}-{n:04}@{options.domain}" for n in range(1, options.count + 1)]
        work = open_work("users", options, may_make=True)
        try:
            admin = find_admin(work.api)
        except CallError as error:
            work.fail("admin", error)
            work.save()
            raise ConfigError(
                f"the admin of the environment cannot log in: {error.cause}: {error}"
            ) from error
        if admin is None and (options.tier or options.max_running):
            raise ConfigError(
                f"--tier and --max-running want an admin: set {ADMIN_EMAIL} and {ADMIN_PASSWORD}"
            )
        return register(work, emails, Maker(work.api, admin, options.tier, options.max_running))

    return run_command(command)


class Unclear(TransportError):
    """An address that is taken, maybe by us."""

    kind = "unclear"


class Maker:
    """Makes an account, and makes it fit: verified, and on its plan."""

    def __init__(self, api: Api, admin: Login | None, tier: str | None, max_running: int | None) -> None:
        self._api = api
        self.admin = admin
        self._tier = tier
        self._max_running = max_running

    def make(self, user: User) -> User:
        """Bring an account to where it shall be, from wherever it is. Raises `CallError`."""
        if not user.user_id:
            user = self._register(user)
        if self.admin is not None:
            if not user.verified:
                user = self._verify(user, self.admin)
            user = self._set_plan(user, self.admin)
        return user

    def is_made(self, user: User) -> bool:
        """Whether nothing is left to do for an account."""
        fit = user.verified or self.admin is None
        tier = self._tier in (None, user.tier) and self._max_running in (None, user.max_running)
        return bool(user.user_id) and fit and tier

    def _register(self, user: User) -> User:
        credentials = {"email": user.email, "password": user.password}
        try:
            answer = self._api.object("POST", "/v1/auth/register", json=credentials)
        except Conflict as taken:
            # It may be ours: its answer was lost, or the command was killed before it was written down.
            try:
                login = self._api.log_in(user.email, user.password)
            except CallError as error:
                if error.status in _REFUSED:
                    raise taken from None
                raise Unclear(
                    f"there is one, and whether it is this store's is not known: {error}"
                ) from error
            answer = self._api.object("GET", "/v1/auth/user", login)
        return replace(user, user_id=str(answer["id"]), verified=answer.get("is_verified") is True)

    def _verify(self, user: User, admin: Login) -> User:
        found = self._api.object(
            "GET", "/v1/admin/verification-token-by-email", admin, params={"email": user.email}
        )
        self._api.call("POST", "/v1/auth/verification/confirm", json={"token": found["token"]})
        return replace(user, verified=True)

    def _set_plan(self, user: User, admin: Login) -> User:
        change: dict[str, Any] = {}
        if self._tier is not None and self._tier != user.tier:
            change["tier"] = self._tier
        if self._max_running is not None and (change or self._max_running != user.max_running):
            change["overrides"] = {"max_concurrent_running": self._max_running}
        if not change:
            return user
        plan = self._api.object("PATCH", f"/v1/admin/users/{user.user_id}/plan", admin, json=change)
        return replace(user, tier=plan.get("tier"), max_running=plan.get("max_concurrent_running"))


def register(work: Work, emails: list[str], maker: Maker) -> ExitCode:
    """Register accounts, each once."""
    store = work.store
    users: dict[str, User] = index(store.users, lambda user: user.email)
    for email, times in Counter(emails).items():
        if times > 1:
            work.fail(email, Duplicate(f"asked for {times} times; it is registered once"))
        # Written down before it is sent: an account whose password nobody knows is lost.
        users.setdefault(email, User(email, secrets.token_urlsafe(18)))
    store.users = list(users.values())
    work.save()
    wanted = [users[email] for email in dict.fromkeys(emails)]

    def take(_: User, made: User) -> None:
        users[made.email] = made
        store.users = list(users.values())

    missing = [user for user in wanted if not maker.is_made(user)]
    work.run("accounts", missing, maker.make, name=lambda user: user.email, take=take)
    # Where no answer came, the account may be there, and its password is known here alone.
    refused = {failed.item for failed in work.failed if failed.status not in (None, *_UNCLEAR)}
    store.users = [user for user in users.values() if user.user_id or user.email not in refused]
    there = [user for user in store.users if user.user_id and user.email in set(emails)]
    verified = sum(user.verified for user in there)
    if maker.admin is None and verified < len(there):
        say("without an admin in the environment, they must verify by mail before they may create")
    line = f"{counted(len(there), 'account')}, {verified} verified"
    return work.end(line, f"python -m prep.api_keys --store {work.path}")


def read_addresses(path: Path) -> list[str]:
    """The addresses in a file: a line each, a CSV or JSON with `email`, or a store. Raises `ConfigError`."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        found = list(_addresses(text, path.suffix))
    except (OSError, ValueError, RecursionError, csv.Error) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    wrong = [email for email in found if "@" not in email]
    if wrong or not found:
        what = f"{wrong[0]!r} is no address" if wrong else "it holds no address"
        raise ConfigError(f"{path}: {what}; write one a line, or a CSV or JSON with `email`")
    return found


def _addresses(text: str, suffix: str) -> list[str]:
    if suffix == ".json":
        content = json.loads(text)
        rows = content.get("users") if isinstance(content, dict) else content
        if not isinstance(rows, list):
            raise ValueError("neither a list nor a store")
        return [str(row.get("email") if isinstance(row, dict) else row) for row in rows]
    if suffix == ".csv":
        return [(row.get("email") or "").strip() for row in csv.DictReader(text.splitlines())]
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


if __name__ == "__main__":
    sys.exit(main())
