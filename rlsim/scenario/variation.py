"""Factors: keys and the values that each takes in turn, as a command line or a file says them.

A key path with colons (``rollout.gpus:trainer.gpus``) is several keys that change together; their values are joined
by colons likewise (``8:8``). The name ``arm`` chooses arms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from rlsim.core.errors import ParameterError, ScenarioError, unknown
from rlsim.scenario.reader import parse, read
from rlsim.scenario.tree import Node, Place, plain, planted

ARM = "arm"
_OPENING, _CLOSING, _QUOTES = "([{", ")]}", "\"'"


@dataclass(frozen=True, slots=True)
class Level:
    """One value of a factor, or the values that its keys take together."""

    text: str
    """As written."""
    settings: tuple[tuple[tuple[str, ...], Node], ...] = ()
    """Key paths and what stands there."""
    arm: str | None = None


@dataclass(frozen=True, slots=True)
class Factor:
    """What is varied, and its values in the order written."""

    name: str
    levels: tuple[Level, ...]


Choice = dict[str, Level]
"""A level of each factor, by its name."""


def factor(text: str, option: str = "--set") -> Factor:
    """``key=a,b,c`` as a factor (of one level where it has one value); ScenarioError for text that is none."""
    name, equals, values = text.partition("=")
    name = name.strip()
    if not equals or not all(part.strip() for key in name.split(":") for part in key.split(".")):
        raise ScenarioError([f"{option} {text}: found no key path and values; allowed: key.path=value,value,..."])
    return Factor(name, tuple(level(name, piece, option) for piece in parted(values, ",")))


def level(name: str, text: str, option: str) -> Level:
    """One value of a factor, from its text."""
    where = f"{option} {name}={text}"
    keys = name.split(":")
    pieces = parted(text, ":") if len(keys) > 1 else [text]
    if len(keys) != len(pieces):
        raise ScenarioError([f"{where}: found {len(pieces)} value(s); allowed: {len(keys)}, joined by colons"])
    if name == ARM:
        return Level(text, arm=text)
    settings = []
    for key, piece in zip(keys, pieces, strict=True):
        path = tuple(part.strip() for part in key.split("."))
        leaf, faults = parse(piece, where, path, numbered=False)
        if faults:
            raise ScenarioError(map(str, faults))
        settings.append((path, leaf))
    return Level(text, tuple(settings))


def level_of(name: str, node: Node) -> Level:
    """One value of a factor, from a node of a file: it keeps its place."""
    text = _written(plain(node))
    keys = name.split(":")
    if len(keys) == 1 and name != ARM:
        return Level(text, ((tuple(name.split(".")), node),))
    chosen = level(name, text, str(node.place))
    return Level(text, tuple((path, _placed(leaf, node)) for path, leaf in chosen.settings), chosen.arm)


def _placed(leaf: Node, at: Node) -> Node:
    place = at.place
    return Node(leaf.value, Place(place.file, place.line, leaf.place.path, place.value_line))


def parted(text: str, mark: str) -> list[str]:
    """Text at every ``mark`` that is in no bracket and no quote."""
    pieces, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in _QUOTES:
            quote = letter
        else:
            depth += (letter in _OPENING) - (letter in _CLOSING)
        if letter == mark and depth == 0 and not quote:
            pieces.append("")
        else:
            pieces[-1] += letter
    return [piece.strip() for piece in pieces]


def arms_factor(texts: Sequence[str], known: Sequence[str]) -> Factor | None:
    """Arms by name, several to a text; every arm of the file where none is named; ParameterError for unknown ones."""
    requested = [name for text in texts for name in ([text] if text in known else parted(text, ","))]
    for name in requested:
        if name not in known:
            raise (
                unknown("--arm", name, known) if known else ParameterError("--arm", name, "none, the file has no arms")
            )
    names = list(dict.fromkeys(requested)) or list(known)
    return Factor(ARM, tuple(Level(name, arm=name) for name in names)) if names else None


def listed(path: str) -> list[Choice]:
    """The rows of a list file: YAML, a list of mappings of key paths to values; all name the same keys."""
    root, faults = parse(read(path).decode("utf-8-sig", "replace"), path)
    if faults:
        raise ScenarioError(map(str, faults))
    rows = root.value if isinstance(root.value, list) else []
    if not rows or not all(row.children for row in rows):
        raise ScenarioError([f"{path}: found no rows; allowed: a list of mappings of key paths to values"])
    names = list(rows[0].children)
    for row in rows:
        if list(row.children) != names:
            written = ", ".join(row.children)
            raise ScenarioError(
                [f"{row.place}: found {written}; allowed: the keys of the first row: {', '.join(names)}"]
            )
    return [{name: level_of(name, node) for name, node in row.children.items()} for row in rows]


def keys_once(factors: Iterable[Factor], rows: Sequence[Choice] = (), option: str = "--set") -> None:
    """Refuse a key that two factors set: one of them would change nothing. ``ParameterError`` with the key."""
    levels = [one.levels[0] for one in factors] + [one for row in rows[:1] for one in row.values()]
    used: set[str] = set()
    for one in levels:
        for key in [ARM] if one.arm is not None else [".".join(path) for path, _ in one.settings]:
            if key in used:
                raise ParameterError(option, key, "a key in one factor alone")
            used.add(key)


def choices(factors: Sequence[Factor], rows: Sequence[Choice] = ()) -> Iterator[Choice]:
    """Every combination of the factors' levels and the rows, the last varying fastest."""
    keys_once(factors, rows)
    named = [[{factor.name: one} for one in factor.levels] for factor in factors]
    for parts in product(*named, *([list(rows)] if rows else [])):
        yield {name: one for part in parts for name, one in part.items()}


def settings_of(choice: Choice) -> Node:
    """What a choice sets, as one tree."""
    root = Node({}, Place("--set", None))
    for one in choice.values():
        for path, leaf in one.settings:
            root = planted(root, path, leaf)
    return root


def arm_of(choice: Choice) -> str | None:
    """The arm that a choice names."""
    return choice[ARM].arm if ARM in choice else None


def _written(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_written(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_written, value)) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)
