"""The local server's plans and caps: who may have how much, told and enforced as the profile says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from prep.localserver.accounts import Account, Accounts
from prep.localserver.errors import ApiError
from prep.localserver.plans import Plans
from prep.localserver.profile import Profile
from prep.localserver.sandbox import Sandbox, SandboxSpec
from prep.localserver.world import World
from tests.api import TINY, Api, admin_key, admin_session, new_account, refused
from tests.servers import LocalServer

SMALL = "aio-sandbox-small"
START = 1_800_000_000.0


class Scene:
    """A world with an admin whose tier the profile says, and a clock that stands until it is moved."""

    def __init__(self, profile: str) -> None:
        self.now = START
        read = Profile.parse(profile)
        self.accounts = Accounts(self.clock, cap=read.max_users)
        self.plans = Plans(self.clock, enforced=read.plans is not None, credit=read.credit)
        self.world = World(read, clock=self.clock, plans=self.plans)
        self.me = self.accounts.register("me@example.com", "x")
        if read.plans is not None:
            self.plans.begin(self.me.id, read.plans)

    def clock(self) -> float:
        """Tell the time."""
        return self.now

    def another(self, email: str = "other@example.com") -> Account:
        """Register another account and verify it."""
        account = self.accounts.register(email, "x")
        self.accounts.verify(self.accounts.mail_to(email).token)
        return self.accounts.find(account.id)

    def create(self, account: Account | None = None, **wanted: Any) -> Sandbox:
        """Create a sandbox, mine if nobody else's."""
        spec = SandboxSpec(**{"template": TINY["template"], **wanted})
        return self.world.create(account or self.me, spec)[0]


def refusal(action: Callable[[], object]) -> tuple[int, str]:
    """Give the status and code with which an action is refused."""
    with pytest.raises(ApiError) as told:
        action()
    return told.value.status, told.value.code


@pytest.mark.parametrize(("tier", "most"), [("free", 1), ("pro", 5), ("ultra", 15), ("custom", 50)])
def test_so_many_sandboxes_run_at_once(tier: str, most: int) -> None:
    """As many as the tier says, and not one more."""
    scene = Scene(f"plans={tier}")
    for _ in range(most):
        scene.create()
    assert refusal(scene.create) == (429, "concurrent_limit_exceeded")
    with pytest.raises(ApiError, match=rf"Running: {most} / {most}\."):
        scene.create()


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ({"template": SMALL}, (403, "template_not_allowed")),
        ({"template": "no-such"}, (403, "template_not_allowed")),
        ({"template": "no-such", "persist": True, "storage_size": "5Gi"}, (404, "template_not_found")),
        ({"persist": True, "storage_size": "5Gi"}, (402, "storage_quota_exceeded")),
        ({"persist": True, "storage_size": "7Gi"}, (400, "bad_request")),
        ({"auto_stop_interval": 121}, (400, "sandbox_duration_exceeded")),
        ({"auto_stop_interval": 0}, (400, "sandbox_duration_exceeded")),
    ],
)
def test_what_the_free_plan_has_not(wanted: dict[str, Any], told: tuple[int, str]) -> None:
    """Tiny sandboxes without storage, for two hours at most; refused ones leave nothing behind."""
    scene = Scene("plans=free")
    assert refusal(lambda: scene.create(**wanted)) == told
    assert scene.world.totals() == (0, 0)
    scene.create(auto_stop_interval=120)


@pytest.mark.parametrize(
    ("tier", "largest", "too_large", "gib"),
    [("pro", "medium", "large", 20), ("ultra", "medium", "large", 60), ("custom", "xlarge", None, 200)],
)
def test_what_the_paid_plans_have(tier: str, largest: str, too_large: str | None, gib: int) -> None:
    """Larger templates, storage up to a sum, and sandboxes that never stop."""
    scene = Scene(f"plans={tier}")
    if too_large is not None:
        assert refusal(lambda: scene.create(template=f"aio-sandbox-{too_large}"))[0] == 403
    wanted: dict[str, Any] = {"template": f"aio-sandbox-{largest}", "auto_stop_interval": 0}
    for _ in range(gib // 20):
        scene.create(**wanted, persist=True, storage_size="20Gi")
    wanted |= {"persist": True, "storage_size": "5Gi"}
    assert refusal(lambda: scene.create(**wanted))[1] == "storage_quota_exceeded"


def test_refusals_come_in_the_real_servers_order() -> None:
    """Template, compute, running, storage, duration: the first that fails is told."""
    scene = Scene("plans=free credit=0")
    plan = scene.plans.of(scene.me.id)
    wanted: dict[str, Any] = {"auto_stop_interval": 0, "persist": True, "storage_size": "5Gi"}

    def told() -> str:
        return refusal(lambda: scene.create(template=SMALL, **wanted))[1]

    scene.plans.change(scene.me.id, None, {"max_concurrent_running": 0})
    assert told() == "template_not_allowed"
    scene.plans.change(scene.me.id, None, {"allowed_templates": [SMALL]})
    assert told() == "compute_quota_exceeded"
    scene.plans.change(scene.me.id, None, {"compute_units_monthly_limit": 10.5})
    assert plan.compute_left == 0.5
    assert told() == "concurrent_limit_exceeded"
    scene.plans.change(scene.me.id, None, {"max_concurrent_running": 1})
    assert told() == "storage_quota_exceeded"
    scene.plans.change(scene.me.id, None, {"storage_capacity_limit_gib": 5})
    assert told() == "sandbox_duration_exceeded"
    scene.plans.change(scene.me.id, None, {"max_sandbox_duration_seconds": 0})
    scene.create(template=SMALL, **wanted)


def test_what_stands_still_leaves_room_and_a_start_takes_it() -> None:
    """A stopped sandbox does not run; to start it again needs the room that a create needs."""
    scene = Scene("plans=free ready=1 gone=fixed(9)")
    first = scene.create()
    scene.now += 1
    scene.world.stop(scene.me, first.id)
    second = scene.create()
    assert refusal(lambda: scene.world.start(scene.me, first.id)) == (429, "concurrent_limit_exceeded")
    scene.world.delete(scene.me, second.id)
    scene.world.start(scene.me, first.id)


def test_storage_is_taken_until_the_sandbox_is_gone() -> None:
    """Deleting alone does not give it back."""
    scene = Scene("plans=pro gone=fixed(3)")
    box = scene.create(persist=True, storage_size="20Gi")
    scene.world.delete(scene.me, box.id)
    wanted: dict[str, Any] = {"persist": True, "storage_size": "5Gi"}
    assert refusal(lambda: scene.create(**wanted)) == (402, "storage_quota_exceeded")
    scene.now += 3
    scene.create(**wanted)


@pytest.mark.parametrize(("credit", "left", "extra"), [("0", 0, 0), ("2.5", 2.5, 0), ("100", 100, 90)])
def test_credit_is_what_is_left_of_compute(credit: str, left: float, extra: float) -> None:
    """Less than the tier's month is a month partly used, more is granted on top; with none left, 402."""
    scene = Scene(f"plans=free credit={credit}")
    plan = scene.plans.of(scene.me.id)
    assert (plan.compute_left, plan.extra) == (left, extra)
    if left > 0:
        scene.create()
    else:
        assert refusal(scene.create) == (402, "compute_quota_exceeded")


def test_without_the_clause_nothing_is_enforced() -> None:
    """Everybody is told plenty, and is refused nothing."""
    scene = Scene("")
    for _ in range(60):
        scene.create(template="aio-sandbox-xlarge", auto_stop_interval=0, persist=True, storage_size="20Gi")
    plan = scene.plans.of(scene.me.id)
    assert (plan.tier, plan.limits.max_concurrent_running) == ("custom", 10_000)


def test_the_servers_caps_count_everybodys_sandboxes() -> None:
    """They go before the plans, and what is gone makes room."""
    scene = Scene("plans=free max_sandboxes=2 gone=fixed(1)")
    other = scene.another()
    box = scene.create()
    scene.create(other)
    assert refusal(lambda: scene.create(template=SMALL)) == (503, "sandbox_cap_exceeded")
    scene.world.delete(scene.me, box.id)
    assert refusal(scene.create) == (503, "sandbox_cap_exceeded")
    scene.now += 1
    scene.create()


def test_the_servers_storage_has_a_cap() -> None:
    """What has no storage is not held up by it."""
    scene = Scene("max_storage=12")
    scene.create(persist=True, storage_size="10Gi")
    wanted: dict[str, Any] = {"persist": True, "storage_size": "5Gi"}
    assert refusal(lambda: scene.create(scene.another(), **wanted)) == (503, "global_storage_cap_exceeded")
    scene.create()


def test_the_server_takes_so_many_accounts() -> None:
    """An address that is taken is told as such also when the server is full."""
    scene = Scene("max_users=2")
    scene.another()
    assert refusal(lambda: scene.another("third@example.com")) == (503, "user_registration_cap_exceeded")
    assert refusal(lambda: scene.another())[0] == 409


def test_an_account_must_be_verified_before_it_is_refused_anything_else() -> None:
    """A full server tells it the same."""
    scene = Scene("plans=free max_sandboxes=0")
    stranger = scene.accounts.register("new@example.com", "x")
    assert refusal(lambda: scene.create(stranger)) == (403, "email_verification_required")


def told_of_plan(api: Api) -> tuple[str, int, int, int]:
    """An account's tier, its limit, what runs and what it stores, as the usage routes tell them."""
    usage, plan = api.ask("GET", "/v1/usage").json(), api.ask("GET", "/v1/usage/plan").json()
    limits = usage["limits"]
    assert usage["tier"] == plan["tier"]
    assert limits["max_concurrent_running"] == plan["max_concurrent_running"]
    assert usage["storage"]["total_quota_gib"] == plan["storage_capacity_limit_gib"]
    most, runs = limits["max_concurrent_running"], limits["current_running"]
    return usage["tier"], most, runs, usage["storage"]["current_used_gib"]


def test_each_account_is_told_its_own_plan_and_use() -> None:
    """The account that is there has the tier of the clause, those that register begin as free."""
    with LocalServer(profile="plans=pro credit=4 max_sandboxes=2 max_users=9 max_storage=50") as server:
        mine, other = admin_key(server), new_account(server)
        mine.create(persist=True, storage_size="10Gi")
        other.create()
        assert told_of_plan(mine) == ("pro", 5, 1, 10)
        assert told_of_plan(other) == ("free", 1, 1, 0)
        compute = mine.ask("GET", "/v1/usage").json()["compute"]
        assert (compute["monthly_limit"], compute["total_remaining"]) == (180, 4)
        assert refused(mine.ask("POST", "/v1/sandboxes", json=TINY)) == (503, "sandbox_cap_exceeded")
        told = admin_session(server).ask("GET", "/v1/admin/platform-limits").json()
    assert told["config"] == {
        "max_registered_users": 9,
        "max_total_sandboxes": 2,
        "max_total_storage_gib": 50,
        "max_waitlist_applications": None,
    }
    assert told["usage"] == {
        "registered_users": 2,
        "total_sandboxes": 2,
        "total_storage_gib": 10,
        "waitlist_applications": 0,
    }


def test_a_cap_without_room_for_the_first_account_is_told() -> None:
    """The server does not start."""
    with pytest.raises(RuntimeError, match="max_users=0 leaves no room"):
        LocalServer(profile="max_users=0").__enter__()
