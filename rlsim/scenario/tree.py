"""A tree of values that remembers where each was written, and how trees are laid over one another.

Invariant: every node keeps the file, line and key path of the text it came from, whatever it is merged into.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

Key: TypeAlias = str | int
Path: TypeAlias = tuple[Key, ...]
Scalar: TypeAlias = str | int | float | bool | None
Plain: TypeAlias = "dict[str, Plain] | list[Plain] | Scalar"

CHOICES = ("law", "preset", "source")
"""Keys that decide which other keys a mapping may hold: a new choice makes the old parameters meaningless."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a key was written; ``path`` is the key path there (inside an arm it starts with the arm)."""

    file: str
    line: int | None
    """Of the key, from 1; None for a ``--set`` argument."""
    path: Path = ()
    value_line: int | None = None
    """Of a scalar's value, which may stand below its key; that of the key for a mapping or a list."""

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Node:
    """A value with its place."""

    value: dict[str, Node] | list[Node] | Scalar
    place: Place

    @property
    def children(self) -> dict[str, Node]:
        """The entries of a mapping; empty for anything else."""
        return self.value if isinstance(self.value, dict) else {}


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with a scenario, said in one line."""

    file: str
    line: int | None
    key: str
    text: str

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return ": ".join(part for part in (where, self.key, self.text) if part)


def dotted(path: Path) -> str:
    """``("published", 0, "source")`` as ``published[0].source``."""
    parts = (f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return "".join(parts).removeprefix(".")


def key_fault(node: Node, text: str, rest: Path = ()) -> Fault:
    """A fault of the key of ``node``, or of ``rest`` below it that was not written."""
    return Fault(node.place.file, node.place.line, dotted(node.place.path + rest), text)


def value_fault(node: Node, text: str) -> Fault:
    """A fault of the value of ``node``."""
    return Fault(node.place.file, node.place.value_line, dotted(node.place.path), text)


def plain(node: Node) -> Plain:
    """The values alone."""
    if isinstance(node.value, dict):
        return {key: plain(child) for key, child in node.value.items()}
    if isinstance(node.value, list):
        return [plain(child) for child in node.value]
    return node.value


def walk(node: Node, path: Path = ()) -> Iterator[tuple[Path, Node]]:
    """Every node with its path, parents first."""
    yield path, node
    children = enumerate(node.value) if isinstance(node.value, list) else node.children.items()
    for key, child in children:
        yield from walk(child, (*path, key))


def find(root: Node, path: Path) -> tuple[Node, Path]:
    """The deepest node that was written along ``path``, and what of the path is left."""
    node = root
    for depth, key in enumerate(path):
        child = _child(node, key)
        if child is None:
            return node, path[depth:]
        node = child
    return node, ()


def _child(node: Node, key: Key) -> Node | None:
    if isinstance(node.value, list):
        return node.value[key] if isinstance(key, int) and 0 <= key < len(node.value) else None
    return node.children.get(str(key))


def merge(base: Node, over: Node) -> Node:
    """``over`` laid on ``base``: mappings merge, anything else is replaced.

    A mapping whose ``law``, ``preset`` or ``source`` changes is replaced whole.
    """
    if not (isinstance(base.value, dict) and isinstance(over.value, dict)) or _chooses_anew(base, over):
        return over
    merged = dict(base.value)
    for key, child in over.value.items():
        merged[key] = merge(merged[key], child) if key in merged else child
    return replace(base, value=merged)


def planted(root: Node, path: Path, leaf: Node, depth: int = 0) -> Node:
    """The mapping ``root`` with ``leaf`` at ``path`` below it."""
    if depth == len(path):
        return leaf
    key = str(path[depth])
    below = root.children.get(key, Node({}, replace(leaf.place, path=path[: depth + 1])))
    return replace(root, value={**root.children, key: planted(below, path, leaf, depth + 1)})


def _chooses_anew(base: Node, over: Node) -> bool:
    old, new = base.children, over.children
    return any(key in new and (key not in old or old[key].value != new[key].value) for key in CHOICES)


def without(node: Node, key: str) -> Node:
    """The mapping less one entry."""
    return replace(node, value={name: child for name, child in node.children.items() if name != key})
