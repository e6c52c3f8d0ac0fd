"""Sandboxes for each account of a store, for queries and streams: ``python -m prep.sandboxes --count 2``.

Each carries the store's label. Can be interrupted and repeated: what an account has under that label counts,
also where the answer to its create was lost. One that does not get ready is deleted and told as failed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from prep.api import Login
from prep.commandline import (
    Work,
    add_from_file,
    counted,
    open_work_from,
    parser,
    positive,
    run_command,
    say,
    whole,
)
from prep.listing import list_labelled
from treadstone_user.assets import Key, PreparedSandbox
from treadstone_user.exitcode import ExitCode
from treadstone_user.model import run_label
from treadstone_user.scenario import STORAGE_SIZES
from treadstone_user.transports.base import AuthError, ConfigError, TreadstoneError

_LOOK_SEC = 1.0
_SAY_SEC = 3.0
_DEAD = ("error", "stopped", "cold", "deleting", "deleted")


class NotReady(TreadstoneError):
    """A sandbox that did not get ready, and was deleted."""

    kind = "not_ready"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What each account shall have."""

    count: int
    template: str
    storage_size: str | None
    auto_stop_interval: int

    def body(self, label: str) -> dict[str, Any]:
        """The body of a create."""
        key, _, value = label.partition(":")
        body: dict[str, Any] = {
            "template": self.template,
            "labels": {key: value},
            "auto_stop_interval": self.auto_stop_interval,
            "persist": self.storage_size is not None,
        }
        return body if self.storage_size is None else body | {"storage_size": self.storage_size}


def main(arguments: list[str] | None = None) -> int:
    """Make sandboxes; returns the exit code."""
    made = parser("sandboxes", __doc__)
    add_from_file(made)
    add = made.add_argument
    add("--count", type=whole, default=1, metavar="N", help="for each account (default: 1)")
    add("--template", default="aio-sandbox-tiny", help="(default: aio-sandbox-tiny)")
    add("--storage-size", choices=STORAGE_SIZES, help="make them persistent, with so much storage")
    add("--auto-stop", type=int, default=120, metavar="MIN", help="minutes until they stop (default: 120)")
    add("--ready-timeout", type=positive, default=900.0, metavar="SEC", help="(default: 900)")
    options = made.parse_args(arguments)

    def command() -> ExitCode:
        work = open_work_from("sandboxes", options)
        wanted = Wanted(options.count, options.template, options.storage_size, options.auto_stop)
        return make_sandboxes(work, wanted, ready_timeout_sec=options.ready_timeout)

    return run_command(command)


def make_sandboxes(work: Work, wanted: Wanted, *, ready_timeout_sec: float) -> ExitCode:
    """Have each account with a key own so many sandboxes that are ready."""
    store, label = work.store, run_label(work.store.run_id)
    if not store.api_keys:
        raise ConfigError(f"{work.path} holds no keys: python -m prep.api_keys --store {work.path}")

    def fill_up(key: Key) -> tuple[list[PreparedSandbox], TreadstoneError | None]:
        login = Login(key=key.key)
        there = [row for row in list_labelled(work.api, login, label) if row.get("status") not in _DEAD]
        failure: TreadstoneError | None = None
        try:
            for _ in range(wanted.count - len(there)):
                made = work.api.object("POST", "/v1/sandboxes", login, json=wanted.body(label), tries=1)
                there.append(made)
        except TreadstoneError as error:  # those that were made before are there
            failure = error
        return [_prepared(row, key.email, label) for row in there], failure

    def take(key: Key, found: tuple[list[PreparedSandbox], TreadstoneError | None]) -> None:
        there, failure = found
        store.sandboxes = [one for one in store.sandboxes if one.email != key.email] + there
        if failure is not None:
            work.fail(key.email, failure)

    work.run("accounts", store.api_keys, fill_up, name=lambda key: key.email, take=take)
    _await_ready(work, label, time.monotonic() + ready_timeout_sec)
    line = f"{counted(len(store.sandboxes), 'sandbox').replace('sandboxs', 'sandboxes')} ready"
    following = (
        f"locust --headless -t 1m QueryUser, with `accounts: {work.path}` in a scenario; "
        f"and at last python -m prep.remove --store {work.path}"
    )
    return work.end(f"{line} on {counted(len(store.api_keys), 'account')}", following)


def _prepared(row: dict[str, Any], email: str, label: str) -> PreparedSandbox:
    urls = row.get("urls")
    proxy = urls.get("proxy") if isinstance(urls, dict) else None
    return PreparedSandbox(str(row["id"]), email, str(row.get("template")), label, proxy)


def _await_ready(work: Work, label: str, deadline: float) -> None:
    """Look at the list of each account that waits, once a second, until none does."""
    logins = {key.email: Login(key=key.key) for key in work.store.api_keys}
    waiting = {one.id: one for one in work.store.sandboxes if one.email in logins}
    for one in work.store.sandboxes:
        if one.id not in waiting:
            work.fail(one.id, NotReady("its account has no key: python -m prep.api_keys makes one"))
    said = time.monotonic()
    unseen: dict[str, TreadstoneError] = {}
    while waiting:
        looked = time.monotonic()
        emails = sorted({one.email for one in waiting.values()})

        def look(email: str) -> Sequence[dict[str, Any]]:
            return list_labelled(work.api, logins[email], label)

        def take(email: str, rows: Sequence[dict[str, Any]]) -> None:
            unseen.pop(email, None)
            status = {row["id"]: str(row.get("status")) for row in rows}
            for one in [one for one in waiting.values() if one.email == email]:
                seen = status.get(one.id, "deleted")
                if seen == "ready":
                    del waiting[one.id]
                elif seen != "creating" or time.monotonic() > deadline:
                    del waiting[one.id]
                    _give_up(work, one, logins[email], seen)

        def fail(email: str, error: TreadstoneError) -> None:
            is_refused = isinstance(error, AuthError)
            if email not in unseen and not is_refused:
                say(f"{email}: {error.kind}: {error}; it is asked again")
            unseen[email] = error
            if is_refused or time.monotonic() > deadline:
                for one in [one for one in waiting.values() if one.email == email]:
                    del waiting[one.id]
                    work.fail(one.id, error)  # it stays in the store: nobody knows what has become of it

        work.look(emails, look, take, fail)
        if waiting and time.monotonic() - said >= _SAY_SEC:
            said = time.monotonic()
            say(f"waiting for {len(waiting)} of {len(work.store.sandboxes)} sandboxes")
        if waiting:
            time.sleep(max(0.0, _LOOK_SEC - (time.monotonic() - looked)))


def _give_up(work: Work, one: PreparedSandbox, login: Login, status: str) -> None:
    work.store.sandboxes = [other for other in work.store.sandboxes if other.id != one.id]
    work.fail(one.id, NotReady(f"it did not get ready (status {status}), and is deleted"))
    try:
        work.api.call("DELETE", f"/v1/sandboxes/{one.id}", login)
    except TreadstoneError as error:
        say(f"{one.id} could not be deleted ({error}): python -m prep.remove finds it by its label")


if __name__ == "__main__":
    sys.exit(main())
