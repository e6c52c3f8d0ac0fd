"""The world: all sandboxes of all accounts, and what happens to them as time goes by.

It knows nothing of HTTP, and its clock is handed to it. Each account has an index in the order of the list,
brought up to date by the changes that have come due whenever somebody looks, so that a page costs what
changed and not what there is.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping

from prep.localserver.accounts import Account, new_id
from prep.localserver.catalogue import SMALLEST_TEMPLATE, check_offered, storage_gib
from prep.localserver.errors import (
    email_verification_required,
    invalid_transition,
    name_conflict,
    sandbox_cap_exceeded,
    sandbox_not_found,
    sandbox_not_ready,
    sandbox_unreachable,
    storage_cap_exceeded,
)
from prep.localserver.fate import Fate
from prep.localserver.names import Namer
from prep.localserver.plans import Plans
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
        clock: tells the time in Unix seconds; must not go backwards.
        plans: the plans that creates and starts are held to, where they are enforced.
        on_gone: called with each sandbox once it is gone.
    """

    def __init__(
        self,
        profile: Profile,
        *,
        clock: Callable[[], float],
        plans: Plans | None = None,
        on_gone: Callable[[Sandbox], None] = lambda _sandbox: None,
    ) -> None:
        self._profile = profile
        self._clock = clock
        self._plans = plans or Plans(clock)
        self._on_gone = on_gone
        self._fate = Fate(profile)
        self._namer = Namer(profile.draws("name"))
        self._sandboxes: dict[str, Sandbox] = {}
        self._keys: dict[str, ListKey] = {}
        self._lists: dict[str, list[tuple[ListKey, str]]] = defaultdict(list)
        self._names: dict[str, set[str]] = defaultdict(set)
        self._stored: Counter[str] = Counter()
        self._changes: list[tuple[float, str]] = []
        self._orphans: list[Sandbox] = []
        self._have_run: set[str] = set()

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
            ApiError: 403 for an account that is not verified, 503 for a server that is full, 404 for an
                unknown template, 400 for a storage size that the template does not offer, whatever the
                account's plan refuses, 409 for a name that is taken; and as the profile says.
        """
        now = self.advance()
        if not account.is_verified:
            raise email_verification_required()
        taken = self._names[account.id]
        name = spec.name or self._namer.name(taken)
        if refused := self._fate.refusal(spec.template, name, self.running(account)):
            raise refused
        self._check_caps(spec)
        # As the real server: what needs storage looks at the template before the plan, all else after it.
        if spec.persist:
            check_offered(spec.template, spec.storage_size)
        if self._plans.enforced:
            plan = self._plans.of(account.id)
            plan.check_create(spec, running=self.running(account), stored_gib=self._stored[account.id])
        check_offered(spec.template, spec.storage_size)
        if name in taken:
            raise name_conflict(name)
        sandbox = self._add(account, spec, name=name, created=now, provisions=[self._fate.provision(now)])
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
        sandbox.stop(now)
        self._reindex(sandbox, now)
        return sandbox, now

    def start(self, account: Account, sandbox_id: str) -> tuple[Sandbox, float]:
        """Bring a stopped sandbox up again, which takes the time that the profile says.

        Raises:
            ApiError: 404 if there is none, 409 if it is not stopped, cold or in error, and what the plan
                refuses.
        """
        sandbox, now = self._in_status(account, sandbox_id, _STARTABLE, wanted=Status.READY)
        if self._plans.enforced:
            spec, plan = sandbox.spec, self._plans.of(account.id)
            plan.check_start(spec.template, spec.auto_stop_interval, running=self.running(account))
        sandbox.is_stopped = False
        sandbox.provisions.append(self._fate.provision(now))
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
        sandbox.gone = self._fate.gone(now)
        self._reindex(sandbox, now)

    def running(self, account: Account) -> int:
        """Count an account's sandboxes that are ready or creating."""
        first_other = (LIST_RANK[Status.DELETING], float("-inf"), float("-inf"), "")
        return bisect_left(self._lists[account.id], (first_other, ""))

    def reach(self, account: Account, sandbox_id: str) -> Sandbox:
        """Find a sandbox that the proxy reaches, and note that it is in use.

        Raises:
            ApiError: 404 if there is none, 409 if it is not ready, 502 if the proxy does not reach it yet.
        """
        sandbox, now = self.get(account, sandbox_id)
        if (current := sandbox.status(now)) is not Status.READY:
            raise sandbox_not_ready(sandbox_id, current)
        sandbox.used = now
        self._reindex(sandbox, now)
        if not sandbox.is_reachable(now):
            raise sandbox_unreachable(sandbox_id)
        return sandbox

    def owns(self, account: Account, sandbox_ids: Iterable[str]) -> bool:
        """Tell whether all these sandboxes are an account's."""
        found = [self._sandboxes.get(sandbox_id) for sandbox_id in sandbox_ids]
        return all(sandbox is not None and sandbox.owner_id == account.id for sandbox in found)

    def has_run(self, account: Account) -> bool:
        """Tell whether a sandbox of the account's has ever been ready."""
        self.advance()
        return account.id in self._have_run

    def orphan(self, account: Account) -> None:
        """Forget an account's sandboxes, as the real server does: in the cluster they go on."""
        self.advance()
        for _, sandbox_id in self._lists.pop(account.id, []):
            self._orphans.append(self._sandboxes.pop(sandbox_id))
            del self._keys[sandbox_id]
        self._names.pop(account.id, None)
        self._stored.pop(account.id, None)

    def stored_gib(self, account: Account) -> int:
        """Tell the storage of an account's sandboxes, in GiB."""
        self.advance()
        return self._stored[account.id]

    def totals(self) -> tuple[int, int]:
        """Count the sandboxes of all accounts, and the GiB of their storage."""
        self.advance()
        return len(self._sandboxes), self._stored.total()

    def living(self) -> Iterable[Sandbox]:
        """All sandboxes that are not gone, those without an account among them."""
        self.advance()
        return [*self._sandboxes.values(), *self._orphans]

    def add_foreign(self, account: Account) -> None:
        """Give an account the ready sandboxes of `foreign=N`, made in the hour before now."""
        now = self._clock()
        rng = self._profile.draws("foreign")
        namer = Namer(rng)
        for number in range(self._profile.foreign):
            ready = now - rng.uniform(0, 3600)
            created = ready - self._profile.ready.sample(rng)
            spec = SandboxSpec(template=SMALLEST_TEMPLATE, labels=OTHER_LABELS[number % len(OTHER_LABELS)])
            name = namer.name(self._names[account.id])
            provisions = [Provision(created, ready, reached=ready)]
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
        )
        self._sandboxes[sandbox.id] = sandbox
        self._names[account.id].add(name)
        self._stored[account.id] += storage_gib(spec.storage_size)
        return sandbox

    def _check_caps(self, spec: SandboxSpec) -> None:
        (sandboxes, stored), profile = self.totals(), self._profile
        if profile.max_sandboxes is not None and sandboxes >= profile.max_sandboxes:
            raise sandbox_cap_exceeded(sandboxes, profile.max_sandboxes)
        wanted = storage_gib(spec.storage_size)
        if spec.persist and profile.max_storage is not None and stored + wanted > profile.max_storage:
            raise storage_cap_exceeded(stored, wanted, profile.max_storage)

    def _reindex(self, sandbox: Sandbox, now: float) -> None:
        rows = self._lists[sandbox.owner_id]
        if old_key := self._keys.pop(sandbox.id, None):
            del rows[bisect_left(rows, (old_key, sandbox.id))]
        status = sandbox.status(now)
        if status is Status.READY:
            self._have_run.add(sandbox.owner_id)
        if status is Status.DELETED:
            del self._sandboxes[sandbox.id]
            self._names[sandbox.owner_id].discard(sandbox.name)
            self._stored[sandbox.owner_id] -= storage_gib(sandbox.spec.storage_size)
            self._on_gone(sandbox)
            return
        self._keys[sandbox.id] = key = sandbox.list_key(now)
        insort(rows, (key, sandbox.id))
        if (change := sandbox.next_change(now)) is not None:
            heapq.heappush(self._changes, (change, sandbox.id))
