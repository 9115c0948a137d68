"""A scenario's policy, split and bounds as the keys of a framework, and what it has no key for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlsim.core.errors import ParameterError
from rlsim.frameworks.importing import nested
from rlsim.frameworks.mapping import NO_DEFAULT, PROGRAM, Backend, Framework, Mode, Row, written
from rlsim.frameworks.registry import framework
from rlsim.presets import load_preset, preset_names

if TYPE_CHECKING:
    from rlsim.scenario.schema import Scenario

_OWN = ("name", "description", "seed", "run", "published", "sensitivity", "headline", "policy.preset")
"""What a simulation has and a training run has not, and what the modes say."""
_DERIVED = "cluster.gpus"


@dataclass(frozen=True, slots=True)
class Exported:
    """A configuration of a framework."""

    framework: str
    preset: str
    flat: dict[str, Any]
    text: str
    unmapped: tuple[str, ...]
    """Keys that the scenario sets and the framework has no key for."""

    def report(self) -> Iterator[str]:
        """What was written and what was not."""
        yield f"{self.framework}: {len(self.flat)} keys for preset {self.preset}"
        for path in self.unmapped:
            yield f"no key for: {path}"


def export_config(scenario: Scenario, name: str) -> Exported:
    """Write ``scenario`` as a configuration of the framework ``name``.

    Raises ParameterError for an unknown framework, a policy that it cannot express, and sizes that it cannot have.
    """
    target = framework(name, "--to")
    mode = _mode(target, scenario)
    values = scenario_values(scenario)
    backends = backends_for(target, values)
    flat = written((*mode.marks, *(mark for backend in backends for mark in backend.marks)))
    if mode.program:
        flat[PROGRAM] = mode.program
    rows = [row for row in target.rows_of(mode, backends) if not row.legacy]
    for row in rows:
        _write(row, values, flat)
    mapped = {path for row in rows for path in row.paths}
    unmapped = tuple(path for path in set_paths(scenario) if path not in mapped and not _own(path, scenario))
    return Exported(target.name, mode.preset, flat, _text(target, flat), unmapped)


def _mode(target: Framework, scenario: Scenario) -> Mode:
    policy = scenario.policy
    mode = target.mode(policy.preset or "")
    allowed = ", ".join(name for name in target.presets() if name in preset_names())
    if mode is None:
        raise ParameterError("policy.preset", policy.preset, f"{allowed}: what {target.name} can express")
    if policy.parts:
        reason = f"nothing beside the preset: {target.name} has no keys for parts"
        raise ParameterError("policy.parts", ", ".join(policy.parts), reason)
    return mode


def backends_for(target: Framework, values: Mapping[str, Any]) -> tuple[Backend, ...]:
    """The first backend of each kind that has a key for all that the scenario sets, else the first."""
    return tuple(
        next((one for one in kind if not _lost(one, kind, values)), kind[0])
        for kind in (target.trainers, target.engines)
        if kind
    )


def _lost(backend: Backend, kind: tuple[Backend, ...], values: Mapping[str, Any]) -> bool:
    """Whether another backend of the kind has a key for what is set and this one has none."""
    own = {path for row in backend.rows if not row.legacy for path in row.paths}
    others = {path for one in kind for row in one.rows for path in row.paths}
    return any(values.get(path) not in (None, False, 1) for path in others - own)


def scenario_values(scenario: Scenario) -> dict[str, Any]:
    """Every value of a scenario by dotted key: policy parameters with their defaults, and caps of all length laws."""
    from rlsim.resolve.scenario import make_workload

    preset = load_preset(scenario.policy.preset or "")
    values = dict(_leaves(scenario.model_dump(mode="json"), ""))
    for name, parameter in preset.parameters.items():
        values[f"policy.{name}"] = scenario.policy.fields.get(name, parameter.default)
    workload = make_workload(scenario)
    values["workload.prompt_tokens.cap_tokens"] = workload.prompt_length.cap_tokens
    values["workload.response_tokens.cap_tokens"] = workload.response_length.cap_tokens
    return values


def _leaves(tree: Mapping[str, Any], under: str) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{under}{key}.")
        else:
            yield f"{under}{key}", value


def _write(row: Row, values: Mapping[str, Any], flat: dict[str, Any]) -> None:
    values_of_row = [values.get(path) for path in row.paths]
    try:
        written = row.codec.write(*values_of_row)
    except ValueError as error:
        pairs = zip(row.paths, values_of_row, strict=True)
        shown = values_of_row[0] if len(values_of_row) == 1 else ", ".join(f"{path} = {value}" for path, value in pairs)
        raise ParameterError(", ".join(row.paths), shown, str(error)) from None
    for key, value in zip(row.keys, written, strict=True):
        if key.name in flat and flat[key.name] != value:
            raise ParameterError(", ".join(row.paths), values_of_row, f"what makes {key.name} {flat[key.name]!r}")
        if value is not None or key.default not in (None, NO_DEFAULT):
            flat[key.name] = value


def set_paths(scenario: Scenario) -> list[str]:
    """Dotted keys of everything that the scenario sets itself, in the order of the schema."""
    return [path for path, _ in _leaves(scenario.model_dump(mode="json", exclude_unset=True), "")]


def _own(path: str, scenario: Scenario) -> bool:
    if path == _DERIVED:
        split = (scenario.trainer.gpus, scenario.rollout.gpus)
        return scenario.cluster.gpus in (max(split), sum(split))
    return path.startswith(_OWN)


def _text(target: Framework, flat: Mapping[str, Any]) -> str:
    from rlsim.frameworks import writing

    if target.format == "yaml":
        return writing.yaml_text(nested(dict(flat)))
    if target.format == "toml":
        return writing.toml_text(nested(dict(flat)))
    return writing.command_text(target, flat)
