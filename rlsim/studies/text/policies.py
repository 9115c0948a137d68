"""The list of policies as tables on a screen, as lines in a pipe, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from rich.console import Console

from rlsim.frameworks.catalogue import (
    ParameterText,
    PartText,
    PresetText,
    choice_texts,
    part_texts,
    preset_texts,
    shown_part,
)
from rlsim.studies.output import json_text
from rlsim.studies.text.table import new_table, rendered

Rows = Sequence[Sequence[str]]


def listing() -> str:
    """Choices, parts and presets, a line each."""
    parts = [(part.choice, part.name, parameter_defaults(part.parameters), part.summary) for part in part_texts()]
    presets = [(preset.name, parameter_defaults(preset.parameters), preset.summary) for preset in preset_texts()]
    return "\n".join(
        [
            _table("Choices", ("choice", "question"), list(choice_texts().items())),
            _table("Parts", ("choice", "part", "parameters", "what it does"), parts),
            _table("Presets", ("preset", "parameters", "what it does"), presets),
        ]
    )


def as_json(entries: Iterable[PresetText | PartText] | None = None) -> str:
    """All of it, or some entries, for machines."""
    if entries is not None:
        return json_text([asdict(entry) for entry in entries])
    parts, presets = map(asdict, part_texts()), map(asdict, preset_texts())
    return json_text({"choices": choice_texts(), "parts": list(parts), "presets": list(presets)})


def shown_in_full(entries: Iterable[PresetText | PartText]) -> str:
    """Presets and parts with everything that is known of them."""
    texts = []
    for entry in entries:
        if isinstance(entry, PresetText):
            facts = [("bound", entry.bound), ("version", entry.version), ("source", entry.source)]
            facts += [("needs, for example", f"{key}: {json.dumps(value)}") for key, value in entry.needs.items()]
            composition = [(choice, shown_part(spec)) for choice, spec in entry.parts.items()]
            texts.append(
                "\n".join(
                    [
                        f"{entry.name}: {entry.summary}\n",
                        *(f"{name}: {text}" for name, text in facts if text),
                        "",
                        _parameters(entry.parameters),
                        _table("Composition, defaults filled in", ("choice", "part"), composition),
                        f"Admission, {entry.parts['admission']['use']}:\n\n{entry.admission}\n",
                    ]
                )
            )
        else:
            texts.append(f"{entry.name} ({entry.choice})\n\n{entry.doc}\n\n{_parameters(entry.parameters)}")
    return "\n".join(texts)


def _parameters(parameters: tuple[ParameterText, ...]) -> str:
    if not parameters:
        return "No parameters.\n"
    rows = [(parameter.name, parameter.kind, parameter.default, parameter.help) for parameter in parameters]
    return _table("Parameters", ("parameter", "type", "default", "meaning"), rows)


def parameter_defaults(parameters: tuple[ParameterText, ...], quote: str = "") -> str:
    """``name=default`` of every parameter, only the name of a required one, comma-separated."""
    texts = (
        parameter.name if parameter.default == "required" else f"{parameter.name}={parameter.default}"
        for parameter in parameters
    )
    return ", ".join(f"{quote}{text}{quote}" for text in texts)


def _table(title: str, head: Sequence[str], rows: Rows) -> str:
    """A table on a screen; a line a row, in columns, whatever their length, for pipes."""
    if Console().is_terminal:
        look = new_table(title, head, rows, texts=len(head), folds=True, edges=True, collapses=False)
        return rendered([look]).removesuffix("\n")
    lines = [tuple(head), *(tuple(row) for row in rows)]
    widths = [max(len(row[column]) for row in lines) for column in range(len(head) - 1)]
    texts = []
    for row in lines:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        texts.append("  ".join(["", *cells, row[-1]]).rstrip())
    return "\n".join([title, *texts, ""])
