"""The validation's tables in a document, between markers, so that prose around them stays.

The validation as a figure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rlsim.core.errors import ParameterError
from rlsim.scenario.published import PublishedEntry
from rlsim.studies.output import write_text
from rlsim.studies.validation.entries import EntryFile
from rlsim.studies.validation.running import ValidationRow
from rlsim.studies.validation.scores import error_summaries
from rlsim.studies.validation.text import COLUMNS, bars, cells

BEGIN = "<!-- begin: rlsim validate -->"
END = "<!-- end: rlsim validate -->"


def put(
    path: Path, entry_files: Sequence[EntryFile], rows: Sequence[ValidationRow], without: Sequence[PublishedEntry] = ()
) -> None:
    """Replace what stands between the markers; ``ParameterError`` for a file without them."""
    text = path.read_text(encoding="utf-8") if path.exists() else f"{BEGIN}\n{END}\n"
    before, begun, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not (begun and ended):
        raise ParameterError("--markdown", str(path), f"a new file, or one with {BEGIN} and {END}")
    tables = "\n".join(["", *_lines(entry_files, rows), *_without(without), ""])
    write_text(path, f"{before}{BEGIN}\n{tables}\n{END}{after}")


def _lines(entry_files: Sequence[EntryFile], rows: Sequence[ValidationRow]) -> Iterator[str]:
    summaries = [
        (summary.name, str(summary.rows), str(summary.failed), _share(summary.median), _share(summary.p90))
        for summary in error_summaries(rows)
    ]
    yield from _table(("framework", "predicted rows", "failed", "median error", "90th percentile"), summaries)
    yield ""
    for line in bars(rows):
        yield f"- {line}" if not line.startswith("  ") else f"  - {line.strip()}"
    for entry_file in entry_files:
        entry, file = entry_file.entry, entry_file.document.file
        yield from ("", f"### {entry.id}: {entry.title}", "", f"{entry.source}; `{Path(file).as_posix()}`.", "")
        yield from _table(COLUMNS[1:], [cells(row)[1:] for row in rows if row.file == file])
        yield ""
        for arm, row in entry_file.rows():
            if row.calibrated:
                yield f"- calibrated on {arm}, {row.of}: {', '.join(row.fitted) or 'nothing fitted, an identity'}"
        yield from (f"- assumed: {assumed}" for assumed in entry.assumptions)
        yield from (f"- not yet expressible: {left.what}: {left.reason}" for left in entry.left_out)
        if entry.misses:
            yield f"- why it is off, and what would settle it: {entry.misses}"


def _without(entries: Sequence[PublishedEntry]) -> Iterator[str]:
    for entry in entries:
        yield from ("", f"### {entry.id}: {entry.title}", "", f"{entry.source}. No row yet.", "")
        yield from (f"- not yet expressible: {left.what}: {left.reason}" for left in entry.left_out)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _table(heads: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', '/') for cell in row)} |"


def draw(path: Path, rows: Sequence[ValidationRow]) -> None:
    """Predicted over measured, every row with a prediction; ``ParameterError`` for a name that is no PNG."""
    from rlsim.results.plots.style import save_figure
    from rlsim.results.plots.validation import Point, predicted_and_measured

    points = [
        Point(row.framework, row.published.measured, row.predicted, row.published.calibrated)
        for row in rows
        if row.predicted is not None
    ]
    save_figure(predicted_and_measured(points), path)
