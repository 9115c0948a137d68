"""The list of policies as tables on a screen, as lines in a pipe, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from io import StringIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from rlsim.frameworks.catalogue import (
    ParameterText,
    PartText,
    PresetText,
    choice_texts,
    part_texts,
    preset_texts,
    shown_part,
)

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
    """All of it, or what was found, for machines."""
    if entries is not None:
        return json.dumps([asdict(entry) for entry in entries], indent=1) + "\n"
    whole = {
        "choices": choice_texts(),
        "parts": [asdict(part) for part in part_texts()],
        "presets": [asdict(preset) for preset in preset_texts()],
    }
    return json.dumps(whole, indent=1) + "\n"


def shown_in_full(entries: Iterable[PresetText | PartText]) -> str:
    """Presets and parts with everything that is known of them."""
    return "\n".join(_preset_text(entry) if isinstance(entry, PresetText) else _part_text(entry) for entry in entries)


def _preset_text(preset: PresetText) -> str:
    facts = [("bound", preset.bound), ("version", preset.version), ("source", preset.source)]
    facts += [("needs, for example", f"{key}: {json.dumps(value)}") for key, value in preset.needs.items()]
    composition = [(choice, shown_part(spec)) for choice, spec in preset.parts.items()]
    return "\n".join(
        [
            f"{preset.name}: {preset.summary}\n",
            *(f"{name}: {text}" for name, text in facts if text),
            "",
            _parameters(preset.parameters),
            _table("Composition, defaults filled in", ("choice", "part"), composition),
            f"Admission, {preset.parts['admission']['use']}:\n\n{preset.admission}\n",
        ]
    )


def _part_text(part: PartText) -> str:
    return f"{part.name} ({part.choice})\n\n{part.doc}\n\n{_parameters(part.parameters)}"


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
    screen = Console()
    return _rich(title, head, rows, screen) if screen.is_terminal else _plain(title, head, rows)


def _rich(title: str, head: Sequence[str], rows: Rows, screen: Console) -> str:
    table = Table(title=title, title_justify="left", title_style="bold", header_style="", box=SIMPLE_HEAD)
    for column, name in enumerate(head):
        table.add_column(name, no_wrap=column == 0, overflow="fold")
    for row in rows:
        table.add_row(*row)
    out = StringIO()
    Console(file=out, width=screen.width, highlight=False, markup=False, force_terminal=True).print(table)
    return out.getvalue()


def _plain(title: str, head: Sequence[str], rows: Rows) -> str:
    """A line a row, in columns, whatever their length: for pipes."""
    lines = [tuple(head), *(tuple(row) for row in rows)]
    widths = [max(len(row[column]) for row in lines) for column in range(len(head) - 1)]
    return "\n".join([title, *(_columns(row, widths) for row in lines), ""])


def _columns(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
    return "  ".join(["", *cells, row[-1]]).rstrip()
