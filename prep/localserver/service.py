"""What the service in a sandbox answers. It only makes it up: no command is ever run."""

from __future__ import annotations

import json
import secrets
import shlex
from collections.abc import Iterator
from typing import Any

from prep.localserver.sse import Event
from prep.localserver.timing import Rhythm

Json = dict[str, Any]

HOME = "/home/gem"
WORDS = ("The ", "sandbox ", "says ", "déjà ", "vu ", "✓, ", "and ", "again: ")
"""What a model says, a token each, over and over; some letters are longer than a byte."""


def outcome(command: str, folder: str) -> tuple[str, int]:
    """Make up what a command prints, and its exit code.

    It knows echo, pwd, true, false and exit, joined by `;` or `&&`; all else it says it has not run.
    """
    lexer = shlex.shlex(command, posix=True, punctuation_chars=";&")
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError:  # a quotation that does not end
        words = ["echo", command]
    printed: list[str] = []
    code = 0
    while words:
        line = _until_join(words)
        join = words.pop(0) if words else ";"
        output, code, ends = _one(line, folder)
        printed += [output] if output else []
        if ends or (code != 0 and join == "&&"):
            break
    return "\n".join(printed), code


def _until_join(words: list[str]) -> list[str]:
    line = []
    while words and words[0] not in (";", "&&"):
        line.append(words.pop(0))
    return line


def _one(line: list[str], folder: str) -> tuple[str, int, bool]:
    match line:
        case []:
            return "", 0, False
        case ["echo", *words]:
            return " ".join(words), 0, False
        case ["pwd"]:
            return folder, 0, False
        case ["true"]:
            return "", 0, False
        case ["false"]:
            return "", 1, False
        case ["exit", code] if code.isdecimal():
            return "", int(code) % 256, True
        case _:
            return f"(not run: {' '.join(line)})", 0, False


def exec_answer(command: str, output: str, code: int, session_id: str | None) -> Json:
    """Answer a command that has ended."""
    return {
        "success": True,
        "message": "Command executed",
        "data": {
            "session_id": session_id or secrets.token_hex(8),
            "command": command,
            "status": "completed",
            "output": output,
            "console": [{"ps1": "$", "command": command, "output": output}],
            "exit_code": code,
        },
    }


def exec_events(output: str, rhythm: Rhythm) -> Iterator[Event]:
    """Stream a command: its output again and again, each time with a number, so that none can go missing."""
    for number in range(rhythm.count):
        text = _json({"output": f"{output} {number}\n"})
        yield Event(at=rhythm.at(number), data=text)


def plain_events(rhythm: Rhythm) -> Iterator[Event]:
    """Stream numbered events that have a name and an id."""
    for number in range(rhythm.count):
        yield Event(at=rhythm.at(number), data=_json({"number": number}), name="tick", id=str(number))


def tokens(rhythm: Rhythm, request: Json) -> int:
    """How many tokens a model answers a request with: the rhythm's, or fewer where the request says so."""
    most = request.get("max_tokens")
    if isinstance(most, int) and not isinstance(most, bool) and most > 0:
        return min(rhythm.count, most)
    return rhythm.count


def chat_answer(request: Json, rhythm: Rhythm, created: float) -> Json:
    """Answer a chat in one piece; `created` is in Unix seconds."""
    count = tokens(rhythm, request)
    message = {"role": "assistant", "content": "".join(_word(number) for number in range(count))}
    return {
        **_head(request, created, "chat.completion"),
        "choices": [{"index": 0, "message": message, "finish_reason": _finish(count, rhythm)}],
        "usage": _usage(request, count),
    }


def chat_events(request: Json, rhythm: Rhythm, created: float) -> Iterator[Event]:
    """Stream a chat, a token an event; `created` is in Unix seconds.

    The role comes at once, with the head of the answer; why it ends, its usage and the mark of its end come
    with the last token.
    """
    count = tokens(rhythm, request)
    head = _head(request, created, "chat.completion.chunk")
    with_usage = _wants_usage(request)
    absent = {"usage": None} if with_usage else {}

    def chunk(at: float, delta: Json, finish: str | None = None, *, is_output: bool = False) -> Event:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return Event(at=at, data=_json({**head, "choices": [choice], **absent}), is_output=is_output)

    yield chunk(0.0, {"role": "assistant", "content": ""})
    for number in range(count):
        yield chunk(rhythm.at(number), {"content": _word(number)}, is_output=True)
    last = rhythm.last(count)
    yield chunk(last, {}, _finish(count, rhythm))
    if with_usage:
        told = {**head, "choices": [], "usage": _usage(request, count)}
        yield Event(at=last, data=_json(told), is_output=False)
    yield Event(at=last, data="[DONE]", is_output=False)


def _head(request: Json, created: float, kind: str) -> Json:
    return {
        "id": f"chatcmpl-{secrets.token_hex(12)}",
        "object": kind,
        "created": int(created),
        "model": request["model"],
    }


def _finish(count: int, rhythm: Rhythm) -> str:
    return "stop" if count == rhythm.count else "length"


def _wants_usage(request: Json) -> bool:
    options = request.get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


def _usage(request: Json, count: int) -> Json:
    contents = [one.get("content") for one in request["messages"] if isinstance(one, dict)]
    asked = sum(len(content.split()) for content in contents if isinstance(content, str))
    return {"prompt_tokens": asked, "completion_tokens": count, "total_tokens": asked + count}


def _word(number: int) -> str:
    return WORDS[number % len(WORDS)]


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)
