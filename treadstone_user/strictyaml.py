"""YAML files of settings, read strictly: every problem of a file is found in one go.

Whatever ``yaml.safe_load`` reads is read (anchors, merge keys, every style of quoting), with
three differences: a key given twice is a problem, decimal numbers keep their leading zeros'
worth (``010`` is ten, not eight), and a date is text. Nothing in a file can raise anything but
what is declared here: sizes, depths and the cost of merge keys are bounded.

Grammar: YAML 1.1 as PyYAML 6 implements it; merge keys: https://yaml.org/type/merge.html.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

MAX_BYTES = 1_000_000
"""A settings file beyond this size is refused before it is parsed."""

UNREADABLE = object()
"""Stands in a document for a value whose problem is already told."""

_MAX_DEPTH = 32
_MAX_MERGED_KEYS = 100_000  # merge keys of merge keys multiply: a small file could fill the memory
MAX_NUMBER_LENGTH = 100
"""Characters of the longest number; no field needs more, and converting long ones is slow."""

MAX_SHOWN = 60
"""Characters of a wrong value that a problem repeats."""

_TAG = "tag:yaml.org,2002:"
_MERGE = f"{_TAG}merge"
_TEXT_TAGS = frozenset({f"{_TAG}str", f"{_TAG}timestamp"})


@dataclass(frozen=True, slots=True)
class Document:
    """A file's mapping, empty for an empty file and None when unreadable, and its problems."""

    mapping: dict[str, Any] | None
    problems: tuple[str, ...] = ()
    missing: bool = False


def load(path: Path) -> Document:
    """Read a file. A file that is missing, too large or not UTF-8 is a problem, not an error."""
    try:
        if path.exists() and not path.is_file():
            return Document(None, ("is not a file",))
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
        return parse(content.decode())
    except UnicodeDecodeError as error:
        if len(content) > MAX_BYTES:  # the cut may have split a character
            return _too_large()
        return Document(None, (f"is not UTF-8 text (byte {error.start + 1})",))
    except FileNotFoundError:
        return Document(None, ("there is no such file",), missing=True)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        return Document(None, (f"cannot be read: {getattr(error, 'strerror', None) or error}",))


def parse(text: str) -> Document:
    """Read YAML text. Unreadable text is one problem with its line and column."""
    if len(text) > MAX_BYTES or len(text.encode(errors="replace")) > MAX_BYTES:
        return _too_large()
    try:
        loader = _BoundedLoader(text)
    except yaml.reader.ReaderError as error:
        return Document(None, (_unprintable(text, error.position),))
    try:
        root = loader.get_single_node()
        if root is None or root.tag == f"{_TAG}null":
            return Document({})
        if not isinstance(root, yaml.MappingNode):
            return Document(None, (f"must hold keys and values, not {_kind_of(root)}",))
        builder = _Builder(loader)
        mapping = builder.build(root, "")
        return Document(None if mapping is UNREADABLE else mapping, tuple(builder.problems))
    except yaml.MarkedYAMLError as error:
        return Document(None, (_located(error),))
    except (ValueError, OverflowError):  # an escape such as "\UFFFFFFFF" is beyond Unicode
        mark = loader.get_mark()
        return Document(None, (f"{_position(mark)}: this escape is not a character",))
    finally:
        loader.dispose()


def _too_large() -> Document:
    return Document(None, (f"is larger than {MAX_BYTES // 1_000_000} MB",))


def _unprintable(text: str, index: int) -> str:
    line = text.count("\n", 0, index) + 1
    column = index - text.rfind("\n", 0, index)
    return f"line {line}, column {column}: YAML does not allow the character U+{ord(text[index]):04X} here"


def _position(mark: yaml.Mark) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}"


def _located(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    said = ", ".join(part for part in (error.context, error.problem) if part)
    return f"{_position(mark)}: {said}" if mark else said


def _kind_of(node: yaml.Node) -> str:
    return "a list" if isinstance(node, yaml.SequenceNode) else f"the single value {shown(node.value)}"


class _BoundedLoader(yaml.SafeLoader):
    """PyYAML's safe loader with a bound on nesting, which it would follow until the stack ends."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise yaml.composer.ComposerError(
                None, None, f"nested more than {_MAX_DEPTH} levels deep", self.get_mark()
            )
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


class _Builder:
    """Values from composed nodes, with the problems met on the way.

    Built from nodes rather than by PyYAML's constructor, which keeps the last of duplicate
    keys silently and copies merged keys without bound. A node under several aliases is built once.
    """

    def __init__(self, loader: yaml.SafeLoader) -> None:
        self.problems: list[str] = []
        self._loader = loader
        self._built: dict[int, Any] = {}
        self._open: set[int] = set()
        self._merged_keys = 0

    def build(self, node: yaml.Node, path: str) -> Any:
        """The value of a node; `UNREADABLE` where that has a problem of its own."""
        identity = id(node)
        if identity in self._open:
            return self._wrong(path, f"contains itself (line {node.start_mark.line + 1})")
        if identity not in self._built:
            self._open.add(identity)
            self._built[identity] = self._new(node, path)
            self._open.remove(identity)
        return self._built[identity]

    def _new(self, node: yaml.Node, path: str) -> Any:
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            return [self.build(item, f"{path}[{index}]") for index, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        return self._wrong(path, f"the YAML type {shown(node.tag)} is not used here")

    def _mapping(self, node: yaml.MappingNode, path: str) -> dict[str, Any]:
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self._wrong(path, f"a key must be a word (line {line})")
                continue
            key = str(key_node.value)
            place = join(path, key)
            if key in lines:
                self._wrong(place, f"given twice, on line {lines[key]} and on line {line}")
            lines[key] = line
            if key_node.tag == _MERGE:
                merged = self._merge(value_node, place)
            else:
                own[key] = self.build(value_node, place)
        return merged | own

    def _merge(self, node: yaml.Node, path: str) -> dict[str, Any]:
        parts = node.value if isinstance(node, yaml.SequenceNode) else [node]
        merged: dict[str, Any] = {}
        for part in reversed(parts):  # of several, the first one wins
            values = self.build(part, path)
            if values is UNREADABLE:
                continue
            if not isinstance(values, dict):
                self._wrong(path, "must name a mapping or a list of mappings")
                continue
            self._merged_keys += len(values)
            if self._merged_keys > _MAX_MERGED_KEYS:
                raise yaml.constructor.ConstructorError(None, None, "too many merged keys", node.start_mark)
            merged |= values
        return merged

    def _scalar(self, node: yaml.ScalarNode, path: str) -> Any:
        text: str = node.value
        try:
            match node.tag.removeprefix(_TAG):
                case "null":
                    return None
                case "bool":
                    return self._loader.construct_yaml_bool(node)
                case "int" | "float" if len(text) > MAX_NUMBER_LENGTH:
                    return text
                case "int" if (digits := text.replace("_", "")).lstrip("+-").isdecimal():
                    return int(digits)
                case "int":
                    return self._loader.construct_yaml_int(node)
                case "float":
                    return self._loader.construct_yaml_float(node)
        except (ValueError, LookupError, OverflowError):
            return self._wrong(path, f"cannot be read as {node.tag.removeprefix(_TAG)}: {shown(text)}")
        if node.tag in _TEXT_TAGS:
            return text
        return self._wrong(path, f"the YAML type {shown(node.tag)} is not used here")

    def _wrong(self, path: str, problem: str) -> object:
        self.problems.append(f"{path}: {problem}" if path else problem)
        return UNREADABLE


def join(path: str, key: str) -> str:
    """The path of a key below a path, e.g. ``matrix[2].count``."""
    plain = key == "<<" or (key.isidentifier() and len(key) <= MAX_SHOWN)
    name = key if plain else shown(key)
    return f"{path}.{name}" if path else name


def shown(value: object) -> str:
    """A wrong value as a problem repeats it, on one line and never long."""
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case dict():
            return "keys and values"
        case list():
            return "a list"
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
