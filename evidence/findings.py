"""Sections of text and tables, kept as data under ``evidence/data`` and rendered as Markdown when the site is built."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with text and at most one table; without a title it continues the section before it."""

    title: str = ""
    text: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


def load(name: str) -> list[Section]:
    """The sections of ``evidence/data/NAME.yaml``."""
    from ruamel.yaml import YAML

    sections: list[dict[str, Any]] = YAML(typ="safe").load((DATA / f"{name}.yaml").read_text(encoding="utf-8"))
    return [
        Section(
            one.get("title", ""),
            one.get("text", ""),
            tuple(one.get("columns", ())),
            tuple(map(tuple, one.get("rows", ()))),
        )
        for one in sections
    ]


def save(name: str, sections: Sequence[Section]) -> None:
    """Write ``evidence/data/NAME.yaml``, texts as blocks and one row a line."""
    from ruamel.yaml import YAML
    from ruamel.yaml.comments import CommentedSeq
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString

    def flow(cells: Sequence[str]) -> CommentedSeq:
        row = CommentedSeq([DoubleQuotedScalarString(cell) for cell in cells])
        row.fa.set_flow_style()
        return row

    entries = []
    for section in sections:
        entry: dict[str, Any] = {"title": section.title} if section.title else {}
        if section.text:
            entry["text"] = LiteralScalarString(section.text)
        if section.columns:
            entry |= {"columns": flow(section.columns), "rows": [flow(row) for row in section.rows]}
        entries.append(entry)
    writer = YAML()
    writer.width = 4096
    with (DATA / f"{name}.yaml").open("w", encoding="utf-8") as file:
        writer.dump(entries, file)


def markdown(sections: Sequence[Section]) -> str:
    """The sections under headings of the second level."""
    return "\n".join(line for section in sections for line in _lines(section))


def _lines(section: Section) -> Iterator[str]:
    if section.title:
        yield f"## {section.title}\n"
    if section.text:
        yield f"{section.text.strip(chr(10))}\n"
    if section.columns:
        yield from table(section.columns, section.rows)
        yield ""


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of a Markdown table."""
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', '/') for cell in row)} |"


def parsed(document: str) -> list[Section]:
    """The sections of a text in Markdown, such as a command prints; headings of all levels count alike."""
    sections: list[Section] = []
    for block in re.split(r"(?m)^(?=#{2,} )", document):
        title, _, body = block.partition("\n") if block.startswith("##") else ("", "", block)
        pieces = re.split(r"(?m)((?:^\|.*\n?)+)", body)
        for number in range(0, len(pieces), 2):
            heading = title.lstrip("# ") if number == 0 else ""
            lines = pieces[number + 1].splitlines() if number + 1 < len(pieces) else []
            cells = [tuple(cell.strip() for cell in line.strip().strip("|").split("|")) for line in lines]
            columns, rows = (cells[0], tuple(cells[2:])) if cells else ((), ())
            section = Section(
                heading, f"{pieces[number].strip(chr(10))}\n" if pieces[number].strip() else "", columns, rows
            )
            if section != Section():
                sections.append(section)
    return sections
