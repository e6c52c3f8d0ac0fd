"""The CLI transport: the real CLI over a real socket, and stand-ins that misbehave as no real one would."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import gevent
import psutil
import pytest

from tests.runs import TREADSTONE, clean_environment, json_lines
from tests.servers import API_KEY, LocalServer
from treadstone_user.model import Variant
from treadstone_user.transports.base import (
    ApiError,
    AuthError,
    BadOutput,
    BinaryNotFound,
    CallError,
    Conflict,
    ConnectError,
    CreateSpec,
    Forbidden,
    Invalid,
    NotFound,
    QuotaExceeded,
    RequestTimeout,
    ServerError,
    Transport,
    UsageError,
)
from treadstone_user.transports.cli import CliTransport, read_failure
from treadstone_user.transports.launch import ColdLauncher, Finished
from treadstone_user.transports.places import Places

LABEL = "loadtest:run-20260101-000000"
NOWHERE = "http://127.0.0.1:9"
SECRET = "sk-" + 12 * "5ec4e7"


def _transport(
    binary: Path, environment: dict[str, str], base_url: str = NOWHERE, timeout_sec: float = 30
) -> CliTransport:
    launcher, places = ColdLauncher(binary, environment), Places(in_flight=5, starting=2)
    return CliTransport(launcher=launcher, base_url=base_url, places=places, timeout_sec=timeout_sec)


# The real CLI and a real server


@pytest.fixture(scope="module", name="server")
def _server() -> Iterator[LocalServer]:
    with LocalServer(profile="ready=fixed(0.05) gone=fixed(60) latency=fixed(0)") as server:
        yield server


@pytest.fixture(scope="module", name="real")
def _real(server: LocalServer, tmp_path_factory: pytest.TempPathFactory) -> Transport:
    home = tmp_path_factory.mktemp("home")
    return _transport(TREADSTONE, clean_environment(home, TREADSTONE_API_KEY=API_KEY), server.base_url)


def _spec(variant: Variant) -> CreateSpec:
    return CreateSpec(variant, LABEL, auto_stop_interval=60, auto_delete_interval=-1)


def test_a_life_over_the_real_cli(real: Transport) -> None:
    """Create, get, list and delete give the server's own words as values, each with when it ran."""
    told: list[float] = []
    sent = time.monotonic()
    variant = Variant(0, "aio-sandbox-large", 1, persist=True, storage_size="10Gi")
    created = real.create(_spec(variant), before_send=told.append)
    assert sent <= created.timing.started < created.timing.ended <= time.monotonic()
    assert told == [created.timing.queued]
    sandbox = created.value
    assert (sandbox.template, sandbox.status) == ("aio-sandbox-large", "creating")
    assert (sandbox.persist, sandbox.storage_size) == (True, "10Gi")
    assert sandbox.labels == {"loadtest": "run-20260101-000000"}
    assert sandbox.belongs_to("20260101-000000")
    assert sandbox.created_at
    ready = real.get(sandbox.id).value
    assert (ready.id, ready.status) == (sandbox.id, "ready")
    assert ready.started_at
    assert ready.started_at > sandbox.created_at, "both are the server's clock"
    page = real.list_page(offset=0, limit=10).value
    assert page.total == len(page.items) == 1
    assert page.items[0].id == sandbox.id
    assert page.items[0].labels == sandbox.labels
    assert real.list_page(offset=1, limit=10).value.items == (), "the offset is passed on"
    real.delete(sandbox.id)
    with pytest.raises(Conflict) as twice:
        real.delete(sandbox.id)
    assert (twice.value.status, twice.value.cause) == (409, "409 conflict")
    assert twice.value.timing.latency_ms > 0


def test_a_stateless_create_says_nothing_of_storage(real: Transport) -> None:
    """A variant without persist makes a sandbox without storage."""
    sandbox = real.create(_spec(Variant(0, "aio-sandbox-tiny", 1)), before_send=lambda _: None).value
    assert (sandbox.persist, sandbox.storage_size) == (False, None)


def test_health_account_and_templates(real: Transport) -> None:
    """Preflight's calls give the account's address and what each template offers."""
    real.health()
    assert real.whoami().value == "local@example.com"
    templates = {template.name: template for template in real.templates().value}
    assert set(templates) == {
        f"aio-sandbox-{size}" for size in ("tiny", "small", "medium", "large", "xlarge")
    }
    large = templates["aio-sandbox-large"]
    assert all(re.fullmatch(r"\d+m?", one.cpu) for one in templates.values())
    assert re.fullmatch(r"\d+[GM]i", large.memory)
    assert "5Gi" in large.storage_sizes


def test_the_apis_no_over_the_real_cli(real: Transport) -> None:
    """What the API refuses comes as its own error, with its words."""
    with pytest.raises(NotFound, match="no-such-template") as caught:
        real.create(_spec(Variant(0, "no-such-template", 1)), before_send=lambda _: None)
    assert caught.value.status == 404


def test_no_server_over_the_real_cli(tmp_path: Path) -> None:
    """Where nothing listens, that is said."""
    transport = _transport(TREADSTONE, clean_environment(tmp_path, TREADSTONE_API_KEY=SECRET))
    with pytest.raises(ConnectError, match="Connection refused"):
        transport.health()


def test_no_credential_over_the_real_cli(tmp_path: Path) -> None:
    """Without key and session it is an authentication error that the client speaks for."""
    with pytest.raises(AuthError) as caught:
        _transport(TREADSTONE, clean_environment(tmp_path)).whoami()
    assert caught.value.status is None


def test_the_key_of_the_real_cli_shows_to_nobody(server: LocalServer, tmp_path: Path) -> None:
    """While a call runs, no process of it has the key in its command line."""
    environment = clean_environment(tmp_path, TREADSTONE_API_KEY=API_KEY)
    call = gevent.spawn(_transport(TREADSTONE, environment, server.base_url).whoami)
    seen: set[str] = set()
    me = psutil.Process()
    while not call.ready():
        for process in me.children(recursive=True):
            with suppress(psutil.Error):  # it has just ended
                seen.add(" ".join(process.cmdline()))
        gevent.sleep(0.01)
    assert call.get().value == "local@example.com"
    assert any("whoami" in line for line in seen), "the call was watched"
    assert not [line for line in seen if API_KEY in line or "api-key" in line]


# What the CLI says when it fails

RECORDED: dict[int, tuple[type[CallError], int | None]] = {
    # line of the recordings: error, HTTP status
    2: (AuthError, None),  # no key, no session
    5: (Invalid, 400),  # wrong password
    7: (AuthError, 401),  # invalid key
    8: (AuthError, None),  # no key, and nothing listens either
    19: (ServerError, 500),  # the label filter
    20: (Invalid, 422),  # a limit of 1001
    21: (Invalid, 422),  # a label filter without a colon
    22: (NotFound, 404),  # an unknown template
    23: (UsageError, None),  # a label without a colon, refused by the CLI
    24: (UsageError, None),  # a storage size that there is not, refused by the CLI
    25: (Invalid, 422),  # a name that cannot be
    26: (Conflict, 409),  # a name that is taken
    27: (NotFound, 404),  # get
    29: (NotFound, 404),  # a second delete
    34: (NotFound, 404),  # delete of what never was
    35: (UsageError, None),  # no such command
    36: (Forbidden, 403),  # e-mail not verified
    37: (ConnectError, None),  # nothing listens
    38: (QuotaExceeded, 429),  # too many at once
    39: (Forbidden, 403),  # a template beyond the plan
    40: (QuotaExceeded, 429),
    41: (QuotaExceeded, 429),
}
RECORDINGS = {
    number: recording
    for number, recording in enumerate(json_lines(Path(__file__).parent / "contract" / "cli-0.9.3.jsonl"), 1)
    if recording["exit"] != 0
}


@pytest.mark.parametrize("number", sorted(RECORDINGS))
def test_every_recorded_failure_has_its_error(number: int) -> None:
    """Each failure of the real CLI becomes the error that stands for it, with the API's words."""
    recording = RECORDINGS[number]
    error = read_failure(Finished(recording["exit"], recording["stdout"], recording["stderr"]))
    assert (type(error), error.status) == RECORDED[number]
    if error.status is not None:
        assert recording["stderr"].strip() == f"Error ({error.status}): {error}"


OTHER_FAILURES: list[tuple[str, Finished, type[CallError], int | None]] = [
    # what it proves; what the CLI left; error, HTTP status
    ("the CLI's own timeout", Finished(1, "", "Error: Request timed out.\n"), RequestTimeout, None),
    ("a connection that broke", Finished(1, "", "Error: ReadError — x\n"), ConnectError, None),
    (
        "a server that hung up",
        Finished(1, "", "Error: RemoteProtocolError — Server disconnected\n"),
        ConnectError,
        None,
    ),
    ("payment required", Finished(1, "", "Error (402): x\n"), QuotaExceeded, 402),
    ("a status of its own", Finished(1, "", "Error (418): x\n"), ApiError, 418),
    ("a gateway's status", Finished(1, "", "Error (504): x\n"), ServerError, 504),
    ("words on several lines", Finished(1, "", "Error (422): a\nb\n"), Invalid, 422),
    ("a status that is none", Finished(1, "", "Error (302): x\n"), BadOutput, None),
    ("a status amid other words", Finished(1, "", "No Error (500): x\n"), BadOutput, None),
    ("a traceback", Finished(1, "", "Traceback (most recent call last):\n"), BadOutput, None),
    ("nothing at all", Finished(1, "", ""), BadOutput, None),
    ("an error on the wrong stream", Finished(1, "Error (500): x", ""), BadOutput, None),
    ("killed by a signal", Finished(-9, "", ""), BadOutput, None),
    ("no such command in a shell", Finished(127, "", "not found"), BadOutput, None),
]


@pytest.mark.parametrize(
    ("finished", "kind", "status"),
    [row[1:] for row in OTHER_FAILURES],
    ids=[row[0] for row in OTHER_FAILURES],
)
def test_other_failures(finished: Finished, kind: type[CallError], status: int | None) -> None:
    """What was not recorded is read with the same care; what nobody can read is bad output."""
    error = read_failure(finished)
    assert (type(error), error.status) == (kind, status)


def test_long_words_are_cut() -> None:
    """However much a CLI says, an error text stays readable."""
    for stderr in ("Error (500): " + "x" * 9999, "x" * 9999):
        assert len(str(read_failure(Finished(1, "", stderr)))) < 400


KEY_PLACES = [
    Finished(1, "", f"Error (401): {SECRET} is no key"),
    Finished(1, "", f"Error: Connection refused. Authorization: Bearer {SECRET}"),
    Finished(1, "", f"Error: ReadError — {SECRET}"),
    Finished(2, "", f"Usage: --api-key {SECRET}"),
    Finished(1, "", f"locals: api_key='{SECRET}'"),
    Finished(1, f"{SECRET}", ""),
    Finished(1, "", "x" * 280 + SECRET),
]


@pytest.mark.parametrize("finished", KEY_PLACES)
def test_no_error_text_holds_a_key(finished: Finished) -> None:
    """Whatever the CLI says, a key in it goes into no report, nor a part of it."""
    assert SECRET[3:12] not in str(read_failure(finished))


# Stand-ins


Script = Callable[..., Path]


@pytest.fixture(name="script")
def _script(tmp_path: Path) -> Script:
    """Make an executable: a shell script, or of another interpreter."""

    def make(text: str, interpreter: str = "/bin/sh") -> Path:
        path = tmp_path / "treadstone"
        path.write_text(f"#!{interpreter}\n{text}\n")
        path.chmod(0o700)
        return path

    return make


def _path() -> dict[str, str]:
    return {"PATH": os.environ["PATH"]}


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _until_gone(*pids: int) -> bool:
    end = time.monotonic() + 5
    while any(map(_alive, pids)) and time.monotonic() < end:
        gevent.sleep(0.01)
    return not any(map(_alive, pids))


def _pids(file: Path, count: int) -> list[int]:
    end = time.monotonic() + 5
    while not (file.exists() and file.read_text().count("\n") == count) and time.monotonic() < end:
        gevent.sleep(0.01)
    return [int(line) for line in file.read_text().split()]


HANG = "echo $$ >> {file}\nsleep 600 &\necho $! >> {file}\nwait"


def test_a_cli_that_hangs_is_ended_with_all_that_it_started(script: Script, tmp_path: Path) -> None:
    """After its time a call is over, and neither its process nor a child of it is left."""
    file = tmp_path / "pids"
    transport = _transport(script(HANG.format(file=file)), _path(), timeout_sec=1)
    began = time.monotonic()
    with pytest.raises(RequestTimeout, match=r"within 1 s") as caught:
        transport.get("a")
    assert 0.3 <= time.monotonic() - began < 6
    assert 300 <= caught.value.timing.latency_ms < 6000
    pids = _pids(file, 2)
    assert len(pids) == 2
    assert _until_gone(*pids)


def test_a_call_that_is_killed_takes_its_processes_along(script: Script, tmp_path: Path) -> None:
    """A greenlet that is killed during its call leaves no process behind, and gives its place back."""
    file = tmp_path / "pids"
    places = Places(in_flight=1, starting=1)
    launcher = ColdLauncher(script(HANG.format(file=file)), _path())
    transport = CliTransport(launcher=launcher, base_url=NOWHERE, places=places)
    call = gevent.spawn(transport.get, "a")
    pids = _pids(file, 2)
    assert all(map(_alive, pids))
    call.kill()
    assert _until_gone(*pids)
    with gevent.Timeout(2), places.hold() as queued:
        assert queued < 1


def test_a_cli_ignores_ctrl_c_of_the_terminal(script: Script) -> None:
    """A call in flight has a session of its own: Ctrl-C is Locust's, and the call ends by itself."""
    text = """import os; print('{"email": "%d"}' % os.getsid(0))"""
    session = _transport(script(text, interpreter=sys.executable), _path()).whoami().value
    assert int(session) != os.getsid(0)


GARBAGE: list[tuple[str, str, str]] = [
    # what it proves, the script, what the error says
    ("words", "echo hello", "not JSON: exit code 0, said: hello"),
    ("nothing", "true", "not JSON: exit code 0, said: nothing"),
    ("half an object", """echo '{"id": "a"'""", "not JSON"),
    ("bytes that are no text", r"printf '\377\376\n'", "not JSON"),
    ("another thing's JSON", "echo '{}'", "sandbox: 'id' is missing"),
    ("a list", "echo '[]'", "sandbox: not a JSON object"),
    ("a field of another type", """echo '{"id": 5}'""", "sandbox: 'id' is missing or not a str"),
    ("a signal", "kill -9 $$", "exit code -9, said: nothing"),
    ("an exit code of its own", "echo oops >&2; exit 70", "exit code 70, said: oops"),
    ("bytes in its error", r"printf '\377' >&2; exit 1", "exit code 1, said: \ufffd"),
]


@pytest.mark.parametrize(("text", "says"), [row[1:] for row in GARBAGE], ids=[row[0] for row in GARBAGE])
def test_a_cli_that_talks_garbage(text: str, says: str, script: Script) -> None:
    """What cannot be read is bad output with what was said, never a crash and never a success."""
    with pytest.raises(BadOutput) as caught:
        _transport(script(text), _path()).get("a")
    assert says in str(caught.value)
    assert caught.value.timing.latency_ms > 0


def test_bytes_that_are_no_text_in_a_value(script: Script) -> None:
    """A value is read with what can be read of it."""
    binary = script(r"""printf '{"email": "a\377b"}'""")
    assert _transport(binary, _path()).whoami().value == "a\ufffdb"


MISREAD: list[tuple[str, str, Callable[[CliTransport], Any]]] = [
    # what it proves, what the CLI prints, the call
    ("a delete that does not say so", "ok", lambda transport: transport.delete("a")),
    ("a list without a total", '{"items": []}', lambda transport: transport.list_page()),
    ("a list with a broken row", '{"items": [{}], "total": 1}', lambda transport: transport.list_page()),
    ("a list without items", '{"total": 1}', lambda transport: transport.list_page()),
    ("an account without address", "{}", lambda transport: transport.whoami()),
    ("templates without a name", '{"items": [{}]}', lambda transport: transport.templates()),
    ("health of something else", '{"up": true}', lambda transport: transport.health()),
]


@pytest.mark.parametrize(("said", "call"), [row[1:] for row in MISREAD], ids=[row[0] for row in MISREAD])
def test_no_call_takes_another_things_answer(
    said: str, call: Callable[[CliTransport], Any], script: Script
) -> None:
    """Success with the wrong content is no success."""
    with pytest.raises(BadOutput):
        call(_transport(script(f"echo '{said}'"), _path()))


def _missing(folder: Path) -> Path:
    return folder / "nothing here"


def _not_executable(folder: Path) -> Path:
    path = folder / "plain"
    path.write_text("#!/bin/sh\n")
    return path


def _no_program(folder: Path) -> Path:
    path = folder / "zeros"
    path.write_bytes(b"\0" * 100)
    path.chmod(0o700)
    return path


def _no_interpreter(folder: Path) -> Path:
    path = folder / "script"
    path.write_text("#!/no/such/interpreter\n")
    path.chmod(0o700)
    return path


BINARIES = [
    # what is there, what the error says
    (_missing, "No such file"),
    (_not_executable, "Permission denied"),
    (_no_program, "Exec format error"),
    (_no_interpreter, "No such file"),
    (lambda folder: folder, "Permission denied"),
]


@pytest.mark.parametrize(("make", "says"), BINARIES)
def test_a_binary_that_cannot_be_started(make: Callable[[Path], Path], says: str, tmp_path: Path) -> None:
    """A binary that is not there or no program is named, with the reason, and its place is given back."""
    path = make(tmp_path)
    transport = _transport(path, _path())
    for _ in range(6):  # one more than there are places
        with pytest.raises(BinaryNotFound) as caught, gevent.Timeout(5):
            transport.health()
        assert str(caught.value) == f"cannot start {path}: {caught.value.__cause__.strerror}"  # type: ignore[union-attr]
        assert says in str(caught.value)


@contextmanager
def _typed(folder: Path) -> Iterator[None]:
    """Somebody has typed something at the terminal."""
    (folder / "typed").write_text("something")
    typed, own = os.open(folder / "typed", os.O_RDONLY), os.dup(0)
    os.dup2(typed, 0)
    try:
        yield
    finally:
        os.dup2(own, 0)
        os.close(own)
        os.close(typed)


def test_the_key_goes_by_environment_and_by_nothing_else(script: Script, tmp_path: Path) -> None:
    """A process has exactly the environment it was given, and the key stands in no argument."""
    binary = script(
        "import json, os, sys\n"
        "seen = {'argv': sys.argv[1:], 'shown': sys.orig_argv, 'env': dict(os.environ)}\n"
        "seen['stdin'] = sys.stdin.read()\n"
        "print(json.dumps({'email': json.dumps(seen)}))",
        interpreter=sys.executable,
    )
    environment = {"TREADSTONE_API_KEY": SECRET, "HOME": "/nonexistent", "LC_CTYPE": "C.UTF-8"}
    with _typed(tmp_path):
        seen = json.loads(_transport(binary, environment).whoami().value)
    assert seen["argv"] == ["--json", "--base-url", NOWHERE, "auth", "whoami"]
    assert seen["env"] == environment
    assert SECRET not in "".join(seen["shown"])
    assert seen["stdin"] == "", "it cannot ask anybody anything"


ARGUMENTS: list[tuple[str, Variant, list[str]]] = [
    # what it proves, variant, arguments
    ("a stateless one", Variant(0, "t", 1), []),
    (
        "a persistent one",
        Variant(0, "t", 1, persist=True, storage_size="5Gi"),
        ["--persist", "--storage-size", "5Gi"],
    ),
    ("a size without persist is no storage", Variant(0, "t", 1, storage_size="5Gi"), []),
]


@pytest.mark.parametrize(
    ("variant", "more"), [row[1:] for row in ARGUMENTS], ids=[row[0] for row in ARGUMENTS]
)
def test_what_a_create_says(variant: Variant, more: list[str], script: Script) -> None:
    """A create carries template, label and both intervals, the base URL first, where the CLI wants it."""
    binary = script(
        """printf '{"id": "%s", "template": "t", "status": "creating"}' "$*\"""",
    )
    spec = CreateSpec(variant, LABEL, auto_stop_interval=0, auto_delete_interval=-1)
    said = _transport(binary, _path()).create(spec, before_send=lambda _: None).value.id
    create = f"sandboxes create --template t --label {LABEL} --auto-stop-interval 0 --auto-delete-interval -1"
    assert said == " ".join([f"--json --base-url {NOWHERE} {create}", *more])


def test_a_create_that_is_called_off_starts_no_process(script: Script, tmp_path: Path) -> None:
    """What `before_send` raises ends the create before anything is sent, and gives its place back."""
    binary = script(f"touch {tmp_path / 'started'}")
    transport = _transport(binary, _path())

    def call_off(_: float) -> None:
        raise InterruptedError

    for _ in range(6):  # one more than there are places
        with pytest.raises(InterruptedError), gevent.Timeout(5):
            transport.create(_spec(Variant(0, "t", 1)), before_send=call_off)
    assert not (tmp_path / "started").exists()


def test_the_wait_for_a_place_is_no_latency(script: Script) -> None:
    """A call is timed from when it has its place; the wait before is told apart."""
    binary = script("""sleep 0.3; echo '{"status": "ok"}'""")
    places = Places(in_flight=1, starting=1)
    transport = CliTransport(launcher=ColdLauncher(binary, _path()), base_url=NOWHERE, places=places)
    first, second = gevent.spawn(transport.health), gevent.spawn(transport.health)
    timing, after = first.get().timing, second.get().timing
    assert timing.queue_ms < 100
    assert after.queue_ms >= timing.latency_ms / 2
    assert after.started >= timing.ended


def test_polls_go_before_creates(script: Script) -> None:
    """A poll that is late makes ready times imprecise: it passes the creates that wait."""
    binary = script("""echo '{"id": "a", "template": "t", "status": "ready", "items": [], "total": 0}'""")
    places = Places(in_flight=1, starting=1)
    order: list[str] = []
    transport = CliTransport(launcher=ColdLauncher(binary, _path()), base_url=NOWHERE, places=places)

    def create() -> None:
        transport.create(_spec(Variant(0, "t", 1)), before_send=lambda _: order.append("create"))

    def get() -> None:
        transport.get("a")
        order.append("get")

    def read_list() -> None:
        transport.list_page()
        order.append("list")

    with places.hold():
        calls = [
            gevent.spawn(create),
            gevent.spawn(get),
            gevent.spawn(read_list),
        ]
        gevent.sleep(0.05)
    gevent.joinall(calls, timeout=10, raise_error=True)
    assert order == ["get", "list", "create"]


def test_a_finished_call_leaves_nothing_behind(script: Script) -> None:
    """A call that ended by itself leaves no process, no zombie and no open pipe."""
    transport = _transport(script("""echo '{"status": "ok"}'"""), _path())
    transport.health()
    me = psutil.Process()
    before, children = me.num_fds(), len(me.children())
    for _ in range(5):
        transport.health()
    assert me.num_fds() == before
    assert len(me.children()) == children
