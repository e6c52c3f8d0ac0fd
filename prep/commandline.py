"""What the commands that prepare share: options, the store, the admin, progress, and how they end."""

from __future__ import annotations

import argparse
import fcntl
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from prep.api import Api, Login
from prep.batch import Interrupted, Throttle, run_batch
from treadstone_user.assets import Failed, Store, load_assets, save_assets
from treadstone_user.exitcode import ExitCode
from treadstone_user.settings import read_base_url
from treadstone_user.transports.base import CallError, ConfigError, Forbidden, TreadstoneError

STORE = Path("results/assets.json")
ADMIN_EMAIL = "TREADSTONE_ADMIN_EMAIL"
ADMIN_PASSWORD = "TREADSTONE_ADMIN_PASSWORD"

_SAY_SEC = 3.0
_SHOWN_FAILURES = 10
_INTERRUPTED = "interrupted: run the same command again to go on\n"


def parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """A parser with the options that all commands have. description: a module's docstring."""
    made = argparse.ArgumentParser(
        prog=f"python -m prep.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = made.add_argument
    add("--base-url", metavar="URL", help="the server (default: TREADSTONE_BASE_URL, or that of the store)")
    add("--store", type=Path, default=STORE, metavar="FILE", help=f"the asset store (default: {STORE})")
    add("--concurrency", type=whole, default=10, metavar="N", help="how many at once (default: 10)")
    add("--rate", type=positive, metavar="N", help="how many to begin a second, at most")
    add("--timeout", type=positive, default=30.0, metavar="SEC", help="of one request (default: 30)")
    return made


def whole(text: str) -> int:
    """A whole number of at least 1, for argparse."""
    if not text.isdecimal() or not 1 <= int(text) <= 1_000_000:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 1 to 1000000")
    return int(text)


def positive(text: str) -> float:
    """A number above 0, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number above 0")
    return value


@dataclass(slots=True)
class Work:
    """A command at work: the server, the store, and how fast it goes."""

    step: str
    api: Api
    store: Store
    path: Path
    concurrency: int
    throttle: Throttle
    lock: IO[str]
    """Held as long as the command works: the one that saves last would undo what another one has saved."""
    failed: list[Failed] = field(default_factory=list)
    """What this command could not do, this time."""

    def save(self) -> None:
        """Write the store, with this command's failures in place of its earlier ones."""
        others = [failed for failed in self.store.failed if failed.step != self.step]
        self.store.failed = [*others, *self.failed]
        try:
            save_assets(self.store, self.path)
        except OSError as error:
            raise ConfigError(f"cannot write {self.path}: {error.strerror}") from error

    def fail(self, item: str, error: TreadstoneError) -> None:
        """Take note of what could not be done."""
        status = error.status if isinstance(error, CallError) else None
        self.failed.append(Failed(self.step, item, error.kind, status, str(error)))

    def run[T, R](
        self,
        what: str,
        items: Sequence[T],
        work: Callable[[T], R],
        *,
        name: Callable[[T], str],
        take: Callable[[T, R], None],
    ) -> None:
        """Do something for each item, with a progress bar. Raises `Interrupted`.

        what: the items, for people. name: of an item. take: gets each result, in this thread.
        """
        if not items:
            return
        before = len(self.failed)
        with Bar(what, len(items)) as bar:

            def on_result(item: T, result: R) -> None:
                take(item, result)
                bar.step(failed=len(self.failed) - before)

            def on_error(item: T, error: TreadstoneError) -> None:
                self.fail(name(item), error)
                bar.step(failed=len(self.failed) - before)

            run_batch(
                items,
                work,
                concurrency=self.concurrency,
                throttle=self.throttle,
                on_result=on_result,
                on_error=on_error,
                save=self.save,
            )

    def look[T, R](
        self,
        items: Sequence[T],
        work: Callable[[T], R],
        take: Callable[[T, R], None],
        fail: Callable[[T, TreadstoneError], None],
    ) -> None:
        """Do something for each item that is done again and again: without a bar. Raises `Interrupted`."""
        run_batch(
            items,
            work,
            concurrency=self.concurrency,
            throttle=Throttle(None),
            on_result=take,
            on_error=fail,
            save=self.save,
        )

    def end(
        self, line: str, following: str, hint: str = "run the same command again to try what failed"
    ) -> ExitCode:
        """Say how it went and what to type next, or the hint where something failed; returns the code."""
        self.save()
        for failed in self.failed[:_SHOWN_FAILURES]:
            say(f"  {failed.item}: {failed.status or failed.kind}: {failed.error}")
        if len(self.failed) > _SHOWN_FAILURES:
            say(f"  and {len(self.failed) - _SHOWN_FAILURES} more: see `failed` in {self.path}")
        say(f"{line}, {len(self.failed)} failed, in {self.path}")
        if self.failed:
            say(hint)
            return ExitCode.REQUESTS_FAILED
        say(f"next: {following}")
        return ExitCode.OK


def open_work(step: str, options: argparse.Namespace, *, may_make: bool) -> Work:
    """Read the store, or begin one where the command may. Raises `ConfigError`."""
    variable = os.environ.get("TREADSTONE_BASE_URL")
    told, source = options.base_url or variable, "--base-url" if options.base_url else "TREADSTONE_BASE_URL"
    given = read_base_url(told, source).url if told else None
    if not may_make and not options.store.exists():
        load_assets(options.store)  # says what is missing
    lock = _lock(options.store)
    if options.store.exists() or not may_make:
        store = load_assets(options.store)
    elif given is None:
        raise ConfigError("which server? Say --base-url URL, or set TREADSTONE_BASE_URL")
    else:
        store = Store.new(given)
    if given is not None and store.base_url != given:
        raise ConfigError(
            f"{options.store} belongs to {store.base_url}, not to {given}: name another --store"
        )
    api = Api(store.base_url, timeout_sec=options.timeout)
    return Work(step, api, store, options.store, options.concurrency, Throttle(options.rate), lock)


def _lock(store: Path) -> IO[str]:
    """Have a store for oneself, until the file is closed. Raises `ConfigError`."""
    try:
        store.parent.mkdir(parents=True, exist_ok=True)
        file = store.with_name(f".{store.name}.lock").open("w")
    except OSError as error:
        raise ConfigError(f"cannot write beside {store}: {error.strerror}") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise ConfigError(f"another command works on {store}: wait until it has ended") from error
    return file


def add_from_file(made: argparse.ArgumentParser) -> None:
    """Add the option that takes over what an earlier step wrote elsewhere."""
    made.add_argument(
        "--from-file", type=Path, metavar="FILE", help="take over the accounts and keys of another store"
    )


def open_work_from(step: str, options: argparse.Namespace) -> Work:
    """Read the store, with the accounts and keys of `--from-file` taken over. Raises `ConfigError`."""
    if options.from_file is None:
        return open_work(step, options, may_make=False)
    other = load_assets(options.from_file)
    options.base_url = options.base_url or other.base_url
    work = open_work(step, options, may_make=True)
    if work.store.base_url != other.base_url:
        raise ConfigError(f"{options.from_file} belongs to {other.base_url}, not to {work.store.base_url}")
    users, keys = {user.email for user in work.store.users}, {key.email for key in work.store.api_keys}
    work.store.users += [user for user in other.users if user.email not in users]
    work.store.api_keys += [key for key in other.api_keys if key.email not in keys]
    return work


def find_admin(api: Api) -> Login | None:
    """The admin whom the environment names, once the server has said that it is one; None for nobody.

    Raises `ConfigError`, `CallError`.
    """
    email, password = os.environ.get(ADMIN_EMAIL), os.environ.get(ADMIN_PASSWORD)
    if not email:
        return None
    if not password:
        raise ConfigError(f"{ADMIN_EMAIL} is set, and {ADMIN_PASSWORD} is not")
    login = api.log_in(email, password)  # what is delicate opens to no API key
    user = api.object("GET", "/v1/auth/user", login)
    if user.get("role") != "admin":
        raise Forbidden(f"{user.get('email')} is no admin of this server", status=403)
    return login


class Bar:
    """A progress bar, or where nobody watches a terminal, a line every few seconds."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total = what, total
        self._done = self._failed = 0
        self._said = time.monotonic()
        self._progress: Progress | None = None
        if sys.stderr.isatty():
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
            )
            self._progress = Progress(*columns)

    def __enter__(self) -> Self:
        if self._progress is not None:
            self._progress.start()
            self._task = self._progress.add_task(self._what, total=self._total)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()
        else:
            self._say()

    def step(self, *, failed: int) -> None:
        """One more is done; so many have failed so far."""
        self._done, self._failed = self._done + 1, failed
        if self._progress is not None:
            failures = f" ({failed} failed)" if failed else ""
            self._progress.update(self._task, completed=self._done, description=self._what + failures)
        elif time.monotonic() - self._said >= _SAY_SEC:
            self._say()

    def _say(self) -> None:
        self._said = time.monotonic()
        say(f"{self._what}: {self._done}/{self._total}, {self._failed} failed")


def say(line: str) -> None:
    """Say a line."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def run_command(command: Callable[[], ExitCode]) -> int:
    """Run a command; what goes wrong becomes a line and an exit code, never a traceback."""
    try:
        return int(command())
    except TreadstoneError as error:
        for line in str(error).splitlines():
            sys.stderr.write(f"error: {line}\n")
        return int(ExitCode.MISTAKE)
    except Interrupted:
        sys.stderr.write(_INTERRUPTED)
        return int(ExitCode.INCOMPLETE)
    except KeyboardInterrupt:
        sys.stderr.write(_INTERRUPTED)
        sys.stderr.flush()
        os._exit(
            ExitCode.INCOMPLETE
        )  # threads may be in the middle of a call, and Python would wait for them


def counted(count: int, what: str) -> str:
    """A number with its noun, such as ``1 account`` or ``20 accounts``."""
    return f"{count} {what}" + ("" if count == 1 else "s")


def index[T](rows: Sequence[T], key: Callable[[T], Any]) -> dict[Any, T]:
    """Rows by their key, in their order."""
    return {key(row): row for row in rows}
