"""Named compositions that reproduce a framework's mode, with the framework's own parameter names.

A preset is a YAML file beside this module: ``summary``, ``source``, ``bound`` (what its staleness bound counts),
``version`` (the release or commit that was read; may be left out), ``needs`` (key paths of the scenario with values at
which it works, where not any value will do; may be left out), ``parameters`` with defaults, and ``parts``. In a part's
values ``$name`` stands for a parameter, and ``{when: $flag, then: x, else: y}`` or ``{case: $name, of: {a: x, b: y}}``
chooses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from rlsim.core.errors import ParameterError, unknown


@dataclass(frozen=True)
class Parameter:
    """One of a framework's settings."""

    default: object
    help: str


@dataclass(frozen=True)
class Preset:
    """A saved composition."""

    name: str
    summary: str
    source: str
    bound: str
    parameters: dict[str, Parameter]
    parts: dict[str, Any]
    version: str = ""
    """Release or commit of the framework that was read."""
    needs: dict[str, Any] = field(default_factory=dict)
    """Examples, by key path, of what a scenario must say for it; on as few GPUs as it works with."""

    def filled(self, settings: Mapping[str, object], path: str) -> dict[str, dict[str, Any]]:
        """Part specifications by choice, with the user's parameters in place."""
        for name in settings:
            if name not in self.parameters:
                raise unknown(f"{path}.{name}", name, self.parameters)
        values = {name: settings.get(name, parameter.default) for name, parameter in self.parameters.items()}
        return {choice: _filled(spec, values) for choice, spec in self.parts.items()}

    def key(self, choice: str, field: str) -> str:
        """Under ``policy``, the parameter that sets a part's field, or the place where the part itself is named."""
        value = self.parts[choice].get(field)
        return value[1:] if isinstance(value, str) and value.startswith("$") else f"parts.{choice}.{field}"


@cache
def preset_names() -> tuple[str, ...]:
    """All presets, sorted."""
    files = resources.files(__name__).iterdir()
    return tuple(sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml")))


def load_preset(name: str, path: str = "policy.preset") -> Preset:
    """The preset of that name; an unknown one is refused with the nearest spelling."""
    if name not in preset_names():
        raise unknown(path, name, preset_names())
    return _read(name)


@cache
def _read(name: str) -> Preset:
    from ruamel.yaml import YAML

    text = (resources.files(__name__) / f"{name}.yaml").read_text(encoding="utf-8")
    data = YAML(typ="safe", pure=True).load(text)
    parameters = {key: Parameter(entry["default"], entry["help"]) for key, entry in data["parameters"].items()}
    return Preset(
        name=name,
        summary=str(data["summary"]),
        source=str(data["source"]),
        bound=str(data["bound"]),
        parameters=parameters,
        parts=data["parts"],
        version=str(data.get("version", "")),
        needs=data.get("needs", {}),
    )


def _filled(value: Any, values: Mapping[str, object]) -> Any:
    if isinstance(value, str) and value.startswith("$"):
        return values[value[1:]]
    if isinstance(value, dict) and "when" in value:
        return _filled(value["then"] if _flag(value["when"], values) else value["else"], values)
    if isinstance(value, dict) and "case" in value:
        return _filled(_case(value["case"], value["of"], values), values)
    if isinstance(value, dict):
        return {key: _filled(entry, values) for key, entry in value.items()}
    return value


def _flag(name: str, values: Mapping[str, object]) -> bool:
    flag = values[name[1:]]
    if not isinstance(flag, bool):
        raise ParameterError(f"policy.{name[1:]}", flag, "true or false")
    return flag


def _case(name: str, cases: Mapping[str, object], values: Mapping[str, object]) -> object:
    setting = values[name[1:]]
    if setting not in cases:
        raise ParameterError(f"policy.{name[1:]}", setting, ", ".join(cases))
    return cases[str(setting)]
