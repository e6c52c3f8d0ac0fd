"""The world: all sandboxes of all accounts, and what happens to them as time goes by.

It knows nothing of HTTP, and its clock is handed to it. Each account has an index in the order of the list,
brought up to date by the changes that have come due whenever somebody looks, so that a page costs what
changed and not what there is.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from prep.localserver.accounts import Account, new_id
from prep.localserver.catalogue import SMALLEST_TEMPLATE, STORAGE_SIZES, TEMPLATE_NAMES, storage_gib
from prep.localserver.errors import (
    ApiError,
    bad_request,
    create_refused,
    email_verification_required,
    invalid_transition,
    name_conflict,
    sandbox_not_found,
    template_not_found,
)
from prep.localserver.names import Namer
from prep.localserver.plans import Plans, Use
from prep.localserver.profile import Profile
from prep.localserver.sandbox import LIST_RANK, ListKey, Provision, Sandbox, SandboxSpec, Status

OTHER_LABELS: tuple[Mapping[str, str], ...] = ({"team": "other"}, {"loadtest": "run-20200101-000000"}, {})
"""Labels of foreign sandboxes, in turn: another team's, another run's, none."""

_STARTABLE = (Status.STOPPED, Status.ERROR, Status.COLD)
_STOPPABLE = (Status.READY, Status.ERROR)


class World:
    """The sandboxes of a server that behaves as `profile` says.

    Args:
        profile: what is drawn for each sandbox.
        plans: what accounts may have.
        clock: tells the time in Unix seconds; must not go backwards.
        on_gone: called with each sandbox once it is gone.
    """

    def __init__(
        self,
        profile: Profile,
        *,
        plans: Plans,
        clock: Callable[[], float],
        on_gone: Callable[[Sandbox], None] = lambda _sandbox: None,
    ) -> None:
        self._profile = profile
        self._plans = plans
        self._clock = clock
        self._on_gone = on_gone
        self._ready = profile.stream("ready")
        self._error = profile.stream("error")
        self._never = profile.stream("never")
        self._gone = profile.stream("gone")
        self._proxy = profile.stream("proxy")
        self._create = profile.stream("create")
        self._namer = Namer(profile.stream("name"))
        self._sandboxes: dict[str, Sandbox] = {}
        self._keys: dict[str, ListKey] = {}
        self._lists: dict[str, list[tuple[ListKey, str]]] = defaultdict(list)
        self._names: dict[str, set[str]] = defaultdict(set)
        self._changes: list[tuple[float, str]] = []

    def advance(self) -> float:
        """Let all that has come due happen, and tell the time at which the world now stands."""
        now = self._clock()
        while self._changes and self._changes[0][0] <= now:
            _, sandbox_id = heapq.heappop(self._changes)
            # A change can outlive its sandbox: one that was deleted while creating never becomes ready.
            if sandbox := self._sandboxes.get(sandbox_id):
                self._reindex(sandbox, now)
        return now

    def next_change(self) -> float | None:
        """Tell when something next happens by itself, None if nothing will."""
        return self._changes[0][0] if self._changes else None

    def create(self, account: Account, spec: SandboxSpec) -> tuple[Sandbox, float]:
        """Create a sandbox, and tell it with the moment of its creation.

        Raises:
            ApiError: 403 for an account that is not verified, 404 for an unknown template, 400 for a storage
                size that the template does not offer, 409 for a name that is taken; and as the account's plan
                and the profile say.
        """
        now = self.advance()
        if not account.is_verified:
            raise email_verification_required()
        taken = self._names[account.id]
        name = spec.name or self._namer.name(taken)
        if refused := self._draw_refusal(spec.template, name, self.running(account)):
            raise refused
        _check_offered(spec)
        self._plans.check(account, spec, self._use(account))
        if name in taken:
            raise name_conflict(name)
        sandbox = self._add(account, spec, name=name, created=now, provisions=[self._draw_provision(now)])
        self._reindex(sandbox, now)
        return sandbox, now

    def get(self, account: Account, sandbox_id: str) -> tuple[Sandbox, float]:
        """Find an account's sandbox, and tell it with the moment of the look.

        Raises:
            ApiError: 404 if the account has none of that id, or has it no longer.
        """
        now = self.advance()
        sandbox = self._sandboxes.get(sandbox_id)
        if sandbox is None or sandbox.owner_id != account.id:
            raise sandbox_not_found(sandbox_id)
        return sandbox, now

    def page(
        self, account: Account, *, limit: int, offset: int, labels: Mapping[str, str]
    ) -> tuple[list[Sandbox], int, float]:
        """Give one page of an account's sandboxes that carry `labels`, their total, and the moment."""
        now = self.advance()
        rows = self._lists[account.id]
        if labels:
            rows = [row for row in rows if labels.items() <= self._sandboxes[row[1]].spec.labels.items()]
        return [self._sandboxes[row[1]] for row in rows[offset : offset + limit]], len(rows), now

    def stop(self, account: Account, sandbox_id: str) -> tuple[Sandbox, float]:
        """Stop a sandbox.

        Raises:
            ApiError: 404 if there is none, 409 if it is neither ready nor in error.
        """
        sandbox, now = self._in_status(account, sandbox_id, _STOPPABLE, wanted=Status.STOPPED)
        sandbox.is_stopped, sandbox.stopped_at = True, now
        self._reindex(sandbox, now)
        return sandbox, now

    def start(self, account: Account, sandbox_id: str) -> tuple[Sandbox, float]:
        """Bring a stopped sandbox up again, which takes the time that the profile says.

        Raises:
            ApiError: 404 if there is none, 409 if it is not stopped, cold or in error.
        """
        sandbox, now = self._in_status(account, sandbox_id, _STARTABLE, wanted=Status.READY)
        sandbox.is_stopped = False
        sandbox.provisions.append(self._draw_provision(now))
        self._reindex(sandbox, now)
        return sandbox, now

    def delete(self, account: Account, sandbox_id: str) -> None:
        """Begin to delete a sandbox; it is there until it is gone.

        Raises:
            ApiError: 404 if there is none, 409 if it is being deleted already.
        """
        deletable = tuple(status for status in Status if status is not Status.DELETING)
        sandbox, now = self._in_status(account, sandbox_id, deletable, wanted=Status.DELETING)
        sandbox.delete_requested = now
        sandbox.gone = now + self._profile.gone.sample(self._gone)
        self._reindex(sandbox, now)

    def running(self, account: Account) -> int:
        """Count an account's sandboxes that are ready or creating."""
        first_other = (LIST_RANK[Status.DELETING], float("-inf"), float("-inf"), "")
        return bisect_left(self._lists[account.id], (first_other, ""))

    def owns_any(self, account: Account) -> bool:
        """Tell whether an account has a sandbox, be it one that is being deleted."""
        self.advance()
        return bool(self._lists[account.id])

    def total(self) -> int:
        """Count the sandboxes of all accounts."""
        return len(self._sandboxes)

    def total_storage_gib(self) -> int:
        """Add up the storage of all sandboxes, in GiB."""
        return sum(storage_gib(sandbox.spec.storage_size) for sandbox in self._sandboxes.values())

    def _use(self, account: Account) -> Use:
        return Use(
            running=self.running(account),
            storage_gib=lambda: sum(map(storage_gib, self.storage_sizes(account))),
            all_sandboxes=len(self._sandboxes),
            all_storage_gib=self.total_storage_gib,
        )

    def storage_sizes(self, account: Account) -> list[str | None]:
        """List the storage sizes of an account's sandboxes, None for each without storage."""
        self.advance()
        return [self._sandboxes[row].spec.storage_size for _, row in self._lists[account.id]]

    def living(self) -> Iterable[Sandbox]:
        """All sandboxes that are not gone."""
        self.advance()
        return self._sandboxes.values()

    def add_foreign(self, account: Account) -> None:
        """Give an account the ready sandboxes of `foreign=N`, made in the hour before now."""
        now = self._clock()
        rng = self._profile.stream("foreign")
        namer = Namer(rng)
        for number in range(self._profile.foreign):
            ready = now - rng.uniform(0, 3600)
            created = ready - self._profile.ready.sample(rng)
            spec = SandboxSpec(template=SMALLEST_TEMPLATE, labels=OTHER_LABELS[number % len(OTHER_LABELS)])
            name = namer.name(self._names[account.id])
            provisions = [Provision(created, ready)]
            sandbox = self._add(account, spec, name=name, created=created, provisions=provisions)
            sandbox.foreign = True
            self._reindex(sandbox, now)

    def _in_status(
        self, account: Account, sandbox_id: str, allowed: tuple[Status, ...], *, wanted: Status
    ) -> tuple[Sandbox, float]:
        sandbox, now = self.get(account, sandbox_id)
        if (current := sandbox.status(now)) not in allowed:
            raise invalid_transition(sandbox_id, current, wanted)
        return sandbox, now

    def _add(
        self, account: Account, spec: SandboxSpec, *, name: str, created: float, provisions: list[Provision]
    ) -> Sandbox:
        sandbox = Sandbox(
            id=new_id("sb"),
            name=name,
            owner_id=account.id,
            spec=spec,
            created=created,
            provisions=provisions,
            proxy_lag=self._profile.proxy.sample(self._proxy),
        )
        self._sandboxes[sandbox.id] = sandbox
        self._names[account.id].add(name)
        return sandbox

    def _draw_refusal(self, template: str, name: str, running: int) -> ApiError | None:
        point = self._create.random()
        for status, share in self._profile.create:
            if point < share:
                return create_refused(status, template=template, name=name, running=running)
            point -= share
        return None

    def _draw_provision(self, now: float) -> Provision:
        # Every stream is drawn from for every sandbox, so that one clause does not shift another's draws.
        settles = now + self._profile.ready.sample(self._ready)
        fails = self._error.random() < self._profile.error
        is_stuck = self._never.random() < self._profile.never
        return Provision.never(now) if is_stuck else Provision(now, settles, fails)

    def _reindex(self, sandbox: Sandbox, now: float) -> None:
        rows = self._lists[sandbox.owner_id]
        if old_key := self._keys.pop(sandbox.id, None):
            del rows[bisect_left(rows, (old_key, sandbox.id))]
        if sandbox.status(now) is Status.DELETED:
            del self._sandboxes[sandbox.id]
            self._names[sandbox.owner_id].discard(sandbox.name)
            self._on_gone(sandbox)
            return
        self._keys[sandbox.id] = key = sandbox.list_key(now)
        insort(rows, (key, sandbox.id))
        if (change := sandbox.next_change(now)) is not None:
            heapq.heappush(self._changes, (change, sandbox.id))


def _check_offered(spec: SandboxSpec) -> None:
    if spec.template not in TEMPLATE_NAMES:
        raise template_not_found(spec.template)
    if spec.persist and spec.storage_size not in STORAGE_SIZES:
        raise bad_request(
            f"Storage size '{spec.storage_size}' is not allowed for template '{spec.template}'. "
            f"Allowed sizes: {', '.join(STORAGE_SIZES)}"
        )
