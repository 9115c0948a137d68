"""A framework's configuration as a scenario, and what was read, assumed and left aside on the way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlsim.core.errors import ParameterError, ScenarioError
from rlsim.frameworks.assumptions import Assumed, assume
from rlsim.frameworks.files import Config, read_config
from rlsim.frameworks.mapping import NO_DEFAULT, PROGRAM, Framework, Mode, Row
from rlsim.frameworks.registry import framework
from rlsim.presets import preset_names

if TYPE_CHECKING:
    from rlsim.scenario.schema import Scenario

WIDTH = 118


@dataclass(frozen=True, slots=True)
class Read:
    """Scenario keys that framework keys gave."""

    keys: tuple[str, ...]
    paths: tuple[str, ...]
    values: tuple[Any, ...]
    defaults: tuple[str, ...] = ()
    """Of the keys, those that the file leaves to the framework."""


@dataclass(slots=True)
class Imported:
    """A scenario and where it comes from."""

    framework: str
    preset: str
    tree: dict[str, Any] = field(default_factory=dict)
    """The scenario as nested mappings."""
    read: list[Read] = field(default_factory=list)
    assumed: list[Assumed] = field(default_factory=list)
    incomplete: dict[str, str] = field(default_factory=dict)
    """Keys that say nothing without others, and those others."""
    ignored: list[str] = field(default_factory=list)
    unresolved: dict[str, str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    """Why the scenario cannot run as it stands, a line each."""

    def report(self) -> Iterator[str]:
        """What was used, left to the framework's defaults, assumed, not understood and ignored."""
        yield f"{self.framework}: read as preset {self.preset}"
        for one in self.read:
            if set(one.keys) != set(one.defaults):
                yield f"used: {', '.join(one.keys)} -> {_settings(one)}{_left_open(one)}"
        for one in self.read:
            if set(one.keys) == set(one.defaults):
                yield f"default of {self.framework}: {', '.join(one.keys)} -> {_settings(one)}"
        for guess in self.assumed:
            yield f"ASSUMED: {guess.path} = {guess.value} ({guess.reason})"
        for keys, others in self.incomplete.items():
            yield f"says nothing alone: {keys} needs {others}"
        for key, text in self.unresolved.items():
            yield f"not worked out: {key} = {text}"
        if self.ignored:
            yield f"ignored, {len(self.ignored)} keys: {', '.join(self.ignored)}"
        for fault in self.refused:
            yield f"refused as it stands: {fault}"


def _settings(one: Read) -> str:
    return ", ".join(f"{path} = {value}" for path, value in zip(one.paths, one.values, strict=True))


def _left_open(one: Read) -> str:
    return f" ({', '.join(one.defaults)}: the default)" if one.defaults else ""


def import_config(path: Path, name: str, preset: str | None = None) -> Imported:
    """Read the file ``path`` of the framework ``name``; ``preset`` says its mode where the file does not.

    Raises ParameterError for an unknown framework, a format that is not read, and keys that contradict one another.
    """
    source, config = framework(name, "--from"), read_config(path)
    mode = _mode(source, config, preset)
    imported = Imported(source.name, mode.preset)
    flat: dict[str, Any] = {"name": path.stem, "policy.preset": mode.preset}
    for row in sorted(source.rows_of(mode), key=lambda row: (not _written(row, config), row.legacy)):
        _apply(row, config, flat, imported)
    mapped = {key.name for row in source.rows_of(mode) for key in row.keys}
    used = {key for one in imported.read for key in one.keys} | {mark.key for mark in mode.marks}
    imported.ignored = sorted(
        key for key in config.flat.keys() | config.unresolved.keys() if key not in {*used, PROGRAM}
    )
    imported.unresolved = {key: text for key, text in config.unresolved.items() if key in mapped}
    imported.assumed = assume(flat, mode.shares_gpus)
    imported.tree = nested({path: flat[path] for path in sorted(flat, key=_place)})
    imported.refused = _refusals(imported.tree)
    return imported


def _mode(source: Framework, config: Config, preset: str | None) -> Mode:
    mode = source.recognised(config.flat) if preset is None else source.mode(preset)
    if mode is None or mode.preset not in preset_names():
        allowed = ", ".join(name for name in source.presets() if name in preset_names())
        what = preset or (mode.preset if mode else None)
        raise ParameterError("--preset", what, f"{allowed}: the modes of {source.name} that are known")
    return mode


def _written(row: Row, config: Config) -> bool:
    return any(key.name in config.flat for key in row.keys)


def _apply(row: Row, config: Config, flat: dict[str, Any], imported: Imported) -> None:
    """Put what the row says into the scenario, if the file and the defaults say enough."""
    names = tuple(key.name for key in row.keys)
    absent = tuple(key.name for key in row.keys if key.name not in config.flat)
    needed = [key.name for key in row.keys if key.name in absent and key.default is NO_DEFAULT]
    if needed:
        present = [name for name in names if name not in absent]
        imported.incomplete |= {", ".join(present): ", ".join(needed)} if present else {}
        return
    if (row.legacy or len(absent) == len(names)) and any(path in flat for path in row.paths):
        return
    written = [config.flat.get(key.name, key.default) for key in row.keys]
    try:
        values = row.codec.read(*written)
    except ValueError as error:
        raise ParameterError(
            f"{config.file}: {', '.join(names)}", written if written[1:] else written[0], str(error)
        ) from None
    flat.update({path: value for path, value in zip(row.paths, values, strict=True) if value is not None})
    imported.read.append(Read(names, row.paths, values, absent))


def _place(path: str) -> tuple[int, ...]:
    """Where a key stands in the schema."""
    from rlsim.scenario.schema import Scenario

    section, _, field = path.partition(".")
    top = list(Scenario.model_fields)
    below = getattr(Scenario.model_fields[section].annotation, "model_fields", {})
    name = field.partition(".")[0]
    return top.index(section), list(below).index(name) if name in below else len(below), field == "law"


def nested(flat: dict[str, Any]) -> dict[str, Any]:
    """Nested mappings from dotted keys."""
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        *above, last = path.split(".")
        node = tree
        for key in above:
            node = node.setdefault(key, {})
        node[last] = value
    return tree


def _refusals(tree: dict[str, Any]) -> list[str]:
    """What the schema or the builder have against the scenario."""
    from pydantic import ValidationError

    from rlsim.resolve import ResolveError, resolve
    from rlsim.scenario.schema import Scenario

    try:
        scenario: Scenario = Scenario.model_validate(tree)
        resolve(scenario)
    except ValidationError as error:
        return [_told(dict(detail)) for detail in error.errors(include_url=False)]
    except ResolveError as error:
        return [str(fault) for fault in error.errors]
    except (ParameterError, ScenarioError) as error:
        return [str(error)]
    return []


def _told(detail: dict[str, Any]) -> str:
    cause = detail.get("ctx", {}).get("error")
    under = ".".join(str(key) for key in detail["loc"])
    if cause is not None and hasattr(cause, "errors"):
        return "; ".join(f"{under}.{fault}".removeprefix(".") for fault in cause.errors)
    return f"{under}: found {detail['input']!r}; {detail['msg']}"


def scenario_yaml(imported: Imported) -> str:
    """The scenario as YAML, with a comment at everything that was assumed."""
    from io import StringIO

    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.width = 4096
    out = StringIO()
    out.write(f"# Imported from a configuration of {imported.framework}; check what is marked as assumed.\n")
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
