"""The local server's world under a clock that the test moves: states, order, pages, truth."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from prep.localserver.accounts import Account, Accounts
from prep.localserver.errors import ApiError
from prep.localserver.profile import Profile
from prep.localserver.sandbox import Sandbox, SandboxSpec, Status
from prep.localserver.truth import truth
from prep.localserver.world import World

TINY = SandboxSpec(template="aio-sandbox-tiny")
START = 1_800_000_000.0


class Scene:
    """A world with one verified account, a clock that stands still until it is moved, and who is gone."""

    def __init__(self, profile: str) -> None:
        self.now = START
        self.gone: list[Sandbox] = []
        self.accounts = Accounts(self.clock)
        self.me = self.accounts.register("me@example.com", "x")
        self.world = World(Profile.parse(profile), clock=self.clock, on_gone=self.gone.append)

    def clock(self) -> float:
        """Tell the time."""
        return self.now

    def create(self, **wanted: Any) -> Sandbox:
        """Create a sandbox of mine."""
        return self.world.create(self.me, SandboxSpec(**{"template": TINY.template, **wanted}))[0]

    def status(self, sandbox: Sandbox) -> Status | None:
        """Tell a sandbox's status as the API shows it, None where it shows none."""
        try:
            found, now = self.world.get(self.me, sandbox.id)
        except ApiError:
            return None
        return found.status(now)

    def names(self, *, limit: int = 1000, offset: int = 0, **labels: str) -> list[str]:
        """Give the names on a page of my list."""
        page, _, _ = self.world.page(self.me, limit=limit, offset=offset, labels=labels)
        return [sandbox.name for sandbox in page]


def refusal(action: Callable[[], object]) -> tuple[int, str, str]:
    """Give the status, code and message with which an action is refused."""
    with pytest.raises(ApiError) as refused:
        action()
    return refused.value.status, refused.value.code, refused.value.message


def test_a_sandbox_becomes_ready_exactly_when_drawn() -> None:
    """Creating until its time, ready from it on, and it says when that was, however late we look."""
    scene = Scene("ready=fixed(2)")
    box = scene.create()
    scene.now += 1.999
    assert (scene.status(box), box.started_at(scene.now)) == (Status.CREATING, None)
    scene.now = START + 2
    assert (scene.status(box), box.started_at(scene.now)) == (Status.READY, START + 2)
    scene.now = START + 500
    assert box.started_at(scene.now) == START + 2


def test_error_comes_at_the_time_of_ready() -> None:
    """A sandbox that fails shows error at the moment it would have been ready, and never started."""
    scene = Scene("ready=fixed(2) error=100%")
    box = scene.create()
    scene.now += 2
    assert (scene.status(box), box.started_at(scene.now)) == (Status.ERROR, None)
    assert truth(box, scene.now)["error"] == "2027-01-15T08:00:02.000Z"


def test_never_stays_creating() -> None:
    """A stuck sandbox is still creating after a year, and nothing is left to happen by itself."""
    scene = Scene("never=100%")
    box = scene.create()
    scene.now += 365 * 86400
    assert scene.status(box) is Status.CREATING
    assert scene.world.next_change() is None


@pytest.mark.parametrize(("profile", "wanted"), [("error=20%", "error"), ("never=20%", "creating")])
def test_shares_are_kept(profile: str, wanted: str) -> None:
    """About as many sandboxes fail, or stay creating, as the profile says."""
    scene = Scene(f"{profile} ready=1")
    boxes = [scene.create() for _ in range(1000)]
    scene.now += 1
    assert sum(scene.status(box) == wanted for box in boxes) == pytest.approx(200, abs=40)


def test_one_clause_leaves_the_draws_of_the_others_alone() -> None:
    """With failures and foreign sandboxes added, the same seed gives the same times to ready."""

    def times(profile: str) -> list[float]:
        scene = Scene(profile)
        scene.world.add_foreign(scene.me)
        return [scene.create().provisions[0].settles for _ in range(20)]

    assert times("seed=5") == times("seed=5 error=10% foreign=3 gone=9 label_filter=on")


def test_which_sandboxes_fail_does_not_depend_on_the_time_they_take() -> None:
    """Another distribution of times, with the same seed, fails the same sandboxes."""

    def failing(profile: str) -> list[bool]:
        scene = Scene(profile)
        return [scene.create().provisions[0].fails for _ in range(50)]

    assert failing("error=30% ready=fixed(1)") == failing("error=30% ready=lognormal(2,1)")


def test_delete_is_accepted_once_then_conflicts_then_finds_nothing() -> None:
    """After the delete it is visible as deleting until gone; deleting it again answers 409, later 404."""
    scene = Scene("ready=1 gone=fixed(3)")
    box = scene.create()
    scene.now += 1
    scene.world.delete(scene.me, box.id)
    scene.now += 2.999
    assert scene.status(box) is Status.DELETING
    assert refusal(lambda: scene.world.delete(scene.me, box.id)) == (
        409,
        "invalid_transition",
        f"Cannot transition sandbox {box.id} from deleting to deleting.",
    )
    scene.now += 0.001
    assert refusal(lambda: scene.world.delete(scene.me, box.id))[:2] == (404, "sandbox_not_found")
    assert scene.names() == []


def test_what_is_deleted_while_creating_never_becomes_ready() -> None:
    """A delete may overtake the provisioning; its ready time then never comes to pass."""
    scene = Scene("ready=1 gone=fixed(5)")
    box = scene.create()
    scene.now += 0.5
    scene.world.delete(scene.me, box.id)
    scene.now += 2
    assert (scene.status(box), box.started_at(scene.now)) == (Status.DELETING, None)


def test_stop_and_start_bring_it_up_anew() -> None:
    """Stopped until started; then creating again for the profile's time, and started_at is the new one."""
    scene = Scene("ready=fixed(2)")
    box = scene.create()
    scene.now += 3
    scene.world.stop(scene.me, box.id)
    scene.now += 10
    assert (scene.status(box), box.stopped_at) == (Status.STOPPED, START + 3)
    scene.world.start(scene.me, box.id)
    assert scene.status(box) is Status.CREATING
    scene.now += 2
    assert (scene.status(box), box.started_at(scene.now)) == (Status.READY, START + 15)
    assert box.first_ready(scene.now) == START + 2


@pytest.mark.parametrize(
    ("action", "message"),
    [("stop", "from creating to stopped."), ("start", "from creating to ready.")],
)
def test_stop_and_start_need_the_right_status(action: str, message: str) -> None:
    """What is still creating can neither be stopped nor started."""
    scene = Scene("ready=9")
    box = scene.create()
    status, code, text = refusal(lambda: getattr(scene.world, action)(scene.me, box.id))
    assert (status, code) == (409, "invalid_transition")
    assert text.endswith(message)


@pytest.mark.parametrize("what", ["stop", "delete"])
def test_the_proxy_no_longer_reaches_what_ended_before(what: str) -> None:
    """Stopped or deleted between ready and reachable, a sandbox is told as never reached."""
    scene = Scene("ready=fixed(1) proxy=fixed(2) gone=fixed(9)")
    box = scene.create()
    scene.now += 2
    assert refusal(lambda: scene.world.reach(scene.me, box.id))[:2] == (502, "sandbox_unreachable")
    getattr(scene.world, what)(scene.me, box.id)
    scene.now += 2
    assert refusal(lambda: scene.world.reach(scene.me, box.id))[:2] == (409, "sandbox_not_ready")
    assert truth(box, scene.now)["reachable"] is None


def test_a_sandbox_that_comes_up_anew_is_reached_anew() -> None:
    """After a start the proxy takes its time again; the truth tells the first time."""
    scene = Scene("ready=fixed(1) proxy=fixed(2)")
    box = scene.create()
    scene.now += 3
    assert scene.world.reach(scene.me, box.id) is box
    scene.world.stop(scene.me, box.id)
    scene.world.start(scene.me, box.id)
    scene.now += 1
    assert refusal(lambda: scene.world.reach(scene.me, box.id))[:2] == (502, "sandbox_unreachable")
    scene.now += 2
    assert scene.world.reach(scene.me, box.id) is box
    assert truth(box, scene.now)["reachable"] == "2027-01-15T08:00:03.000Z"


def test_what_failed_is_never_reached() -> None:
    """The proxy leads to ready sandboxes only, and the truth says the same."""
    scene = Scene("ready=fixed(1) error=100%")
    box = scene.create()
    scene.now += 5
    assert refusal(lambda: scene.world.reach(scene.me, box.id))[:2] == (409, "sandbox_not_ready")
    assert truth(box, scene.now)["reachable"] is None


def test_the_list_is_ordered_by_status_then_newest_first() -> None:
    """Ready before creating before deleting before the rest; within a status the last active comes first."""
    scene = Scene("ready=fixed(10) gone=fixed(100)")
    for name in ("stopped", "ready-old", "deleting", "ready-new", "creating-old"):
        scene.create(name=name)
        scene.now += 3
    scene.create(name="creating-new")
    scene.world.stop(scene.me, _named(scene, "stopped").id)
    scene.world.delete(scene.me, _named(scene, "deleting").id)
    scene.now = START + 20
    assert scene.names() == [
        "ready-new",
        "ready-old",
        "creating-new",
        "creating-old",
        "deleting",
        "stopped",
    ]


def test_of_equal_age_the_name_decides() -> None:
    """Sandboxes of the same moment stand in the order of their names."""
    scene = Scene("")
    for name in ("b", "c", "a"):
        scene.create(name=name)
    assert scene.names() == ["a", "b", "c"]


def test_error_and_stopped_stand_together() -> None:
    """Behind deleting come error and stopped as one group, the last active first."""
    scene = Scene("ready=1 error=100%")
    for name in ("error-old", "stopped", "error-new"):
        scene.create(name=name)
        scene.now += 1
    scene.world.stop(scene.me, _named(scene, "stopped").id)
    scene.now += 1
    assert scene.names() == ["error-new", "stopped", "error-old"]


def test_rows_move_between_pages_while_states_change() -> None:
    """Page by page, deleting what is seen, skips some sandboxes; only listing again finds them all."""
    scene = Scene("ready=0 gone=fixed(60)")
    everyone = {scene.create(name=f"n{number}").name for number in range(30)}
    seen = set()
    for offset in range(0, 30, 10):
        for name in scene.names(limit=10, offset=offset):
            seen.add(name)
            if scene.status(_named(scene, name)) is Status.READY:
                scene.world.delete(scene.me, _named(scene, name).id)
    assert seen < everyone


def test_a_page_costs_what_changed_and_not_what_there_is() -> None:
    """With ten thousand sandboxes, creating one and listing a page takes about a millisecond at most."""
    scene = Scene("ready=uniform(0,100)")
    for _ in range(10_000):
        scene.create()
    began = time.perf_counter()
    for _ in range(200):
        scene.now += 0.1
        scene.create()
        assert len(scene.names(limit=100, offset=5000)) == 100
    assert time.perf_counter() - began < 1.0


def test_limit_offset_and_total_cut_the_page() -> None:
    """A page holds what limit and offset say, the total holds all, and past the end there is nothing."""
    scene = Scene("")
    for number in range(5):
        scene.create(name=f"n{number}")
    assert scene.names(limit=2, offset=3) == ["n3", "n4"]
    assert scene.world.page(scene.me, limit=2, offset=99, labels={})[:2] == ([], 5)


def test_the_label_filter_wants_all_labels() -> None:
    """A filtered list holds the sandboxes that carry every label asked for, and counts only them."""
    scene = Scene("")
    scene.create(name="both", labels={"a": "1", "b": "2"})
    scene.create(name="one", labels={"a": "1"})
    assert scene.names(a="1", b="2") == ["both"]
    assert scene.world.page(scene.me, limit=1, offset=0, labels={"a": "1"})[1] == 2


def test_accounts_do_not_see_each_other() -> None:
    """Another account's sandbox is neither listed nor found nor deleted, and its name is free for me."""
    scene = Scene("")
    other = Account(id="u", email="o@x.y", password_hash="", role="rw", is_verified=True, created=START)
    box = scene.create(name="mine")
    assert scene.world.page(other, limit=9, offset=0, labels={})[0] == []
    assert refusal(lambda: scene.world.get(other, box.id))[0] == 404
    assert refusal(lambda: scene.world.delete(other, box.id))[0] == 404
    scene.world.create(other, SandboxSpec(template=TINY.template, name="mine"))


def test_a_name_is_taken_until_its_sandbox_is_gone() -> None:
    """Deleting alone does not free a name."""
    scene = Scene("gone=fixed(1)")
    box = scene.create(name="twin")
    scene.world.delete(scene.me, box.id)
    assert refusal(lambda: scene.create(name="twin"))[:2] == (409, "sandbox_name_conflict")
    scene.now += 1
    assert scene.create(name="twin").name == "twin"


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "sandbox_duration_exceeded"),
        (402, "compute_quota_exceeded"),
        (403, "template_not_allowed"),
        (409, "sandbox_name_conflict"),
        (429, "concurrent_limit_exceeded"),
        (500, "internal_error"),
        (503, "sandbox_cap_exceeded"),
    ],
)
def test_creates_are_refused_with_the_documented_code(status: int, code: str) -> None:
    """A refused create tells the code of its status, and leaves nothing behind."""
    scene = Scene(f"create={status}:100%")
    assert refusal(scene.create)[:2] == (status, code)
    assert scene.names() == []


def test_refused_creates_keep_their_shares() -> None:
    """Each status refuses about its share of the creates."""
    scene = Scene("create=429:10%,500:5%")
    outcomes = []
    for _ in range(2000):
        try:
            scene.create()
            outcomes.append(202)
        except ApiError as refused:
            outcomes.append(refused.status)
    assert outcomes.count(429) == pytest.approx(200, abs=50)
    assert outcomes.count(500) == pytest.approx(100, abs=40)


def test_running_counts_what_is_creating_or_ready() -> None:
    """Stopped, failed and deleting sandboxes do not count as running."""
    scene = Scene("ready=1 gone=9")
    first, second, third = scene.create(), scene.create(), scene.create()
    scene.now += 1
    assert scene.world.running(scene.me) == 3
    scene.world.stop(scene.me, first.id)
    scene.world.delete(scene.me, second.id)
    assert scene.world.running(scene.me) == 1
    assert third.status(scene.now) is Status.READY


def test_foreign_sandboxes_are_ready_and_not_part_of_any_run() -> None:
    """They are there from the start, ready, some with another run's label, and marked as foreign."""
    scene = Scene("foreign=7")
    scene.world.add_foreign(scene.me)
    boxes, total, now = scene.world.page(scene.me, limit=1000, offset=0, labels={})
    assert total == 7
    assert all(box.foreign and box.status(now) is Status.READY and box.created < START for box in boxes)
    assert {frozenset(box.spec.labels) for box in boxes} == {
        frozenset({"team"}),
        frozenset({"loadtest"}),
        frozenset(),
    }


def test_the_truth_tells_each_moment_when_it_is_gone() -> None:
    """Once gone, a sandbox is told with all its moments, exact to the millisecond."""
    scene = Scene("ready=fixed(1.5) proxy=fixed(0.75) gone=fixed(0.25)")
    box = scene.create(labels={"loadtest": "run-1"})
    scene.now += 4
    scene.world.delete(scene.me, box.id)
    assert scene.gone == []
    scene.now += 0.25
    scene.world.advance()
    assert scene.gone == [box]
    assert truth(box, scene.now) == {
        "id": box.id,
        "labels": {"loadtest": "run-1"},
        "created": "2027-01-15T08:00:00.000Z",
        "ready": "2027-01-15T08:00:01.500Z",
        "error": None,
        "reachable": "2027-01-15T08:00:02.250Z",
        "first_exec": None,
        "delete_requested": "2027-01-15T08:00:04.000Z",
        "gone": "2027-01-15T08:00:04.250Z",
    }


def test_the_truth_does_not_foretell() -> None:
    """What has not come yet is null, even though it is drawn already."""
    scene = Scene("ready=fixed(9) gone=fixed(9)")
    box = scene.create()
    scene.now += 1
    scene.world.delete(scene.me, box.id)
    told = truth(box, scene.now)
    assert (told["ready"], told["reachable"], told["error"], told["gone"]) == (None, None, None, None)
    assert told["delete_requested"] == "2027-01-15T08:00:01.000Z"


def test_the_next_change_is_known() -> None:
    """The world tells when something next happens by itself: ready first, gone after a delete."""
    scene = Scene("ready=fixed(5) gone=fixed(1)")
    box = scene.create()
    assert scene.world.next_change() == START + 5
    scene.world.delete(scene.me, box.id)
    assert scene.world.next_change() == START + 1


def _named(scene: Scene, name: str) -> Sandbox:
    page, _, _ = scene.world.page(scene.me, limit=1000, offset=0, labels={})
    [found] = [sandbox for sandbox in page if sandbox.name == name]
    return found
