"""Configuration files as flat values by dotted key; nothing in them is executed.

References (``${a.b}`` in YAML, ``$NAME`` in a shell script) are followed where they point inside the file; sums and
products of whole numbers in a shell script are worked out. Any other resolver, command or class name is left alone
and reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlsim.core.errors import ParameterError, ScenarioError

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
MOST_REFERENCES = 20
"""References followed for one value: a longer chain is a cycle."""
_WHOLE = re.compile(r"\$\{([\w.\-/]+)\}")


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
    return _flattened(path, _toml(path) if kind == "toml" else _yaml(path))


def _script(path: Path) -> Config:
    """A script's keys; beside them, in parentheses, its launcher's and server's flags, its variables and scripts."""
    from rlsim.frameworks.shell.script import read_script

    script = read_script(_text(path), str(path), path.parent)
    config = Config(str(path), script.flat, script.unresolved, script.unset)
    config.where = {key: f"{path}:{line}" for key, line in script.lines.items()}
    config.notes, config.faults = script.notes, script.faults
    for key in script.flat:
        config.flat[key] = _followed(config.flat[key], script.flat)
    for key, value in script.launcher.items():
        config.flat.setdefault(f"(launcher).{key}", value)
        if key in LAUNCHER_KEYS:
            config.flat.setdefault(key, value)
    config.flat |= {f"(server).{key.replace('-', '_')}": value for key, value in script.server.items()}
    config.flat |= {f"(variable).{name}": value for name, value in script.variables.items()}
    config.flat["(sourced)"] = script.sourced
    return config


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


def _yaml(path: Path) -> dict[str, Any]:
    from rlsim.scenario.reader import parse_file
    from rlsim.scenario.tree import plain

    root, faults = parse_file(str(path))
    if faults:
        raise ScenarioError([str(fault) for fault in faults])
    tree = plain(root)
    assert isinstance(tree, dict)
    return tree


def _flattened(path: Path, tree: Mapping[str, Any]) -> Config:
    config = Config(str(path))
    raw = dict(_leaves(tree, ""))
    for key, value in raw.items():
        resolved = _followed(value, raw)
        if key.rpartition(".")[2] == "_target_" or (isinstance(resolved, str) and "${" in resolved):
            config.unresolved[key] = str(value)
        else:
            config.flat[key] = resolved
    return config


def _leaves(tree: Mapping[str, Any], under: str) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{under}{key}.")
        else:
            yield f"{under}{key}", value


def _followed(value: Any, raw: Mapping[str, Any]) -> Any:
    """The value at the end of a chain of references, or the last one that points nowhere."""
    for _ in range(MOST_REFERENCES):
        match = _WHOLE.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None or match[1].replace("/", ".") not in raw:
            return value
        value = raw[match[1].replace("/", ".")]
    return value
