"""Preflight: is everything there that the run needs? Asked before a single sandbox is made."""

from __future__ import annotations

import socket
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from gevent.pool import Pool

from treadstone_user.model import Template, Variant
from treadstone_user.quota import Allowance
from treadstone_user.transports.base import (
    ApiError,
    AuthError,
    CallError,
    ConnectError,
    PreflightError,
    RequestTimeout,
    Transport,
)
from treadstone_user.transports.cli import CliTransport
from treadstone_user.transports.http import HttpTransport
from treadstone_user.transports.launch import Launcher
from treadstone_user.transports.places import Places

_ROUNDS = 2
_ASKED_AT_ONCE = 20


@dataclass(frozen=True, slots=True)
class Preflight:
    """What preflight found out."""

    account: str
    templates: tuple[Template, ...]


@contextmanager
def nowhere() -> Iterator[str]:
    """A base URL on this machine where nothing listens: calls to it are refused at once."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # bound, so that nobody else listens there; never listening
        yield f"http://127.0.0.1:{silent.getsockname()[1]}"


def measure_startup(launcher: Launcher, *, base_url: str, at_once: int) -> float:
    """Seconds that a CLI process takes until it sends its first byte, with `at_once` starting together.

    The median of calls that reach no server.
    base_url: of `nowhere`.
    """
    places = Places(in_flight=at_once, starting=at_once)
    transport = CliTransport(launcher=launcher, base_url=base_url, places=places)
    rounds = [Pool(at_once).map(_refused_call, [transport] * at_once) for _ in range(_ROUNDS)]
    return statistics.median(sec for took in rounds for sec in took)


def _refused_call(transport: CliTransport) -> float:
    try:
        transport.health()
    except CallError as error:
        return error.timing.latency_ms / 1000
    raise PreflightError("the CLI got an answer from a port where nothing listens: is a proxy configured?")


def check(
    transport: Transport,
    *,
    base_url: str,
    matrix: Sequence[Variant],
    say: Callable[[str], None],
    store: str | None = None,
) -> Preflight:
    """Ask the server who we are and what it offers, and hold the matrix against it.

    Says which templates the matrix uses, and without a matrix which there are.
    store: the file that the credential is from; None for the environment's.

    Raises `PreflightError` with what to do about it.
    """
    try:
        transport.health()
        account = transport.whoami().value
        say(f"logged in at {base_url} as {account}")
        templates = transport.templates().value
    except CallError as error:
        raise PreflightError(_advice(error, base_url, store)) from error
    used = {variant.template for variant in matrix}
    for template in sorted(templates, key=lambda t: t.name):
        if used and template.name not in used:
            continue
        sizes = ", ".join(template.storage_sizes) or "no storage"
        say(f"template {template.name}: {template.cpu} CPU, {template.memory} memory, {sizes}")
    problems = compare(matrix, templates)
    if problems:
        raise PreflightError("\n".join(problems))
    return Preflight(account, templates)


def survey(
    accounts: Mapping[str | None, HttpTransport], *, say: Callable[[str], None]
) -> dict[str | None, Allowance]:
    """Ask what the plan of each account allows; says what they have room for, where there are several.

    Returns nothing where the one account of the environment's credential cannot be asked: its run goes on
    without foresight. Raises `PreflightError` where one of several accounts cannot be.
    """

    def ask(transport: HttpTransport) -> Allowance | CallError:
        try:
            return transport.usage().value
        except CallError as error:
            return error

    answers = dict(zip(accounts, Pool(_ASKED_AT_ONCE).imap(ask, accounts.values()), strict=True))
    failed = {account: answer for account, answer in answers.items() if isinstance(answer, CallError)}
    found = {account: answer for account, answer in answers.items() if isinstance(answer, Allowance)}
    if None in failed:
        say(f"what the account's plan allows is not known: {failed[None].cause}: {failed[None]}")
        return {}
    if failed:
        first, error = next(iter(failed.items()))
        raise PreflightError(
            f"{len(failed)} of {len(accounts)} accounts cannot be used, {first} first: {error.cause}: {error}"
        )
    if None not in found:
        room = sum(max(0, one.max_running - one.running) for one in found.values())
        tiers = Counter(one.tier for one in found.values())
        named = ", ".join(f"{count} {tier}" for tier, count in sorted(tiers.items()))
        say(f"{len(found)} accounts ({named}) have room for {room} sandboxes at once")
    return found


def compare(matrix: Sequence[Variant], templates: Sequence[Template]) -> list[str]:
    """What the matrix asks for and the server does not offer, a sentence each."""
    offered = {template.name: template for template in templates}
    problems = []
    for variant in matrix:
        where = f"matrix[{variant.index}]"
        template = offered.get(variant.template)
        if template is None:
            names = ", ".join(sorted(offered)) or "none"
            problems.append(f"{where}.template: {variant.template} is not offered here; there are: {names}")
        elif variant.persist and variant.storage_size not in template.storage_sizes:
            sizes = ", ".join(template.storage_sizes) or "none"
            problems.append(
                f"{where}.storage_size: {variant.template} has no {variant.storage_size} here; "
                f"there are: {sizes}"
            )
    return problems


def _advice(error: CallError, base_url: str, store: str | None) -> str:
    login = f"`treadstone --base-url {base_url} auth login`"
    if isinstance(error, AuthError) and error.status is None:
        return f"not logged in at {base_url}: run {login}, or set TREADSTONE_API_KEY"
    if isinstance(error, AuthError) and store is not None:
        return f"{base_url} refuses a key of {store} ({error}): python -m prep.api_keys --store {store}"
    if isinstance(error, AuthError):
        return (
            f"{base_url} refuses the credential ({error}): set TREADSTONE_API_KEY to a valid key, "
            f"or unset it and run {login}"
        )
    if isinstance(error, ConnectError | RequestTimeout):
        return f"no Treadstone server answers at {base_url} ({error}): check the address, or try --local"
    if isinstance(error, ApiError):
        return f"{base_url} answers {error.cause}: {error}"
    return f"{base_url} cannot be used: {error.kind}: {error}"
