"""Configuration files as flat values by dotted key; nothing in them is executed.

Parents that a file names are read below it, references are worked out where they point inside the files, and a shell
script is followed as far as it says itself. Any other resolver, command or class name is left alone and reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlsim.core.errors import ParameterError, ScenarioError
from rlsim.frameworks.references import resolved
from rlsim.scenario.tree import Node

READABLE = {
    ".yaml": "yaml",
    ".yml": "yaml",
    ".json": "yaml",
    ".toml": "toml",
    ".sh": "shell",
    ".bash": "shell",
    ".txt": "shell",
}
LAUNCHER_KEYS = ("num_processes", "num_machines", "nproc_per_node", "nnodes", "num_nodes", "gpus", "num_gpus")
"""Flags of accelerate, torchrun, deepspeed and the like that say how many processes train."""
MOST_VALUES = 100_000
"""Values of a YAML file with its anchors spelt out."""
MOST_PARENTS = 6
"""Generations of parents of a file, and folders above it in which they are looked for."""


@dataclass(slots=True)
class Config:
    """What a file says."""

    file: str
    flat: dict[str, Any] = field(default_factory=dict)
    """Values by dotted key; lists are values."""
    unresolved: dict[str, str] = field(default_factory=dict)
    """Keys whose value only the framework can make, and its text."""
    unset: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Of those, the variables that the file does not set."""
    where: dict[str, str] = field(default_factory=dict)
    """File and line of each key."""
    faults: list[str] = field(default_factory=list)
    """What could not be read, a line each."""
    notes: list[str] = field(default_factory=list)
    """What was taken for granted to read the rest, a line each."""


def read_config(path: Path) -> Config:
    """A configuration file, its format told by its extension.

    Raises ParameterError for another extension (Python files are programs), ScenarioError for a file that cannot be
    read or is not what its extension says.
    """
    kind = READABLE.get(path.suffix.lower())
    if kind is None:
        allowed = f"a file of {', '.join(READABLE)}; programs are not run: write down the values that they make"
        raise ParameterError("FILE", path.name, allowed)
    if kind == "shell":
        return _script(path)
    config = Config(str(path))
    tree = _toml(path) if kind == "toml" else _yaml(path, config.where, config.faults)
    config.flat, config.unresolved, config.unset = resolved(tree)
    return config


def _script(path: Path) -> Config:
    """A script's keys; beside them, in parentheses, its launcher's and server's flags, its variables and scripts."""
    from rlsim.frameworks.shell.script import read_script

    script = read_script(_text(path), str(path), path.parent)
    config = Config(str(path), script.flat, script.unresolved, script.unset)
    config.where = {key: f"{path}:{line}" for key, line in script.lines.items()}
    config.notes, config.faults = script.notes, script.faults
    if any(isinstance(value, str) and "${" in value for value in script.flat.values()):
        config.flat, unresolved, _ = resolved(_unflattened(script.flat))
        config.unresolved |= unresolved
    for key, value in script.launcher.items():
        config.flat.setdefault(f"(launcher).{key}", value)
        if key.replace("-", "_") in LAUNCHER_KEYS:
            config.flat.setdefault(key.replace("-", "_"), value)
    config.flat |= {f"(server).{key.replace('-', '_')}": value for key, value in script.server.items()}
    config.flat |= {f"(variable).{name}": value for name, value in script.variables.items()}
    config.flat["(sourced)"] = script.sourced
    return config


def _unflattened(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Nested mappings of dotted keys, as far as no key is both a value and a mapping."""
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        *above, last = key.split(".") if not key.startswith("(") else [key]
        node = tree
        for part in above:
            below = node.setdefault(part, {})
            node = below if isinstance(below, dict) else {}
        node[last] = value
    return tree


def _text(path: Path) -> str:
    from rlsim.scenario.reader import read

    try:
        return read(str(path)).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ScenarioError([f"{path}: found bytes that are not UTF-8; allowed: UTF-8 text"]) from None


def _toml(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(_text(path))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ScenarioError([f"{path}: not valid TOML: {error}"]) from None


def _yaml(path: Path, where: dict[str, str], faults: list[str], depth: int = 0) -> dict[str, Any]:
    """The tree of a file laid over those of the files that its ``defaults`` name; ``where`` gets the lines."""
    from rlsim.scenario.reader import parse_file

    root, parse_faults = parse_file(str(path))
    if parse_faults and depth == 0 and any("tag" in str(fault) for fault in parse_faults):
        raise ScenarioError([str(fault) for fault in parse_faults])
    tree = _loaded(path)
    parents = tree.pop("defaults", None) or []
    below: dict[str, Any] = {}
    for name, parent in _parents(parents, path):
        if parent is None or depth > MOST_PARENTS:
            faults.append(f"{path}: defaults: {name} is not beside the file: what it says is not known")
        else:
            try:
                below = _laid_over(below, _yaml(parent, where, faults, depth + 1))
            except ScenarioError as error:
                faults += error.faults
    where.update(_places(root, ""))
    return _laid_over(below, tree)


def _loaded(path: Path) -> dict[str, Any]:
    """The mapping of a YAML file with its anchors and merge keys; of keys that stand twice the last counts."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    yaml = YAML(typ="safe", pure=True)
    yaml.allow_duplicate_keys = True
    try:
        tree = _spelt_out(yaml.load(_text(path)), [MOST_VALUES])
    except (YAMLError, RecursionError, ValueError) as error:
        raise ScenarioError([f"{path}: not read as YAML: {str(error).splitlines()[0]}"]) from None
    return tree if isinstance(tree, dict) else {}


def _spelt_out(value: Any, left: list[int]) -> Any:
    """The tree without shared parts, its keys as text; ValueError where there are too many values."""
    left[0] -= 1
    if left[0] < 0:
        raise ValueError(f"more than {MOST_VALUES} values")
    if isinstance(value, dict):
        return {str(key): _spelt_out(below, left) for key, below in value.items()}
    if isinstance(value, list):
        return [_spelt_out(below, left) for below in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _parents(names: Any, path: Path) -> Iterator[tuple[str, Path | None]]:
    """Names and files of a ``defaults`` entry: a path, or a list of paths and of Hydra's groups."""
    for name in names if isinstance(names, list) else [names]:
        texts = [f"{group}/{choice}" for group, choice in name.items()] if isinstance(name, dict) else [str(name)]
        for text in texts:
            if text != "_self_" and not text.startswith(("override ", "hydra/")):
                yield text, _nearby(text.partition("@")[0], path)


def _nearby(text: str, path: Path) -> Path | None:
    """A file by its path from the one that names it, else of that name beside it or in a folder above."""
    name = text if text.endswith((".yaml", ".yml")) else f"{text}.yaml"
    folders = [path.parent, *list(path.resolve().parents)[1:MOST_PARENTS]]
    candidates = [path.parent / name, *(folder / Path(name).name for folder in folders)]
    return next((one for one in candidates if one.is_file() and one.resolve() != path.resolve()), None)


def _laid_over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Mappings merged key by key; any other value above replaces the one below."""
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _laid_over(merged[key], value) if both else value
    return merged


def _places(node: Node, under: str) -> Iterator[tuple[str, str]]:
    for key, child in node.children.items():
        yield f"{under}{key}", str(child.place)
        yield from _places(child, f"{under}{key}.")
