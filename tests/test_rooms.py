"""The package is built in rooms: who may import whom, and who may touch the world outside.

The rules are read from the sources, without running them.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = "treadstone_user"

ROWS: dict[str, set[str]] = {
    # Top to bottom: a module imports from rows below its own, and from its own without a cycle.
    "face": {
        "plugin",
        "conductor",
        "workerplugin",
        "forks",
        "signals",
        "begin",
        "options",
        "sweep",
        "__main__",
    },
    "locust": {"user", "relay", "balance", "webui", "roster"},
    "run": {
        "session",
        "target",
        "lifecycle",
        "steps",
        "cleanup",
        "poller",
        "plan",
        "preflight",
        "progress",
        "run",
        "clientwatch",
        "load",
        "worker",
        "engagement",
        "crew",
        "member",
        "view",
        "leftovers",
        "orders",
        "ledger",
        "access",
        "cleanups",
        "pollers",
        "owners",
        "dealing",
        "stock",
        "commands",
        "queries",
        "streams",
        "trouble",
    },
    "ports": {
        "transports",
        "transports.base",
        "transports.cli",
        "transports.credentials",
        "transports.dataplane",
        "transports.channel",
        "transports.outputs",
        "transports.http",
        "transports.launch",
        "transports.places",
        "transports.warm",
        "transports.warm_parent",
        "transports.wire",
        "scenario",
        "strictyaml",
        "fields",
        "configfile",
        "settings",
        "binary",
        "localserver",
        "eventlog",
        "spool",
        "report",
        "assets",
        "sections",
        "datafile",
        "fillin",
        "signing",
    },
    "core": {
        "live",
        "messages",
        "shares",
        "model",
        "summary",
        "figures",
        "traffic",
        "quota",
        "sse",
        "verdict",
        "retry",
        "exitcode",
    },
}

WRITERS = {
    "run": "run.json and summary.json",
    "eventlog": "events.jsonl",
    "spool": "a worker's events until they are in events.jsonl",
    "assets": "the store of what was prepared",
    "binary": "the folder of an installed CLI, which is no result",
    "transports.warm": "the folder of its socket, which is no result",
    "transports.warm_parent": "the null device",
}
"""Who writes files or makes folders, and which."""

PURE = {"__future__", "collections", "dataclasses", "enum", "functools", "itertools", "math", "re", "typing"}
PURE |= {"array", "bisect", "datetime"}
"""What the core may import from outside: nothing with files, a network or greenlets, and no clock (below)."""

CLOCKS = {"now", "utcnow", "today", "fromtimestamp"}
"""What in `datetime` reads a clock, or the zone of the machine."""

ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "expandvars", "expanduser", "putenv"}
WRITES = {"write_text", "write_bytes", "mkdir", "makedirs", "touch", "unlink", "rmdir", "rmtree", "rename"}
WRITES |= {"symlink_to", "hardlink_to", "copytree", "copyfile", "NamedTemporaryFile", "mkstemp", "mkdtemp"}
WRITES_OF_MODULES = {"os.remove", "os.replace", "shutil.copy", "shutil.copy2", "shutil.move"}
"""Of these only the names with their module: sets and texts have methods of the same names."""


@dataclass(frozen=True)
class Source:
    """A module's source. `name` is without the package's: `transports.cli`, and empty for the package."""

    name: str
    tree: ast.Module

    @property
    def imports(self) -> set[str]:
        """All modules that it imports, wherever the import stands; of `from a import b` both a and a.b."""
        found: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{self.name}: imports are written in full"
                assert node.module is not None
                found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        return found

    @property
    def siblings(self) -> set[str]:
        """The modules of the package that it imports, by the names of this table."""
        inside = {name.removeprefix(f"{PACKAGE}.") for name in self.imports if name.startswith(f"{PACKAGE}.")}
        return {name for name in inside if name in MODULES and name != self.name}

    @property
    def outsiders(self) -> set[str]:
        """The first names of all that it imports."""
        return {name.split(".")[0] for name in self.imports}

    @property
    def attributes(self) -> set[str]:
        """Every attribute that it names and every name that it takes from elsewhere."""
        named = {node.attr for node in ast.walk(self.tree) if isinstance(node, ast.Attribute)}
        return named | {name.split(".")[-1] for name in self.imports}


@cache
def _sources(folder: str) -> dict[str, Source]:
    found = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        parts = list(path.relative_to(ROOT / folder).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = Source(name, ast.parse(path.read_text(encoding="utf-8")))
    return found


MODULES = _sources(PACKAGE)
ORDER = list(ROWS)
ROW_OF = {module: row for row, modules in ROWS.items() for module in modules}


def test_every_module_has_its_row() -> None:
    """A new module must be placed: each stands in exactly one row, and no row names one that is gone."""
    placed = sorted(module for modules in ROWS.values() for module in modules)
    assert placed == sorted(set(MODULES) - {""})


def test_the_package_itself_imports_nothing() -> None:
    """Whoever imports one module gets that one, not all of them."""
    assert MODULES[""].outsiders <= {"__future__"}
    assert MODULES["transports"].outsiders <= {"__future__"}


@pytest.mark.parametrize("name", sorted(ROW_OF))
def test_imports_go_down(name: str) -> None:
    """A module imports from its own row and those below it, never from above."""
    own = ORDER.index(ROW_OF[name])
    upward = {other for other in MODULES[name].siblings if ORDER.index(ROW_OF[other]) < own}
    assert not upward, f"{name} ({ROW_OF[name]}) imports from above"


def test_imports_go_in_no_circle() -> None:
    """Each module can be understood with those below it alone."""
    left = {name: source.siblings for name, source in MODULES.items()}
    while free := {name for name, imports in left.items() if not imports & set(left)}:
        for name in free:
            del left[name]
    assert not left, f"these import each other: {left}"


@pytest.mark.parametrize("name", sorted(ROW_OF))
def test_only_face_and_locust_rows_know_locust(name: str) -> None:
    """Everything below can be used, and tested, without Locust."""
    if ROW_OF[name] not in ("face", "locust"):
        assert "locust" not in MODULES[name].outsiders


@pytest.mark.parametrize("name", sorted(ROW_OF))
def test_only_the_face_reads_the_environment(name: str) -> None:
    """What a user has set comes in at one place; all else is told by its caller."""
    if ROW_OF[name] != "face" and name != "transports.warm_parent":  # there it is that of the CLI
        assert not MODULES[name].attributes & ENVIRONMENT


@pytest.mark.parametrize("name", sorted(ROWS["core"]))
def test_the_core_is_pure(name: str) -> None:
    """The core has no clock, files, network or greenlets: values in, values out."""
    assert MODULES[name].outsiders - {PACKAGE} <= PURE
    called = {
        node.func.id
        for node in ast.walk(MODULES[name].tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not called & {"open", "print", "input", "eval", "exec", "__import__"}
    assert not MODULES[name].attributes & CLOCKS


def _writes(source: Source) -> Iterator[str]:
    """Calls that change files: by their names, and `open` with a mode that writes."""
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        if name in WRITES or ast.unparse(called) in WRITES_OF_MODULES:
            yield f"line {node.lineno}: {name}"
        if name in ("open", "fdopen"):
            modes = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "mode")]
            texts = [str(mode.value) for mode in modes if isinstance(mode, ast.Constant)]
            if any(set(text) & set("wax+") and set(text) <= set("rwaxbt+") for text in texts):
                yield f"line {node.lineno}: {name}"


@pytest.mark.parametrize("name", sorted(ROW_OF))
def test_only_few_write_files(name: str) -> None:
    """A run's folder is written by two modules only."""
    if name not in WRITERS:
        assert not list(_writes(MODULES[name]))


def test_writes_are_recognized() -> None:
    """The test above knows a write when it sees one."""
    for name in WRITERS:
        assert list(_writes(MODULES[name])), f"{name} is named as a writer and writes nothing"
    text = "path.open('rb'); open(path, encoding='utf-8'); path.open(); open('war.txt')"
    assert not list(_writes(Source("reader", ast.parse(text))))
    text = "found.remove(1); text.replace('a', 'b'); copy.copy(x)"
    assert not list(_writes(Source("reader", ast.parse(text))))
    calls = ["open(p, 'w')", "p.open('ab')", "p.open(mode='x')", "p.write_text('')", "open(p, 'r+')"]
    for write in [*calls, "os.remove(p)", "os.makedirs(p)"]:
        assert list(_writes(Source("writer", ast.parse(write)))), write


def test_the_package_knows_nothing_of_prep() -> None:
    """What stands before a run uses the package, not the other way round."""
    assert not {name for name, source in MODULES.items() if "prep" in source.outsiders}


def test_the_local_server_knows_nothing_of_the_package() -> None:
    """Tests against the local server are an independent witness."""
    servers = _sources("prep/localserver")
    assert servers
    assert not {name for name, source in servers.items() if PACKAGE in source.outsiders}
    assert not {name for name, source in servers.items() if "locust" in source.outsiders}


def test_prep_uses_what_lies_below_locust() -> None:
    """Preparing a run needs neither Locust nor the plugin's face."""
    sources = {name: source for name, source in _sources("prep").items() if "localserver" not in name}
    known = {"", "setup", "bench", "bench_bare", "endings", "api", "batch", "commandline", "listing"}
    known |= {"users", "api_keys", "sandboxes", "remove", "documents", "upload"}
    assert set(sources) == known, "a new one is looked at, too"
    used = set().union(*(source.siblings for source in sources.values()))
    assert used
    assert not {name for name in used if ROW_OF[name] in ("face", "locust")}
    assert not {name for name, source in sources.items() if "locust" in source.outsiders}


def test_the_warm_parent_stands_alone() -> None:
    """It is run by the interpreter of the CLI, which has neither this package nor what it needs."""
    assert MODULES["transports.warm_parent"].outsiders <= set(sys.stdlib_module_names)
