"""Where queries and streams go: to what is there, in turn, and never into a stranger's sandbox."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.scripted import Scripted, accesses, page, sandbox
from treadstone_user.access import Access, Accesses
from treadstone_user.model import Sandbox
from treadstone_user.sections import Job
from treadstone_user.stock import Stock, Stocked, take_stock
from treadstone_user.transports.base import PreflightError, api_error
from treadstone_user.transports.credentials import Credential
from treadstone_user.transports.http import HttpTransport
from treadstone_user.transports.places import Places

BASE = "http://127.0.0.1:1"


def _with_key(*there: Sandbox) -> Accesses:
    transport = Scripted(on_list=lambda _: page(*there))
    places = Places(in_flight=1, starting=1)
    http = HttpTransport(base_url=BASE, credential=Credential.of_key("sk-x"), places=places)
    return Accesses(BASE, [Access(None, transport, http, "sk-x")])


def test_sandboxes_are_given_in_turn_and_those_that_go_no_more() -> None:
    """Also where most have come and gone."""
    stock = Stock(Stocked(name, None, "p") for name in "abc")
    assert [stock.pick() for _ in range(3)] == [Stocked(name, None, "p") for name in "bca"]
    stock.remove("b")
    assert {one.id for one in (stock.pick() for _ in range(4)) if one} == {"a", "c"}
    for number in range(100):
        stock.add(Stocked(str(number), None, "p"))
        stock.remove(str(number))
    assert {one.id for one in (stock.pick() for _ in range(4)) if one} == {"a", "c"}
    assert len(stock) == 2
    for name in "ac":
        stock.remove(name)
    assert stock.pick() is None


def test_only_ready_ones_of_load_tests_are_taken_from_an_account() -> None:
    """A person's sandbox is nobody's to run commands in."""
    mine, persons = sandbox("a", "ready"), sandbox("b", "ready", run_id=None)
    creating = sandbox("c", "creating")
    stock = take_stock(_with_key(mine, persons, creating), None, [Job.STREAM])
    assert (len(stock), stock.pick()) == (1, Stocked("a", None, f"{BASE}/v1/sandboxes/a/proxy"))


def test_a_store_tells_its_sandboxes_with_their_accounts(tmp_path: Path) -> None:
    """Nobody need be asked for them."""
    path = tmp_path / "assets.json"
    made = {"id": "a", "email": "x@x.org", "template": "t", "label": "l", "proxy": "http://p"}
    path.write_text(json.dumps({"run_id": "r", "base_url": BASE, "sandboxes": [made]}))
    assert take_stock(_with_key(), str(path), [Job.STREAM]).pick() == Stocked("a", "x@x.org", "http://p")


def test_lifecycles_need_no_stock_and_streams_alone_need_one() -> None:
    """Beside lifecycles, streams wait for what these make; queries ask for the list instead."""
    nothing = _with_key()
    assert len(take_stock(accesses(Scripted()), None, [Job.LIFECYCLE])) == 0
    assert len(take_stock(nothing, None, [Job.LIFECYCLE, Job.STREAM])) == 0
    assert len(take_stock(nothing, None, [Job.QUERY])) == 0
    with pytest.raises(PreflightError, match=r"python -m prep\.sandboxes"):
        take_stock(nothing, None, [Job.STREAM])


def test_streams_need_a_key() -> None:
    """A login session opens no proxy."""
    with pytest.raises(PreflightError, match="Set TREADSTONE_API_KEY"):
        take_stock(accesses(Scripted(on_list=lambda _: page())), None, [Job.STREAM])


def test_a_list_that_fails_is_told() -> None:
    """Before anything runs."""

    def fail(_: int) -> None:
        raise api_error(500, "oops")

    with pytest.raises(PreflightError, match=r"500 server_error: oops"):
        take_stock(accesses(Scripted(on_list=fail)), None, [Job.QUERY])  # type: ignore[arg-type]
