"""A framework's configuration as a scenario."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlsim.core.errors import ParameterError, ScenarioError
from rlsim.frameworks.assumptions import DEVICES, PARAMETER_BYTES, assume
from rlsim.frameworks.files import Config
from rlsim.frameworks.imported import Imported, Read
from rlsim.frameworks.mapping import NO_DEFAULT, OUTSIDE, Backend, Framework, Mode, Partial, Row, written
from rlsim.frameworks.reading import read_for
from rlsim.frameworks.registry import framework
from rlsim.frameworks.values import why_not
from rlsim.presets import preset_names

if TYPE_CHECKING:
    from rlsim.scenario.schema import Scenario


MEMORY = "rollout.gpu_memory_utilization"
"""Key of the refusal of a model that does not fit."""


def import_config(path: Path, name: str, preset: str | None = None) -> Imported:
    """Read the file ``path`` of the framework ``name``; ``preset`` says its mode where the file does not.

    What cannot be read is a line of ``faults``, and the rest is used. Raises ParameterError for an unknown framework
    and a format that is not read, ScenarioError for a file of which nothing can be used.
    """
    source = framework(name, "--from")
    config = read_for(source, path)
    mode = _mode(source, config, preset)
    backends = source.active(config.flat)
    rows = source.rows_of(mode, backends)
    imported = Imported(source.name, mode.preset, tuple(one.name for one in backends))
    imported.faults, imported.notes = list(config.faults), [*config.notes, *mode.notes]
    _name_models(rows, config)
    flat: dict[str, Any] = {"name": path.stem, "policy.preset": mode.preset}
    for row in sorted(rows, key=lambda row: (not _is_written(row, config), row.legacy)):
        _apply(row, config, flat, imported)
    known = {key.name for row in rows for key in row.keys} | written(mode.marks).keys()
    if not any(key in config.flat and not key.startswith(OUTSIDE) for key in known):
        file_keys = ", ".join(sorted(key for key in config.flat if not key.startswith(OUTSIDE))[:5]) or "no keys"
        allowed = f"a configuration of {source.name} with {source.rows[0].keys[0].name} and its other keys"
        raise ScenarioError([*config.faults, f"{config.file}: found {file_keys}; allowed: {allowed}"])
    _leave_aside(source, mode, backends, config, imported)
    _complete(flat, mode, rows, config, imported)
    return imported


def _complete(flat: dict[str, Any], mode: Mode, rows: tuple[Row, ...], config: Config, imported: Imported) -> None:
    """Fill in what the file does not say, on the smallest device that holds the model where no key names one."""
    first: Imported | None = None
    for bytes_per_parameter, device in product(PARAMETER_BYTES, DEVICES):
        whole = dict(flat)
        imported.assumed = assume(whole, mode.shares_gpus, device, bytes_per_parameter)
        imported.tree = nested({path: whole[path] for path in sorted(whole, key=_place)})
        imported.refused = list(_refusals(imported.tree, rows, config))
        if not any(fault.startswith(MEMORY) for fault in imported.refused):
            return
        first = first or replace(imported)
    assert first is not None
    imported.assumed, imported.tree, imported.refused = first.assumed, first.tree, first.refused


def _mode(source: Framework, config: Config, preset: str | None) -> Mode:
    mode = source.recognised(config.flat) if preset is None else source.mode(preset)
    if mode is None or mode.preset not in preset_names():
        allowed = ", ".join(name for name in source.presets() if name in preset_names())
        what = preset or (mode.preset if mode else None)
        raise ParameterError("--preset", what, f"{allowed}: the modes of {source.name} that are known")
    return mode


def _name_models(rows: tuple[Row, ...], config: Config) -> None:
    """Take the last component of a model's path whose folder only the environment knows."""
    for key in (key.name for row in rows if row.paths == ("model",) for key in row.keys):
        name = config.unresolved.get(key, "").rstrip("/").rpartition("/")[2]
        if name and not set("$`{}()") & set(name):
            config.flat[key] = name
            del config.unresolved[key]


def _is_written(row: Row, config: Config) -> bool:
    return any(key.name in config.flat for key in row.keys)


def _apply(row: Row, config: Config, flat: dict[str, Any], imported: Imported) -> None:
    """Put what the row says into the scenario, if the file and the defaults say enough."""
    names = tuple(key.name for key in row.keys)
    absent = tuple(key.name for key in row.keys if key.name not in config.flat)
    needed = [key.name for key in row.keys if key.name in absent and key.default is NO_DEFAULT]
    if needed:
        present = [name for name in names if name not in absent]
        imported.incomplete |= {", ".join(present): ", ".join(needed)} if present and not row.legacy else {}
        return
    if (row.legacy or len(absent) == len(names)) and any(path in flat for path in row.paths):
        return
    values = _values(row, config, imported)
    known = {path: value for path, value in zip(row.paths, values, strict=True) if value is not None}
    flat.update(known)
    if known or not absent:
        imported.read.append(Read(names, row.paths, values, absent))


def _values(row: Row, config: Config, imported: Imported) -> tuple[Any, ...]:
    """The values of the row's scenario keys; None, and a fault, for those that the file's values do not give."""
    file_values = {key.name: config.flat.get(key.name, key.default) for key in row.keys}
    try:
        values, fault = row.codec.read(*file_values.values()), None
    except (ValueError, TypeError, AttributeError) as error:
        values = error.values if isinstance(error, Partial) else (None,) * len(row.paths)
        fault = str(error) if isinstance(error, ValueError) else f"values of which it can be told: {row.codec.words}"
    refusals = tuple(value is not None and why_not(path, value) for path, value in zip(row.paths, values, strict=True))
    fault = fault or next((f"for {path}: {why}" for path, why in zip(row.paths, refusals, strict=True) if why), None)
    if fault:
        place = next((config.where[name] for name in file_values if name in config.where), config.file)
        shown_keys = ", ".join(f"{name} = {value!r}" for name, value in file_values.items())
        imported.faults.append(f"{place}: {shown_keys}; allowed: {fault}")
    return tuple(None if why else value for value, why in zip(values, refusals, strict=True))


def _leave_aside(
    source: Framework, mode: Mode, backends: tuple[Backend, ...], config: Config, imported: Imported
) -> None:
    """Sort the keys that no row of the active mode and backends reads."""
    mapped = {key.name for row in source.rows_of(mode, backends) for key in row.keys}
    marks = (*mode.marks, *(mark for backend in (*source.trainers, *source.engines) for mark in backend.marks))
    used = {key for one in imported.read for key in one.keys} | {getattr(mark, "key", "") for mark in marks}
    used |= written(marks).keys()
    known = {one.key: one for one in source.unmodelled}
    for key in sorted(config.flat.keys() | config.unresolved.keys()):
        idle = next((one.name for one in source.inactive(backends) if one.reads(key)), None)
        if key in used or key.startswith(OUTSIDE) or (key in mapped and key in config.unresolved):
            continue
        if key in known:
            value = config.flat.get(key, config.unresolved.get(key))
            imported.unmodelled += [f"{key} = {value}: {known[key].words}"] if value not in known[key].off else []
        elif idle is not None and key not in mapped:
            imported.inactive.setdefault(idle, []).append(key)
        else:
            imported.ignored.append(key)
    imported.unresolved = {key: text for key, text in config.unresolved.items() if key in mapped}


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


def _refusals(tree: dict[str, Any], rows: tuple[Row, ...], config: Config) -> Iterator[str]:
    """What the schema or the builder have against the scenario, a line each."""
    from pydantic import ValidationError

    from rlsim.resolve import ResolveError, resolve
    from rlsim.scenario.schema import Scenario

    try:
        scenario: Scenario = Scenario.model_validate(tree)
        resolve(scenario)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            yield _told(dict(detail), rows, config)
    except ResolveError as error:
        yield from (str(fault) for fault in error.errors)
    except (ParameterError, ScenarioError) as error:
        yield str(error)


def _told(detail: dict[str, Any], rows: tuple[Row, ...], config: Config) -> str:
    cause = detail.get("ctx", {}).get("error")
    under = ".".join(str(key) for key in detail["loc"])
    if detail["type"] == "missing":
        return f"{under}: missing: {_source(under, rows, config)}"
    if cause is not None and hasattr(cause, "errors"):
        return "; ".join(f"{under}.{fault}".removeprefix(".") for fault in cause.errors)
    input_text = "a mapping" if isinstance(detail["input"], dict) else repr(detail["input"])[:80]
    return f"{under}: found {input_text}; {detail['msg']}"


def _source(path: str, rows: tuple[Row, ...], config: Config) -> str:
    """Why the file does not give the scenario key ``path``."""
    keys = (key.name for row in rows if path in row.paths for key in row.keys)
    names = [name for name in keys if not name.startswith(OUTSIDE)]
    for name in names:
        if config.unset.get(name):
            unset = ", ".join(f"${variable}" for variable in config.unset[name])
            return f"{config.where.get(name, config.file)}: {name}: {unset} is not set in the file"
        if name in config.unresolved:
            return f"{config.where.get(name, config.file)}: {name} = {config.unresolved[name]} is not worked out"
    return f"{config.file} has no {' or '.join(names)}" if names else f"no key of {config.file} says it"
