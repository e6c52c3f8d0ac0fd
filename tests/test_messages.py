"""Messages travel as plain values, and what is no message is told so."""

from __future__ import annotations

from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest

from treadstone_user.messages import (
    Answer,
    Assignment,
    Join,
    Message,
    Refusal,
    Report,
    from_values,
    to_values,
)

MESSAGES: list[Message] = [
    Join(version="1", host="a", machine="m", pid=3),
    Assignment(
        run_id="r",
        worker="w1",
        t_ms=1.5,
        scenario={"name": "x", "matrix": [{"template": "t", "count": 1, "persist": False}]},
        steady=False,
        jobs=["lifecycle"],
        local=True,
        base_url="http://127.0.0.1:1",
        transport="cli",
        machine="m",
        warm_cli=None,
        cli_startup_sec=0.2,
    ),
    Refusal(run_id="r", problem="no key"),
    Report(
        "r",
        number=1,
        heard=0,
        events=['{"seq": 1}'],
        done=[1],
        got=1,
        want=2,
        want_turns=1,
        holds=3,
        clock_error_ms=0.4,
        client={"a": [1]},
        problem=None,
    ),
    Answer(
        "r",
        number=1,
        heard=1,
        acknowledged=1,
        first=0,
        tasks=[(1, 0, "a@example.com"), (-1, -1, None)],
        share=3,
        neighbours=1,
        drain=False,
    ),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_arrives_as_it_was_sent(message: Message) -> None:
    """Through msgpack, as Locust sends it; tuples become lists."""
    arrived = from_values(msgpack.loads(msgpack.dumps(to_values(message)), strict_map_key=False))
    assert msgpack.dumps(to_values(arrived)) == msgpack.dumps(to_values(message))
    assert type(arrived) is type(message)


@pytest.mark.parametrize(
    "values", [{}, {"kind": "Nonsense"}, {"kind": "Join", "pid": 1}, {"kind": "Join", "x": 1}]
)
def test_what_is_no_message_of_this_version_is_told_so(values: dict[str, Any]) -> None:
    """A worker of another version may send anything."""
    with pytest.raises(ValueError, match="not a message that this version knows"):
        from_values(values)
