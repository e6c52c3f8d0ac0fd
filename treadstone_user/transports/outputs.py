"""What a stream out of a sandbox has given, and when: counts, characters, tokens and gaps.

An output is an event that carries text. What that is depends on the endpoint:

- `/v1/shell/exec` tells `{"output": "…"}`; its other objects, such as the exit code, are no output;
- a chat completion, the OpenAI API's `chat.completion.chunk`, has it in `choices[0].delta.content`;
  the chunk that tells the role, the one that tells the end and the one with the usage have none;
- at any other endpoint every event's data is text.

`[DONE]` ends a stream, as in the OpenAI API's reference on streaming.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from treadstone_user.sse import ServerSentEvent

MAX_GAPS = 1_000_000
"""So many gaps are kept one by one, 4 bytes each; of those after them only the sum and the longest."""

Ending = Literal["done", "stopped", "silent", "broken"]
"""By `[DONE]` or a clean end; because we were told to stop; no output in time; cut off, or told an error."""

_DONE = "[DONE]"
_CHUNK = '"chat.completion.chunk"'


@dataclass(frozen=True, slots=True)
class Streamed:
    """A stream as its reader saw it. Times are milliseconds, from just before the request was sent.

    connect_ms: before that, until there was a connection to send it by.
    first_output_ms: until the first output had arrived; None where there was none.
    total_ms: until the end was seen.
    events: all events, with and without an output, `[DONE]` included.
    outputs: how many events carried text.
    characters: of all outputs, in Unicode code points.
    tokens: of a chat completion: what its usage told, else the number of outputs; None of others.
    tokens_counted: whether `tokens` is that number of outputs.
    gaps_ms: between each output and the one before it, the first `MAX_GAPS` of them; 0 for two that
        arrived in one read.
    gaps_sum_ms, gaps_max_ms: of all gaps; None where there was none.
    """

    connect_ms: float
    first_output_ms: float | None
    total_ms: float
    events: int
    outputs: int
    characters: int
    tokens: int | None
    tokens_counted: bool
    gaps_ms: Sequence[float]
    gaps_sum_ms: float | None
    gaps_max_ms: float | None
    ended: Ending


class Measure:
    """Takes in a stream's events and the times at which they arrived.

    path: the endpoint's, which tells what an output is.
    begun: when the call began. All times are seconds of the monotonic clock.

    Attributes:
        started: when the request was sent, `begun` until that is known.
        done: whether the stream told its end by `[DONE]`.
        error: the error that a chat completion told in its stream, None while there is none.
        last_output: when the last output arrived, None before the first.
    """

    def __init__(self, path: str, begun: float) -> None:
        self.done = False
        self.error: str | None = None
        self.started = begun
        self.last_output: float | None = None
        self._begun = begun
        self._text = self._reader(path.partition("?")[0].rstrip("/"))
        self._first: float | None = None
        self._events = 0
        self._outputs = 0
        self._characters = 0
        self._is_chat = False
        self._told_tokens: int | None = None
        self._gaps = array("f")
        self._sum = 0.0
        self._longest = 0.0

    def take(self, events: Iterable[ServerSentEvent], now: float) -> None:
        """Take in the events that one read has completed."""
        for event in events:
            self._events += 1
            if event.data == _DONE:
                self.done = True
                return
            text = self._text(event.data)
            if text:
                self._count(text, now)

    def end(self, now: float, ended: Ending) -> Streamed:
        """Tell what was measured, at the end of the stream."""
        counted = self._is_chat and self._told_tokens is None
        several = self._outputs > 1
        return Streamed(
            connect_ms=(self.started - self._begun) * 1000,
            first_output_ms=None if self._first is None else (self._first - self.started) * 1000,
            total_ms=(now - self.started) * 1000,
            events=self._events,
            outputs=self._outputs,
            characters=self._characters,
            tokens=self._outputs if counted else self._told_tokens,
            tokens_counted=counted,
            gaps_ms=self._gaps,
            gaps_sum_ms=self._sum if several else None,
            gaps_max_ms=self._longest if several else None,
            ended=ended,
        )

    def _count(self, text: str, now: float) -> None:
        self._outputs += 1
        self._characters += len(text)
        if self.last_output is None:
            self._first = now
        else:
            gap = (now - self.last_output) * 1000
            self._sum += gap
            self._longest = max(self._longest, gap)
            if len(self._gaps) < MAX_GAPS:
                self._gaps.append(gap)
        self.last_output = now

    def _reader(self, path: str) -> Callable[[str], str]:
        if path.endswith("/shell/exec"):
            return _exec_text
        if path.endswith("/chat/completions"):
            return self._chat_text
        return lambda data: self._chat_text(data) if _CHUNK in data else data

    def _chat_text(self, data: str) -> str:
        self._is_chat = True
        try:
            chunk = json.loads(data)
        except (ValueError, RecursionError):
            return ""
        if not isinstance(chunk, dict):
            return ""
        if error := chunk.get("error"):
            told = error.get("message") if isinstance(error, dict) else None
            self.error = str(told or error)
        usage = chunk.get("usage")
        if isinstance(usage, dict) and isinstance(usage.get("completion_tokens"), int):
            self._told_tokens = usage["completion_tokens"]
        return _content(chunk.get("choices"))


def _content(choices: Any) -> str:
    """The text of a chunk's first choice, empty where there is none."""
    first = choices[0] if isinstance(choices, list) and choices else None
    delta = first.get("delta") if isinstance(first, dict) else None
    content = delta.get("content") if isinstance(delta, dict) else None
    return content if isinstance(content, str) else ""


def _exec_text(data: str) -> str:
    """The output that an event of exec tells; one that is no JSON is output as it stands."""
    try:
        told = json.loads(data)
    except (ValueError, RecursionError):
        return data
    output = told.get("output") if isinstance(told, dict) else None
    return output if isinstance(output, str) else ""
