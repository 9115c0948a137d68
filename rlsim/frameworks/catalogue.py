"""What policies there are: choices, parts and presets, described by their own docstrings and files."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, fields
from itertools import pairwise
from typing import Any

from rlsim.core.errors import unknown
from rlsim.policies import protocols
from rlsim.policies.protocols import DEFAULTS
from rlsim.policies.registry import CHOICES, Part
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
    return {choice: _first(inspect.getdoc(getattr(protocols, choice.capitalize()))) for choice in CHOICES}


def part_texts() -> list[PartText]:
    """Every registered part, by choice."""
    return [_part(choice, name, cls) for choice, found in CHOICES.items() for name, cls in found.items()]


def preset_texts() -> list[PresetText]:
    """Every preset, by name."""
    return [_preset(load_preset(name)) for name in preset_names()]


def described(name: str) -> list[PresetText | PartText]:
    """The preset or the parts of that name, or all parts of a choice; an unknown name is refused."""
    presets, parts = preset_texts(), part_texts()
    found: list[PresetText | PartText] = [preset for preset in presets if preset.name == name]
    found += [part for part in parts if name in (part.name, part.choice)]
    if not found:
        names = {*CHOICES, *(preset.name for preset in presets), *(part.name for part in parts)}
        raise unknown("policies show", name, names)
    return found


def shown(value: object) -> str:
    """A value as YAML would have it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def shown_part(spec: dict[str, Any]) -> str:
    """A part specification in one line: its name and what is set."""
    given = ", ".join(f"{key}: {shown(value)}" for key, value in spec.items() if key != "use")
    return f"{spec['use']} ({given})" if given else str(spec["use"])


def _preset(preset: Preset) -> PresetText:
    parts = preset.filled({}, "policy")
    parts |= {choice: {"use": use} for choice, use in DEFAULTS.items() if choice not in parts}
    parameters = tuple(
        ParameterText(
            name, type(found.default).__name__ if found.default is not None else "", shown(found.default), found.help
        )
        for name, found in preset.parameters.items()
    )
    admission = inspect.getdoc(CHOICES["admission"][parts["admission"]["use"]]) or ""
    return PresetText(
        preset.name,
        preset.summary,
        preset.version,
        preset.source,
        preset.bound,
        parameters,
        parts,
        preset.needs,
        admission,
    )


def _part(choice: str, name: str, cls: type[Part]) -> PartText:
    doc = inspect.getdoc(cls) or ""
    helps = _field_docs(cls)
    parameters = tuple(
        ParameterText(field.name, str(field.type), _default(field), helps.get(field.name, ""))
        for field in fields(cls)  # type: ignore[arg-type]
    )
    return PartText(choice, name, _first(doc), doc, parameters)


def _default(field: Field[Any]) -> str:
    if field.default is not MISSING:
        return shown(field.default)
    return "required" if field.default_factory is MISSING else shown(field.default_factory())


def _first(doc: str | None) -> str:
    """The first paragraph, in one line."""
    return " ".join((doc or "").split("\n\n")[0].split())


def _field_docs(cls: type) -> dict[str, str]:
    """The string below each field, its own or inherited, which Python itself forgets."""
    found: dict[str, str] = {}
    for owner in reversed(cls.__mro__[:-1]):
        tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
        found |= _docs_below(tree.body[0])
    return found


def _docs_below(node: ast.stmt) -> Iterator[tuple[str, str]]:
    body = node.body if isinstance(node, ast.ClassDef) else []
    for field, below in pairwise(body):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
            yield field.target.id, " ".join(below.value.value.split())
