"""What policies there are: choices, parts and presets, described by their own docstrings and files."""

from __future__ import annotations

import ast
import inspect
import textwrap
from dataclasses import MISSING, dataclass, fields
from itertools import pairwise
from typing import Any

from rlsim.core.errors import unknown
from rlsim.policies.protocols import DEFAULTS, PROTOCOLS
from rlsim.policies.registry import CHOICES, Part, parts_of
from rlsim.presets import Preset, load_preset, preset_names


@dataclass(frozen=True, slots=True)
class ParameterText:
    """One parameter, in words."""

    name: str
    kind: str
    default: str
    help: str


@dataclass(frozen=True, slots=True)
class PartText:
    """One registered part, in words."""

    choice: str
    name: str
    summary: str
    doc: str
    parameters: tuple[ParameterText, ...]


@dataclass(frozen=True, slots=True)
class PresetText:
    """One preset, in words; ``parts`` are its part specifications with the defaults filled in."""

    name: str
    summary: str
    version: str
    source: str
    bound: str
    parameters: tuple[ParameterText, ...]
    parts: dict[str, dict[str, Any]]
    needs: dict[str, Any]
    """Of the rollout section, as an example; empty where any will do."""
    admission: str
    """What the admission part says of itself."""


def choice_texts() -> dict[str, str]:
    """The question that each choice answers, by its name."""
    return {choice: _first(inspect.getdoc(protocol)) for choice, protocol in PROTOCOLS.items()}


def part_texts() -> list[PartText]:
    """Every registered part, by choice."""
    return [_part(choice, name, cls) for choice in CHOICES for name, cls in parts_of(choice).items()]


def preset_texts() -> list[PresetText]:
    """Every preset, by name."""
    return [_preset(load_preset(name)) for name in preset_names()]


def described(name: str) -> list[PresetText | PartText]:
    """The preset or the parts of that name, or all parts of a choice; an unknown name is refused."""
    presets, parts = preset_texts(), part_texts()
    matches: list[PresetText | PartText] = [preset for preset in presets if preset.name == name]
    matches += [part for part in parts if name in (part.name, part.choice)]
    if not matches:
        names = {*CHOICES, *(preset.name for preset in presets), *(part.name for part in parts)}
        raise unknown("policies show", name, names)
    return matches


def shown(value: object) -> str:
    """A value as YAML would have it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def shown_part(spec: dict[str, Any]) -> str:
    """A part specification in one line: its name and what is set."""
    settings = ", ".join(f"{key}: {shown(value)}" for key, value in spec.items() if key != "use")
    return f"{spec['use']} ({settings})" if settings else str(spec["use"])


def _preset(preset: Preset) -> PresetText:
    parts = preset.filled({}, "policy")
    parts |= {choice: {"use": use} for choice, use in DEFAULTS.items() if choice not in parts}
    parameters = tuple(
        ParameterText(
            name,
            type(parameter.default).__name__ if parameter.default is not None else "",
            shown(parameter.default),
            parameter.help,
        )
        for name, parameter in preset.parameters.items()
    )
    admission = inspect.getdoc(parts_of("admission")[parts["admission"]["use"]]) or ""
    return PresetText(
        name=preset.name,
        summary=preset.summary,
        version=preset.version,
        source=preset.source,
        bound=preset.bound,
        parameters=parameters,
        parts=parts,
        needs=preset.needs,
        admission=admission,
    )


def _part(choice: str, name: str, cls: type[Part]) -> PartText:
    doc = inspect.getdoc(cls) or ""
    helps = _field_docs(cls)
    parameters: list[ParameterText] = []
    for field in fields(cls):  # type: ignore[arg-type]
        default = shown(field.default)
        if field.default is MISSING:
            default = "required" if field.default_factory is MISSING else shown(field.default_factory())
        parameters.append(ParameterText(field.name, str(field.type), default, helps.get(field.name, "")))
    return PartText(choice, name, _first(doc), doc, tuple(parameters))


def _first(doc: str | None) -> str:
    """The first paragraph, in one line."""
    return " ".join((doc or "").split("\n\n")[0].split())


def _field_docs(cls: type) -> dict[str, str]:
    """The string below each field, its own or inherited, which Python itself forgets."""
    docs: dict[str, str] = {}
    for owner in reversed(cls.__mro__[:-1]):
        definition = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
        body = definition.body if isinstance(definition, ast.ClassDef) else []
        for field, below in pairwise(body):
            match field, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    docs[name] = " ".join(text.split())
    return docs
