"""What an import read, assumed and left aside, as text: the scenario in YAML and the report beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rlsim.frameworks.assumptions import Assumed


@dataclass(frozen=True, slots=True)
class Read:
    """Scenario keys that framework keys gave."""

    keys: tuple[str, ...]
    paths: tuple[str, ...]
    values: tuple[Any, ...]
    defaults: tuple[str, ...] = ()
    """Of the keys, those that the file leaves to the framework."""

    def __str__(self) -> str:
        pairs = zip(self.paths, self.values, strict=True)
        return ", ".join(f"{path} = {value}" for path, value in pairs if value is not None)


@dataclass(slots=True)
class Imported:
    """A scenario and where it comes from."""

    framework: str
    preset: str
    backends: tuple[str, ...] = ()
    """Training and inference backends that the file runs on."""
    tree: dict[str, Any] = field(default_factory=dict)
    """The scenario as nested mappings."""
    read: list[Read] = field(default_factory=list)
    assumed: list[Assumed] = field(default_factory=list)
    incomplete: dict[str, str] = field(default_factory=dict)
    """Keys that say nothing without others, and those others."""
    faults: list[str] = field(default_factory=list)
    """What could not be read, a line each, with its place."""
    unmodelled: list[str] = field(default_factory=list)
    """What the file sets and no simulation shows, a line each."""
    notes: list[str] = field(default_factory=list)
    """What the reader took for granted, a line each."""
    ignored: list[str] = field(default_factory=list)
    inactive: dict[str, list[str]] = field(default_factory=dict)
    """Keys of backends that do not run, by backend."""
    unresolved: dict[str, str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    """Why the scenario cannot run as it stands, a line each."""

    def report(self) -> Iterator[str]:
        """The answer, then what to look at, then where each value comes from."""
        backends = f" on {', '.join(self.backends)}" if self.backends else ""
        state = "cannot run yet" if self.refused else "can be run"
        yield f"{self.framework}{backends}: read as preset {self.preset}; the scenario {state}"
        yield from (f"missing or refused: {fault}" for fault in self.refused)
        yield from (f"not read: {fault}" for fault in self.faults)
        yield from (f"not worked out: {key} = {text}" for key, text in self.unresolved.items())
        yield from (f"says nothing alone: {keys} needs {others}" for keys, others in self.incomplete.items())
        yield from (f"not simulated: {line}" for line in self.unmodelled)
        yield from (f"taken for granted: {note}" for note in self.notes)
        yield from (f"ASSUMED: {guess.path} = {guess.value} ({guess.reason})" for guess in self.assumed)
        yield from self._sources()

    def _sources(self) -> Iterator[str]:
        for one in self.read:
            if set(one.keys) != set(one.defaults):
                left = f" ({', '.join(one.defaults)}: the default)" if one.defaults else ""
                yield f"used: {', '.join(one.keys)} -> {one}{left}"
        for one in self.read:
            if set(one.keys) == set(one.defaults):
                yield f"default of {self.framework}: {', '.join(one.keys)} -> {one}"
        for backend, keys in self.inactive.items():
            yield f"of {backend}, which does not run, {len(keys)} keys: {', '.join(keys)}"
        if self.ignored:
            yield f"ignored, {len(self.ignored)} keys: {', '.join(self.ignored)}"


def scenario_yaml(imported: Imported) -> str:
    """The scenario as YAML, with a comment at everything that was assumed."""
    from io import StringIO

    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.width = 4096
    out = StringIO()
    out.write(f"# Imported from a configuration of {imported.framework}; check what is marked as assumed.\n")
    for fault in imported.refused:
        out.write(f"# Cannot run yet: {fault}\n")
    yaml.dump(_commented(imported.tree, {guess.path: guess.reason for guess in imported.assumed}, ""), out)
    return out.getvalue()


def _commented(tree: dict[str, Any], reasons: dict[str, str], under: str) -> Any:
    from ruamel.yaml.comments import CommentedMap

    node = CommentedMap()
    for key, value in tree.items():
        node[key] = _commented(value, reasons, f"{under}{key}.") if isinstance(value, dict) else value
        if f"{under}{key}" in reasons:
            node.yaml_add_eol_comment(f"assumed: {reasons[f'{under}{key}']}", key)
    return node
