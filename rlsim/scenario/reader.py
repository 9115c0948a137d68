"""YAML 1.2 text to a tree with places.

Only the node graph is composed, never constructed: a tag cannot make an object. Aliases are expanded under a
limit on the number of values, so neither an alias bomb nor a cycle can exhaust memory. What is left out:
merge keys, dates (kept as text) and every tag beyond the core schema.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode
from ruamel.yaml.nodes import Node as YamlNode
from ruamel.yaml.reader import ReaderError

from rlsim.core.errors import ScenarioError, shown
from rlsim.scenario.tree import Fault, Node, Path, Place, Scalar, key_fault, planted, value_fault

MAX_BYTES = 1_000_000
MAX_VALUES = 100_000
"""Values in a file after its aliases are expanded."""
MAX_DEPTH = 64
LARGEST_INTEGER = 2**63 - 1
_TAG = "tag:yaml.org,2002:"


def read(path: str) -> bytes:
    """The bytes of a file; ScenarioError when it cannot be read or holds more than ``MAX_BYTES``."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ScenarioError([_unreadable(path, error)]) from None
    if len(data) > MAX_BYTES:
        raise ScenarioError([f"{path}: found more than {MAX_BYTES} bytes; allowed: at most {MAX_BYTES}"])
    return data


def _unreadable(path: str, error: OSError) -> str:
    from pathlib import Path as FilePath

    from rlsim.core.errors import nearest

    if not isinstance(error, FileNotFoundError):
        return f"{path}: cannot be read: {error.strerror}"
    wanted = FilePath(path)
    beside = [entry.name for entry in wanted.parent.glob("*.y*ml")] if wanted.parent.is_dir() else []
    guess = nearest(wanted.name, beside)
    hint = f"; did you mean '{wanted.with_name(guess)}'?" if guess else ""
    return f"{path}: file not found{hint}"


def read_all(files: Sequence[str | os.PathLike[str]], sets: Sequence[str]) -> tuple[list[Node], Node, list[Fault]]:
    """The trees of files, one tree of all ``key.path=value`` settings, and the faults of their values.

    ScenarioError, with all of these faults, when a file or a setting has no tree.
    """
    refusals: list[str] = []
    faults: list[Fault] = []
    trees, settings = [], Node({}, Place("--set", None))
    for file in files:
        try:
            tree, text_faults = parse_file(os.fspath(file))
        except ScenarioError as error:
            refusals.extend(error.faults)
            continue
        trees.append(tree)
        faults.extend(text_faults)
    for text in sets:
        name, equals, value = text.partition("=")
        path = tuple(part.strip() for part in name.split("."))
        try:
            if not equals or not all(path):
                raise ScenarioError([f"--set {text}: found no key path and value; allowed: key.path=value"])
            leaf, text_faults = parse(value, f"--set {text}", path, numbered=False)
        except ScenarioError as error:
            refusals.extend(error.faults)
            continue
        settings = planted(settings, path, leaf)
        faults.extend(text_faults)
    if refusals:
        raise ScenarioError([*refusals, *map(str, faults)])
    return trees, settings, faults


def parse_file(path: str) -> tuple[Node, list[Fault]]:
    """The tree of a file and the faults of its values; ScenarioError when there is no tree."""
    root, faults = parse(_decoded(read(path), path), path)
    if not isinstance(root.value, dict):
        kind = "an empty file" if root.value is None else shown_kind(root)
        raise ScenarioError([str(key_fault(root, f"found {kind}; allowed: a mapping of keys to values"))])
    return root, faults


def shown_kind(node: Node) -> str:
    """What stands where a mapping should."""
    return "a list" if isinstance(node.value, list) else shown(node.value)


def _decoded(data: bytes, file: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        invalid = f"byte 0x{data[error.start]:02x} at offset {error.start}"
        raise ScenarioError([f"{file}:{line}: found {invalid}; allowed: UTF-8 text"]) from None


def parse(text: str, file: str, at: Path = (), numbered: bool = True) -> tuple[Node, list[Fault]]:
    """The tree of YAML ``text``, and its faults: duplicate keys, tags, numbers that are not finite.

    ``at`` is the key path of the whole; without ``numbered`` places have no line. ScenarioError if not YAML.
    """
    composed = _composed(text, file)
    building = _Building(file, numbered)
    if composed is None:
        return Node(None, building.place(1, at)), []
    root = building.node(composed, at, _line(composed))
    return root, building.faults


def _composed(text: str, file: str) -> YamlNode | None:
    try:
        composed: YamlNode | None = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as error:
        raise ScenarioError([_syntax_fault(error, file)]) from None
    except ReaderError as error:
        line = text[: error.position].count("\n") + 1
        invalid = f"character {(chr(error.character) if isinstance(error.character, int) else str(error.character))!r}"
        raise ScenarioError([f"{file}:{line}: not valid YAML: found {invalid}; allowed: printable text"]) from None
    except RecursionError:
        raise ScenarioError([f"{file}: found values nested too deep; allowed: {MAX_DEPTH} levels"]) from None
    except (YAMLError, ValueError, LookupError, AttributeError, AssertionError) as error:
        raise ScenarioError([f"{file}: not valid YAML: {str(error) or type(error).__name__}"]) from None
    return composed


def _syntax_fault(error: MarkedYAMLError, file: str) -> str:
    mark = error.problem_mark or error.context_mark
    where = f"{file}:{mark.line + 1}: column {mark.column + 1}" if mark else file
    began = f" ({error.context}"
    if error.context and error.context_mark and error.context_mark.line != (mark and mark.line):
        began += f" begun on line {error.context_mark.line + 1}"
    return f"{where}: not valid YAML: {error.problem}{began + ')' if error.context else ''}"


def _line(composed: YamlNode) -> int:
    return int(composed.start_mark.line) + 1


class _RefusedError(ValueError):
    """A scalar that has no plain value; the message is what was found and what is allowed."""


@dataclass(slots=True)
class _Building:
    file: str
    numbered: bool
    faults: list[Fault] = field(default_factory=list)
    values: int = 0

    def place(self, key_line: int, path: Path, value_line: int | None = None) -> Place:
        if not self.numbered:
            return Place(self.file, None, path)
        return Place(self.file, key_line, path, value_line or key_line)

    def node(self, composed: YamlNode, path: Path, key_line: int) -> Node:
        self._count(path, key_line)
        if isinstance(composed, MappingNode):
            return self._mapping(composed, path, key_line)
        if isinstance(composed, SequenceNode):
            return self._sequence(composed, path, key_line)
        return self._scalar(composed, path, key_line)

    def _count(self, path: Path, key_line: int) -> None:
        self.values += 1
        where = Node(None, self.place(key_line, path))
        if self.values > MAX_VALUES:
            allowed = f"at most {MAX_VALUES}, aliases expanded"
            raise ScenarioError([str(key_fault(where, f"found more values than a scenario needs; allowed: {allowed}"))])
        if len(path) > MAX_DEPTH:
            where = Node(None, self.place(key_line, path[:3]))
            text = f"found values nested too deep, or an alias inside itself; allowed: {MAX_DEPTH} levels"
            raise ScenarioError([str(key_fault(where, text))])

    def _mapping(self, composed: MappingNode, path: Path, key_line: int) -> Node:
        whole = Node({}, self.place(key_line, path))
        self._refuse_tag(composed, "map", whole)
        entries: dict[str, Node] = {}
        for key_node, value_node in composed.value:
            key = self._key(key_node, path)
            if key is None:
                continue
            child = self.node(value_node, (*path, key), _line(key_node))
            if key in entries:
                first = entries[key].place.line
                self.faults.append(key_fault(child, f"duplicate key; first written on line {first}; allowed: once"))
            entries.setdefault(key, child)
        return Node(entries, whole.place)

    def _key(self, composed: YamlNode, path: Path) -> str | None:
        if isinstance(composed, ScalarNode) and composed.tag not in (f"{_TAG}merge", f"{_TAG}null"):
            return str(composed.value)
        here = Node(None, self.place(_line(composed), path))
        key = shown(composed.value) if isinstance(composed, ScalarNode) else "a mapping or a list"
        self.faults.append(key_fault(here, f"found {key} as a key; allowed: a name"))
        return None

    def _sequence(self, composed: SequenceNode, path: Path, key_line: int) -> Node:
        whole = Node([], self.place(key_line, path))
        self._refuse_tag(composed, "seq", whole)
        items = [self.node(item, (*path, index), _line(item)) for index, item in enumerate(composed.value)]
        return Node(items, whole.place)

    def _refuse_tag(self, composed: YamlNode, kind: str, node: Node) -> None:
        if composed.tag != _TAG + kind:
            self.faults.append(key_fault(node, f"found tag {composed.tag}; allowed: plain YAML without tags"))

    def _scalar(self, composed: YamlNode, path: Path, key_line: int) -> Node:
        is_written = composed.start_mark.index < composed.end_mark.index
        place = self.place(key_line, path, _line(composed) if is_written else key_line)
        try:
            return Node(_value(str(composed.tag), str(composed.value)), place)
        except _RefusedError as refused:
            self.faults.append(value_fault(Node(None, place), str(refused)))
            return Node(None, place)


def _value(tag: str, text: str) -> Scalar:
    convert = _SCALARS.get(tag.removeprefix(_TAG))
    if convert is None:
        raise _RefusedError(f"found tag {tag}; allowed: plain YAML without tags")
    try:
        return convert(text)
    except (ValueError, KeyError):
        raise _RefusedError(f"found {text[:60]}; allowed: {_ALLOWED[convert]}") from None


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _integer(text: str) -> int:
    digits = text.replace("_", "")
    value = int(digits, 0 if digits.lstrip("+-")[1:2].isalpha() else 10)
    if abs(value) > LARGEST_INTEGER:
        raise ValueError
    return value


def _real(text: str) -> float:
    value = float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
    if not math.isfinite(value):
        raise ValueError
    return value


def _nothing(text: str) -> None:
    if text not in ("", "~", "null", "Null", "NULL"):
        raise ValueError


_SCALARS: Final[dict[str, Callable[[str], Scalar]]] = {
    "str": str,
    "timestamp": str,
    "value": str,
    "bool": _boolean,
    "int": _integer,
    "float": _real,
    "null": _nothing,
}
_ALLOWED: Final[dict[Callable[[str], Scalar], str]] = {
    str: "text",
    _boolean: "true or false",
    _integer: "a whole number of at most 63 bits",
    _real: "a finite number",
    _nothing: "null",
}
