"""Entries of the validation: scenario files whose arms carry published numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlsim.core.errors import ParameterError, unknown
from rlsim.scenario.published import Entry, Published
from rlsim.scenario.schema import Scenario
from rlsim.scenario.source import Document, load

FOLDER = Path("scenarios/published")
"""Where entries are, in the project's directory."""


@dataclass(frozen=True, slots=True)
class Source:
    """One file: its entry and the scenario of every arm."""

    document: Document
    entry: Entry
    scenarios: dict[str, Scenario]

    def rows(self) -> Iterator[tuple[str, Published]]:
        """Every published number with its arm."""
        for arm, scenario in self.scenarios.items():
            for row in scenario.published:
                yield arm, row


def find_entries(wanted: Sequence[str], folder: Path = FOLDER) -> list[Source]:
    """All files of the folder, or those that are named by path, by file or by the entry's label.

    Raises ``ParameterError`` for an unknown name or an empty folder, ``ScenarioError`` for a faulty file.
    """
    files = sorted(folder.glob("*.yaml"))
    if not files and not wanted:
        raise ParameterError("ENTRY", str(folder), "a directory with entries, or files")
    if not wanted:
        return [read_entry(file) for file in files]
    return [read_entry(file) for name in wanted for file in _named(name, files)]


def read_entry(file: Path) -> Source:
    """One file; ``ParameterError`` without an entry section, or when a row is over an arm that is none."""
    document = load(str(file))
    scenarios = {arm or found.name: found for arm, found in document.resolve_all().items()}
    entry = next(iter(scenarios.values())).entry
    if entry is None:
        raise ParameterError(f"{file}: entry", None, "a section with id, title, source and assumptions")
    source = Source(document, entry, scenarios)
    for arm, row in source.rows():
        if row.over is not None and row.over not in scenarios:
            raise unknown(f"{file}: arms.{arm}.published.over", row.over, scenarios)
    return source


def _named(name: str, files: Sequence[Path]) -> list[Path]:
    if name.endswith(".yaml"):
        return [Path(name)]
    found = [file for file in files if file.stem == name or file.stem.split("-")[0] == name]
    if not found:
        raise unknown("ENTRY", name, sorted({file.stem.split("-")[0] for file in files}))
    return found
