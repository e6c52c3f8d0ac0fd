"""The local server's data plane over real sockets: commands, chats and events, and the truth of them."""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.api import Api, admin_key, admin_session, new_account, refused
from tests.runs import json_lines, seconds
from tests.servers import API_KEY, LocalServer
from tests.sse import Reader, close

EVENTS = {"Accept": "text/event-stream"}
CHAT = {"model": "tiny-1", "messages": [{"role": "user", "content": "Say it again."}]}


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    """A server whose sandboxes are ready and within reach at once."""
    with LocalServer(profile="ready=0 stream=0.1+6x0.02") as running:
        yield running


def proxied(sandbox_id: str, path: str = "v1/shell/exec") -> str:
    """The path to the service in a sandbox."""
    return f"/v1/sandboxes/{sandbox_id}/proxy/{path}"


def execute(api: Api, sandbox_id: str, command: str = "echo hi", **more: Any) -> requests.Response:
    """Run a command."""
    return api.ask("POST", proxied(sandbox_id), json={"command": command}, **more)


def outputs(answer: requests.Response) -> list[str]:
    """The outputs of a streamed command."""
    reader = Reader()
    reader.feed(answer.content)
    return [json.loads(event["data"])["output"] for event in reader.events]


def streams(log: Path) -> list[dict[str, Any]]:
    """What a log of requests says of streams that have ended."""
    return [line for line in json_lines(log) if "stream" in line]


def test_only_a_key_opens_the_data_plane(server: LocalServer) -> None:
    """A session is told to bring a key, and so is nobody; the sandboxes of others are not there."""
    sandbox_id = admin_key(server).create()
    told = {
        "session": refused(execute(admin_session(server), sandbox_id)),
        "nobody": refused(execute(Api(server.base_url), sandbox_id)),
        "no key": refused(execute(Api(server.base_url, "token"), sandbox_id)),
        "unknown key": refused(execute(Api(server.base_url, "sk-unknown"), sandbox_id)),
        "another": refused(execute(new_account(server).new_key(), sandbox_id)),
    }
    assert told == {
        "session": (401, "auth_invalid"),
        "nobody": (401, "auth_required"),
        "no key": (401, "auth_invalid"),
        "unknown key": (401, "auth_invalid"),
        "another": (404, "sandbox_not_found"),
    }


def test_a_sandbox_is_reached_some_time_after_it_is_ready(tmp_path: Path) -> None:
    """409 before ready, 502 until the proxy reaches it, then an answer; the truth log knows each moment."""
    truth = tmp_path / "truth.jsonl"
    with LocalServer(profile="ready=fixed(0.25) proxy=fixed(0.25)", truth=truth) as server:
        api = admin_key(server)
        sandbox_id, never_used = api.create(), api.create()
        told: list[int] = []
        while not told or told[-1] != 200:
            answer = execute(api, sandbox_id)
            told.append(answer.status_code)
            if answer.status_code != 200:
                code = {409: "sandbox_not_ready", 502: "sandbox_unreachable"}[answer.status_code]
                assert answer.json()["error"]["code"] == code
            time.sleep(0.01)
        api.ask("DELETE", f"/v1/sandboxes/{sandbox_id}")
        assert refused(execute(api, sandbox_id)) == (409, "sandbox_not_ready")
    assert sorted(set(told)) == [200, 409, 502]
    assert told == sorted(told, key=[409, 502, 200].index)
    records = {record["id"]: record for record in json_lines(truth)}
    used = records[sandbox_id]
    assert seconds(used["reachable"]) - seconds(used["ready"]) == pytest.approx(0.25, abs=0.002)
    assert seconds(used["first_exec"]) - seconds(used["reachable"]) == pytest.approx(0.02, abs=0.3)
    assert used["first_exec"] >= used["reachable"]
    assert records[never_used]["reachable"] is not None
    assert records[never_used]["first_exec"] is None


@pytest.mark.parametrize(
    ("command", "output", "code"),
    [
        ("echo hi", "hi", 0),
        ("echo 'two  words' more", "two  words more", 0),
        ("echo it's", "echo it's", 0),
        ("echo a#b; # c", "a#b\n(not run: # c)", 0),
        ("", "", 0),
        ("true", "", 0),
        ("false", "", 1),
        ("exit 7", "", 7),
        ("echo out; exit 3; echo never", "out", 3),
        ("false && echo never", "", 1),
        ("false; echo still", "still", 0),
        ("echo ok && pwd", "ok\n/home/gem", 0),
        ("uname -a", "(not run: uname -a)", 0),
    ],
)
def test_a_command_is_answered_without_being_run(
    server: LocalServer, command: str, output: str, code: int
) -> None:
    """What a few commands print and end with is known; of others it is said that they were not run."""
    api = admin_key(server)
    told = execute(api, api.create(), command).json()
    data = told["data"]
    assert set(told) == {"success", "message", "data"}
    assert set(data) == {"session_id", "command", "status", "output", "console", "exit_code"}
    assert (told["success"], data["command"], data["status"]) == (True, command, "completed")
    assert (data["output"], data["exit_code"]) == (output, code)


def test_nothing_is_ever_run(server: LocalServer, tmp_path: Path) -> None:
    """No command touches this machine, however it is put."""
    api, file = admin_key(server), tmp_path / "made"
    sandbox_id = api.create()
    for command in (f"touch {file}", f"echo $(touch {file})", f"echo x > {file}", f"pwd; `touch {file}`"):
        assert execute(api, sandbox_id, command).ok
    assert not file.exists()


def test_a_failed_command_is_no_first_success(tmp_path: Path) -> None:
    """The truth log waits for an exit code of 0, also where the outputs are streamed."""
    truth = tmp_path / "truth.jsonl"
    with LocalServer(profile="ready=0", truth=truth) as server:
        api = admin_key(server)
        failed, streamed = api.create(), api.create()
        execute(api, failed, "false")
        execute(api, failed, "exit 2", headers=EVENTS)
        execute(api, streamed, headers=EVENTS)
    records = {record["id"]: record for record in json_lines(truth)}
    assert records[failed]["first_exec"] is None
    assert records[streamed]["first_exec"] is not None


def test_a_command_takes_the_time_of_its_clause() -> None:
    """From its arrival to its answer."""
    with LocalServer(profile="ready=0 exec=fixed(0.3)") as server:
        api = admin_key(server)
        sandbox_id = api.create()
        began = time.monotonic()
        assert execute(api, sandbox_id).ok
        assert 0.3 <= time.monotonic() - began < 1


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "v1/browser/info", None, 404),
        ("PATCH", "mcp", {}, 404),
        ("GET", "v1/shell/exec", None, 405),
        ("POST", "v1/events", {}, 405),
        ("POST", "v1/shell/exec", {}, 422),
        ("POST", "v1/shell/exec", {"command": 5}, 422),
        ("POST", "v1/shell/exec", [], 422),
        ("POST", "v1/chat/completions", {"model": "m"}, 422),
        ("POST", "v1/chat/completions", {"messages": []}, 422),
    ],
)
def test_what_the_service_does_not_know_it_refuses_itself(
    server: LocalServer, method: str, path: str, body: Any, status: int
) -> None:
    """In its own words, which are not the envelope of the API."""
    api = admin_key(server)
    answer = api.ask(method, proxied(api.create(), path), json=body)
    assert answer.status_code == status
    assert list(answer.json()) == ["detail"]


def test_a_streamed_command_keeps_its_rhythm(tmp_path: Path) -> None:
    """The head comes at once, each output when it is due; the log tells when they were written."""
    log = tmp_path / "requests.jsonl"
    with LocalServer(profile="ready=0 stream=0.4+11x0.05", requests=log) as server:
        api = admin_key(server)
        sandbox_id = api.create()
        began = time.monotonic()
        answer = execute(api, sandbox_id, headers=EVENTS, stream=True)
        assert time.monotonic() - began < 0.3
        assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        reader = Reader()
        came: list[float] = []
        for data in answer.iter_content(None):
            reader.feed(data)
            came += [time.monotonic() - began] * (len(reader.events) - len(came))
    assert [json.loads(event["data"]) for event in reader.events] == [
        {"output": f"hi {number}\n"} for number in range(11)
    ]
    for number, moment in enumerate(came):
        assert 0.4 + number * 0.05 <= moment + 0.001 < 0.4 + number * 0.05 + 1
    (told,) = streams(log)
    assert 400 <= told["first_ms"] < 1400
    assert 900 <= told["last_ms"] < 1900
    assert told["last_ms"] <= came[-1] * 1000
    assert {name: told[name] for name in ("stream", "sandbox_id", "outputs", "planned", "broken")} == {
        "stream": "exec",
        "sandbox_id": sandbox_id,
        "outputs": 11,
        "planned": 11,
        "broken": False,
    }


def test_many_streams_keep_their_rhythm_together(tmp_path: Path) -> None:
    """Thirty of them at once, fifty outputs a second each: the last is as punctual as the first."""
    log = tmp_path / "requests.jsonl"
    with LocalServer(profile="ready=0 stream=0.3+50x0.02", requests=log) as server:
        sandbox_id = admin_key(server).create()
        counts: list[int] = []

        def stream() -> None:
            counts.append(len(outputs(execute(admin_key(server), sandbox_id, headers=EVENTS))))

        threads = [threading.Thread(target=stream) for _ in range(30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert counts == [50] * 30
    told = streams(log)
    assert all(line["first_ms"] >= 300 and line["last_ms"] >= 1280 for line in told)
    assert statistics.median(line["last_ms"] for line in told) < 1280 + 100


def test_a_stream_in_pieces_is_the_same_stream(tmp_path: Path) -> None:
    """However its bytes are cut, its events come in their rhythm; the log counts outputs, not writes."""
    log = tmp_path / "requests.jsonl"
    with LocalServer(profile="ready=0 stream=0.1+40x0.01 chunks=mixed", requests=log) as server:
        api = admin_key(server)
        answer = execute(api, api.create(), "echo déjà vu", headers=EVENTS, stream=True)
        pieces = list(answer.iter_content(None))
    reader = Reader()
    reader.read(pieces)
    assert [json.loads(event["data"])["output"] for event in reader.events] == [
        f"déjà vu {number}\n" for number in range(40)
    ]
    (told,) = streams(log)
    assert told["outputs"] == 40
    assert 490 <= told["last_ms"] < 1490


@pytest.mark.parametrize(("count", "kept"), [(7, 4), (1, 1)])
def test_a_broken_stream_has_no_end(count: int, kept: int, tmp_path: Path) -> None:
    """Half of its outputs come, then the connection is cut; the log says that it was meant to be."""
    log = tmp_path / "requests.jsonl"
    with LocalServer(profile=f"ready=0 stream=0+{count}x0.01 breaks=100%", requests=log) as server:
        api = admin_key(server)
        answer = execute(api, api.create(), headers=EVENTS, stream=True)
        reader = Reader()
        with pytest.raises(requests.exceptions.ChunkedEncodingError):
            reader.read(answer.iter_content(None))
        assert server.stderr() == ""
    assert len(reader.events) == kept
    (told,) = streams(log)
    assert (told["outputs"], told["planned"], told["broken"]) == (kept, count, True)


def test_who_leaves_a_stream_did_not_find_it_broken(tmp_path: Path) -> None:
    """The log tells how far it came, and that the server had not cut it yet."""
    log = tmp_path / "requests.jsonl"
    with LocalServer(profile="ready=0 stream=0+500x0.01 breaks=100%", requests=log) as server:
        api = admin_key(server)
        with execute(api, api.create(), headers=EVENTS, stream=True) as answer:
            next(answer.iter_content(None))
        deadline = time.monotonic() + 4
        while not streams(log) and time.monotonic() < deadline:
            time.sleep(0.02)
        (told,) = streams(log)  # at once, and not only when the server ends
        assert server.stderr() == ""
    assert 1 <= told["outputs"] < 500
    assert told["broken"] is False


def test_a_server_that_ends_in_the_middle_of_a_stream_ends_cleanly(tmp_path: Path) -> None:
    """The stream is over, the log says how far it came, and the truth log knows of it."""
    log, truth = tmp_path / "requests.jsonl", tmp_path / "truth.jsonl"
    with LocalServer(profile="ready=0 stream=0+500x0.01", requests=log, truth=truth) as server:
        api = admin_key(server)
        answer = execute(api, api.create(), headers=EVENTS, stream=True)
        next(answer.iter_content(None))
        assert server.stop() == 0
        assert server.stderr() == ""
    assert 1 <= streams(log)[0]["outputs"] < 500
    assert json_lines(truth)[0]["first_exec"] is not None


def test_commands_have_bad_days_of_their_own() -> None:
    """Refused by a clause that leaves the rest of the data plane alone, and never garbled."""
    with LocalServer(profile="ready=0 exec_status=503:100% garble=big:100%") as server:
        api = admin_key(server)
        sandbox_id = api.create()
        answer = execute(api, sandbox_id)
        assert (answer.status_code, len(answer.content) < 1000) == (503, True)
        assert api.ask("GET", proxied(sandbox_id, "v1/events")).ok


def chat(api: Api, sandbox_id: str, **more: Any) -> requests.Response:
    """Ask a model in a sandbox."""
    return api.ask("POST", proxied(sandbox_id, "v1/chat/completions"), json={**CHAT, **more})


def test_a_chat_streams_a_token_an_event(server: LocalServer) -> None:
    """The role, the tokens, why it ended, its usage where that is wanted, and the mark of the end."""
    api = admin_key(server)
    answer = chat(api, api.create(), stream=True, stream_options={"include_usage": True})
    reader = Reader()
    reader.feed(answer.content)
    *chunks, end = [event["data"] for event in reader.events]
    role, *tokens, finish, usage = [json.loads(chunk) for chunk in chunks]
    assert end == "[DONE]"
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert len(tokens) == 6
    assert all(token["choices"][0]["delta"]["content"] for token in tokens)
    assert all(token["choices"][0]["finish_reason"] is None for token in tokens)
    assert (finish["choices"][0]["delta"], finish["choices"][0]["finish_reason"]) == ({}, "stop")
    assert usage["choices"] == []
    assert usage["usage"] == {"prompt_tokens": 3, "completion_tokens": 6, "total_tokens": 9}
    assert {chunk["object"] for chunk in (role, *tokens, finish, usage)} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in (role, *tokens, finish, usage)}) == 1
    assert role["model"] == "tiny-1"


def test_a_chat_without_a_stream_comes_in_one_piece_when_it_is_done(server: LocalServer) -> None:
    """The same words as the stream's, with their usage, when the last token would have come."""
    api = admin_key(server)
    sandbox_id = api.create()
    began = time.monotonic()
    told = chat(api, sandbox_id).json()
    assert time.monotonic() - began >= 0.2
    reader = Reader()
    reader.feed(chat(api, sandbox_id, stream=True).content)
    streamed = [json.loads(event["data"]) for event in reader.events[:-1]]
    said = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in streamed)
    assert (told["object"], told["choices"][0]["finish_reason"]) == ("chat.completion", "stop")
    assert told["choices"][0]["message"] == {"role": "assistant", "content": said}
    assert told["usage"]["completion_tokens"] == 6
    assert not any("usage" in chunk for chunk in streamed)


def test_a_chat_ends_where_the_request_says(server: LocalServer) -> None:
    """`max_tokens` below the rhythm's count is a finish by length."""
    api = admin_key(server)
    told = chat(api, api.create(), max_tokens=2).json()
    assert (told["usage"]["completion_tokens"], told["choices"][0]["finish_reason"]) == (2, "length")


def test_plain_events_have_names_and_ids(server: LocalServer) -> None:
    """A stream of events as any service may have it."""
    api = admin_key(server)
    answer = api.ask("GET", proxied(api.create(), "v1/events"))
    reader = Reader()
    reader.feed(answer.content)
    assert close(reader.events) == [
        {"event": "tick", "id": str(number), "data": json.dumps({"number": number}, separators=(",", ":"))}
        for number in range(6)
    ]


def test_a_connection_is_good_for_more_after_a_stream(server: LocalServer) -> None:
    """One that was not broken ends cleanly, and its connection goes on."""
    api = admin_key(server)
    sandbox_id = api.create()
    assert len(outputs(execute(api, sandbox_id, headers=EVENTS))) == 6
    assert execute(api, sandbox_id).ok


def test_use_moves_a_sandbox_to_the_front_of_the_list(server: LocalServer) -> None:
    """As at the real server: rows move between pages also while sandboxes are only used."""
    api = new_account(server).new_key()
    first, second = api.create(), api.create()

    def order() -> list[str]:
        return [item["id"] for item in api.ask("GET", "/v1/sandboxes").json()["items"]]

    assert order() == [second, first]
    assert execute(api, first).ok
    assert order() == [first, second]


def test_no_secret_is_in_the_logs(tmp_path: Path) -> None:
    """Neither keys, nor tokens, nor what was said or run."""
    log, truth = tmp_path / "requests.jsonl", tmp_path / "truth.jsonl"
    with LocalServer(profile="ready=0", requests=log, truth=truth) as server:
        new_account(server)
        api = admin_key(server)
        sandbox_id = api.create()
        execute(api, sandbox_id, "echo hush", headers=EVENTS)
        execute(api, sandbox_id, "echo hush")
        chat(api, sandbox_id, messages=[{"role": "user", "content": "hush"}], stream=True)
        assert server.stderr() == ""
    written = log.read_text() + truth.read_text()
    assert "token=" not in written
    assert "hush" not in written
    assert API_KEY not in written
