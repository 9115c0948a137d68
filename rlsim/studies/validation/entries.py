"""Entries of the validation: scenario files whose arms carry published numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlsim.core.errors import ParameterError, unknown
from rlsim.scenario.document import Document, load
from rlsim.scenario.errors import refusals
from rlsim.scenario.published import Published, PublishedEntry
from rlsim.scenario.reader import parse_file
from rlsim.scenario.schema import Scenario
from rlsim.scenario.tree import plain

FOLDER = Path("scenarios/published")
"""Where entries are, in the project's directory."""
LEFT_OUT = "left-out.yaml"
"""In the same place: entries of which nothing can be expressed yet."""


@dataclass(frozen=True, slots=True)
class EntryFile:
    """One file: its entry and the scenario of every arm."""

    document: Document
    entry: PublishedEntry
    scenarios: dict[str, Scenario]

    def rows(self) -> Iterator[tuple[str, Published]]:
        """Every published number with its arm."""
        for arm, scenario in self.scenarios.items():
            for row in scenario.published:
                yield arm, row


def find_entries(wanted: Sequence[str], folder: Path = FOLDER) -> list[EntryFile]:
    """All scenarios of the folder, or those that are named by path, by file or by the entry's label.

    Raises ``ParameterError`` for an unknown name or an empty folder, ``ScenarioError`` for a faulty file.
    """
    files = sorted(file for file in folder.glob("*.yaml") if file.name != LEFT_OUT)
    if not files and not wanted:
        raise ParameterError("ENTRY", str(folder), "a directory with entries, or files")
    if not wanted:
        return [read_entry(file) for file in files]
    known = {entry.id for entry in left_out([], folder)}
    return [read_entry(file) for name in wanted if name not in known for file in _named(name, files)]


def left_out(wanted: Sequence[str], folder: Path = FOLDER) -> list[PublishedEntry]:
    """Entries without a scenario, all of them or those named by label; ``ParameterError`` for a faulty file."""
    from pydantic import ValidationError

    file = folder / LEFT_OUT
    if not file.exists():
        return []
    tree = plain(parse_file(str(file))[0])
    assert isinstance(tree, dict)
    listed = tree.get("entries")
    listed = listed if isinstance(listed, list) else []
    try:
        entries = [PublishedEntry.model_validate(entry) for entry in listed]
    except ValidationError as refused:
        error = refusals(refused, PublishedEntry.model_json_schema())[0]
        raise ParameterError(f"{file}: {error.path}", error.found, error.allowed) from None
    return [entry for entry in entries if not wanted or entry.id in wanted]


def read_entry(file: Path) -> EntryFile:
    """One file; ``ParameterError`` without an entry section, or when a row is over an arm that is none."""
    document = load(str(file))
    scenarios = {arm or scenario.name: scenario for arm, scenario in document.resolve_all().items()}
    entry = next(iter(scenarios.values())).entry
    if entry is None:
        raise ParameterError(f"{file}: entry", None, "a section with id, title, source and assumptions")
    entry_file = EntryFile(document, entry, scenarios)
    for arm, row in entry_file.rows():
        if row.over is not None and row.over not in scenarios:
            raise unknown(f"{file}: arms.{arm}.published.over", row.over, scenarios)
    return entry_file


def _named(name: str, files: Sequence[Path]) -> list[Path]:
    if name.endswith(".yaml"):
        return [Path(name)]
    matches = [file for file in files if file.stem == name or file.stem.split("-")[0] == name]
    if not matches:
        raise unknown("ENTRY", name, sorted({file.stem.split("-")[0] for file in files}))
    return matches
