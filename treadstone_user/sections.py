"""A scenario's sections beside the matrix: a command in each sandbox, queries, streams, data files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from treadstone_user.fields import Fields
from treadstone_user.strictyaml import UNREADABLE, join, shown

EXEC_PATH = "/v1/shell/exec"
"""Where the service in a sandbox takes commands."""

_EXEC_KEYS = ("command", "data", "timeout_sec", "retry_sec")
_QUERY_KEYS = ("mix", "pause_sec")
_STREAM_KEYS = ("path", "method", "body", "data", "timeout_sec", "pause_sec")
_DATA_KEYS = ("file", "order", "on_end", "seed")
_ORDERS = ("sequential", "random")
_ENDS = ("cycle", "stop")
_METHODS = ("GET", "POST")


class Job(StrEnum):
    """What a user does."""

    LIFECYCLE = "lifecycle"
    QUERY = "query"
    STREAM = "stream"


class Query(StrEnum):
    """What can be asked for; `get` is of one sandbox."""

    LIST = "list"
    GET = "get"
    WHOAMI = "whoami"
    TEMPLATES = "templates"
    USAGE = "usage"


@dataclass(frozen=True, slots=True)
class DataSource:
    """A file of rows, from which commands and bodies are filled in.

    order: sequential, or random (the same for the same `seed`).
    on_end: cycle, or stop once each row was used.
    """

    file: str
    order: str = "sequential"
    on_end: str = "cycle"
    seed: int = 1


@dataclass(frozen=True, slots=True)
class ExecRules:
    """The first command in each ready sandbox; times in seconds.

    command: may hold `$field` of the data's rows; without one it is `$command`.
    timeout_sec: from ready to the answer. retry_sec: how long to wait while the proxy answers 409 or 502.
    """

    command: str
    data: DataSource | None = None
    timeout_sec: float = 60
    retry_sec: float = 0.25


@dataclass(frozen=True, slots=True)
class QueryRules:
    """What query users ask for. mix: how often each, in proportion. pause_sec: between two of one user's."""

    mix: Mapping[Query, int]
    pause_sec: float = 0.0


@dataclass(frozen=True, slots=True)
class StreamRules:
    """What stream users ask for, behind the proxy of a sandbox; times in seconds.

    body: JSON; its texts may hold `$field` of the data's rows. timeout_sec: until the first output, and from
        each one to the next.
    """

    path: str = EXEC_PATH
    method: str = "POST"
    body: Mapping[str, Any] | None = None
    data: DataSource | None = None
    timeout_sec: float = 120
    pause_sec: float = 0.0


DEFAULT_QUERIES = QueryRules(
    {Query.LIST: 3, Query.GET: 4, Query.WHOAMI: 1, Query.TEMPLATES: 1, Query.USAGE: 1}
)
DEFAULT_STREAM = StreamRules(body={"command": "echo hello"})


class Sections:
    """Reads the sections; what is wrong goes to `problems`, each with its path.

    find: where a file that is named in a scenario lies, None where there is none.
    """

    def __init__(self, fields: Fields, problems: list[str], find: Callable[[str], Path | None]) -> None:
        self._fields = fields
        self._problems = problems
        self._find = find

    def accounts(self) -> str | None:
        """The store of accounts."""
        return self._file(self._fields, "accounts") if self._fields.has("accounts") else None

    def exec(self) -> ExecRules | None:
        """The command of each lifecycle; a text alone is the command."""
        value = self._fields.raw("exec")
        if value is None:
            return None
        if isinstance(value, str):
            value = {"command": value}
        fields = self._part("exec", value, _EXEC_KEYS)
        if not isinstance(value, dict):
            return None
        data = self._data(fields, "exec")
        if data is not None and data.on_end == "stop":
            fields.wrong("data", "on_end must be cycle: each sandbox has its row, and they begin again")
        if not self._fields.raw("matrix"):
            self._fields.wrong("exec", "without a matrix there is no sandbox to run it in")
        command = fields.text("command", required=data is None)
        return ExecRules(
            command=command or "$command",
            data=data,
            timeout_sec=fields.seconds("timeout_sec", default=60),
            retry_sec=fields.seconds("retry_sec", default=0.25),
        )

    def query(self) -> QueryRules | None:
        """What query users ask for; an empty section takes the defaults."""
        if not self._fields.has("query"):
            return None
        fields = self._part("query", self._fields.raw("query") or {}, _QUERY_KEYS)
        mix = DEFAULT_QUERIES.mix
        if fields.has("mix"):
            counts = self._counts("query.mix", fields.raw("mix"), list(Query))
            mix = {Query(name): count for name, count in counts.items() if count}
        return QueryRules(mix, self._pause(fields))

    def stream(self) -> StreamRules | None:
        """What stream users ask for; an empty section takes the defaults."""
        if not self._fields.has("stream"):
            return None
        fields = self._part("stream", self._fields.raw("stream") or {}, _STREAM_KEYS)
        path = fields.text("path") or EXEC_PATH
        if not path.startswith("/"):
            fields.wrong("path", f"must begin with a slash, not {shown(path)}")
        data = self._data(fields, "stream")
        method = self._choice(fields, "method", _METHODS, default="POST")
        body = fields.raw("body")
        if body is not None and not isinstance(body, dict):
            fields.wrong("body", f"must hold the keys of a JSON object, not {shown(body)}")
            body = None
        if body is not None and method == "GET":
            fields.wrong("body", "a GET has none; say method: POST")
        if body is None and path == EXEC_PATH and method == "POST":
            body = {"command": "$command"} if data is not None else DEFAULT_STREAM.body
        return StreamRules(
            path=path,
            method=method,
            body=body,
            data=data,
            timeout_sec=fields.seconds("timeout_sec", default=120),
            pause_sec=self._pause(fields),
        )

    def weights(self) -> dict[Job, int]:
        """How many users do what, in proportion; 1 each where nothing is said."""
        if not self._fields.has("weights"):
            return {}
        found = self._counts("weights", self._fields.raw("weights"), list(Job))
        return {Job(name): count for name, count in found.items()}

    def _part(self, path: str, value: object, known: Sequence[str]) -> Fields:
        if not isinstance(value, dict):
            if value is not UNREADABLE:
                self._problems.append(f"{path}: must hold {', '.join(known)}, not {shown(value)}")
            value = {}
        return Fields(value, path=path, known=known, problems=self._problems)

    def _data(self, fields: Fields, path: str) -> DataSource | None:
        value = fields.raw("data")
        if value is None:
            return None
        part = self._part(
            join(path, "data"), {"file": value} if isinstance(value, str) else value, _DATA_KEYS
        )
        return DataSource(
            file=self._file(part, "file") or "",
            order=self._choice(part, "order", _ORDERS, default="sequential"),
            on_end=self._choice(part, "on_end", _ENDS, default="cycle"),
            seed=part.whole("seed", rule="a whole number", allows=lambda n: True, default=1),
        )

    def _file(self, fields: Fields, key: str) -> str | None:
        given = fields.text(key, required=True)
        if not given:
            return None
        found = self._find(given)
        if found is None:
            fields.wrong(key, f"there is no file {shown(given)}, here or beside the scenario")
        return str((found or Path(given)).resolve())  # what a run writes down is read from anywhere

    def _choice(self, fields: Fields, key: str, choices: Sequence[str], *, default: str) -> str:
        value = fields.raw(key)
        if value is None:
            return default
        if value not in choices:
            fields.wrong(key, f"must be {' or '.join(choices)}, not {shown(value)}")
            return default
        return str(value)

    def _pause(self, fields: Fields) -> float:
        """A pause may be 0, unlike other times."""
        value = fields.raw("pause_sec")
        if value in (0, None):
            return 0.0
        if isinstance(value, int | float) and value < 0:
            fields.wrong("pause_sec", f"must be a number of seconds, 0 or more, not {shown(value)}")
            return 0.0
        return fields.seconds("pause_sec", default=0.0)

    def _counts(self, path: str, value: object, names: Sequence[str]) -> dict[str, int]:
        fields = self._part(path, value, names)
        counts = {
            name: fields.whole(name, rule="a whole number, 0 or more", allows=lambda n: n >= 0)
            for name in names
            if fields.has(name)
        }
        if isinstance(value, dict) and not any(counts.values()):
            self._problems.append(f"{path}: one of {', '.join(names)} must be above 0")
        return counts
