"""The validation as text for a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from rlsim import __version__
from rlsim.scenario.published import PublishedEntry
from rlsim.studies.output import json_text
from rlsim.studies.text.table import new_table, plus_minus, rendered
from rlsim.studies.validation.entries import EntryFile
from rlsim.studies.validation.running import ValidationRow
from rlsim.studies.validation.scores import MEDIAN_BAR, ORDER_BAR, TAIL_BAR, Pair, agreement, error_summaries, pairs

WIDTH = 140
"""Columns of the printed table."""


def as_text(
    entry_files: Sequence[EntryFile], rows: Sequence[ValidationRow], without: Sequence[PublishedEntry] = ()
) -> str:
    """The rows, the scores, the bars, and what could not be said; ``without`` are entries that have no row."""
    table = new_table(None, COLUMNS, map(cells, rows), texts=len(COLUMNS), no_wrap=False, folds=True, collapses=False)
    lines = [*summary(rows), "", *open_ends(entry_files), *unexpressed(without)]
    return "\n".join(line.rstrip() for line in [*rendered([table], width=WIDTH).splitlines(), *lines]) + "\n"


COLUMNS = ("entry", "row", "quantity", "measured", "predicted", "error", "grade", "status")


def cells(row: ValidationRow) -> tuple[str, ...]:
    """The row as the tables show it."""
    published = row.published
    failed = row.predicted is None
    return (
        row.entry.id,
        row.arm,
        quantity_of(row),
        number(published.measured),
        f"failed: {row.failure}" if row.predicted is None else plus_minus(row.predicted, number),
        "" if failed else f"{row.error:+.1%}",
        published.grade,
        "calibrated" if published.calibrated else "predicted",
    )


def quantity_of(row: ValidationRow) -> str:
    """Quantity, batch and base in words."""
    published = row.published
    if published.of == "engine_step_seconds":
        return f"engine step, {published.decodes} x {published.context_tokens}, s"
    words = published.of.replace("_", " ")
    return f"speed-up over {published.over}, by {words}" if published.over else words


def number(value: float) -> str:
    """Four significant digits at most."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}" if abs(value) < 100 else f"{value:.1f}"


def summary(rows: Sequence[ValidationRow]) -> Iterator[str]:
    """Errors by framework, signs and orders, and how they stand to the bars."""
    yield "Absolute errors of predicted rows: median, 90th percentile"
    for errors in error_summaries(rows):
        failed = f", {errors.failed} failed" if errors.failed else ""
        error = "-" if errors.median is None or errors.p90 is None else f"{errors.median:.1%}, {errors.p90:.1%}"
        yield f"  {errors.name}: {error} ({errors.rows} rows{failed})"
    yield ""
    yield from bars(rows)


def bars(rows: Sequence[ValidationRow]) -> Iterator[str]:
    """What was asked for and what was found."""
    whole, compared = error_summaries(rows)[-1], pairs(rows)
    if whole.median is not None and whole.p90 is not None:
        yield f"Median error {whole.median:.1%}, asked: at most {MEDIAN_BAR:.0%}: {_met(whole.median <= MEDIAN_BAR)}"
        yield f"90th percentile {whole.p90:.1%}, asked: at most {TAIL_BAR:.0%}: {_met(whole.p90 <= TAIL_BAR)}"
    right, counted = agreement(pair for pair in compared if pair.is_speedup)
    yield f"Sign of speed-ups above 5 %: {right} of {counted} right, asked: all: {_met(right == counted)}"
    right, counted = agreement(compared)
    enough = right >= ORDER_BAR * counted
    yield f"Order of pairs more than 5 % apart: {right} of {counted} right, asked: {ORDER_BAR:.0%}: {_met(enough)}"
    for pair in compared:
        if pair.counts and not pair.agrees:
            yield f"  wrong: {pair_text(pair)}"


def pair_text(pair: Pair) -> str:
    """Who is better than whom, as measured and as predicted."""
    predicted = "no prediction" if pair.predicted is None else f"predicted {pair.predicted:.2f}x"
    base = pair.first.arm if pair.first is not pair.second else pair.second.published.over or pair.first.arm
    of = pair.second.published.of.replace("_", " ")
    return f"{pair.second.entry.id}, {pair.second.arm} over {base}: measured {pair.measured:.2f}x, {predicted} ({of})"


def open_ends(entry_files: Sequence[EntryFile]) -> Iterator[str]:
    """By entry: what was fitted and assumed, what is no row yet."""
    for entry_file in entry_files:
        yield f"{entry_file.entry.id}, {entry_file.entry.title} ({entry_file.entry.source})"
        for arm, row in entry_file.rows():
            if row.calibrated:
                yield f"  calibrated on {arm}, {row.of}: {', '.join(row.fitted) or 'nothing fitted, an identity'}"
        yield from (f"  assumed: {assumed}" for assumed in entry_file.entry.assumptions)
        yield from (f"  not yet expressible: {left.what}: {left.reason}" for left in entry_file.entry.left_out)


def unexpressed(entries: Sequence[PublishedEntry]) -> Iterator[str]:
    """Entries of which no row can be expressed yet."""
    for entry in entries:
        yield f"{entry.id}, {entry.title} ({entry.source})"
        yield from (f"  not yet expressible: {left.what}: {left.reason}" for left in entry.left_out)


def as_json(
    entry_files: Sequence[EntryFile], rows: Sequence[ValidationRow], without: Sequence[PublishedEntry] = ()
) -> str:
    """Rows, scores, pairs and open ends for machines."""
    whole = {
        "rlsim": __version__,
        "rows": [_row(row) for row in rows],
        "scores": [asdict(errors) for errors in error_summaries(rows)],
        "pairs": [_pair(pair) for pair in pairs(rows)],
        "entries": [
            entry.model_dump(mode="json") for entry in (*(entry_file.entry for entry_file in entry_files), *without)
        ],
    }
    return json_text(whole)


_PUBLISHED = {"over", "family", "grade", "source", "calibrated", "fitted", "decodes", "context_tokens"}


def _row(row: ValidationRow) -> dict[str, object]:
    return {
        "entry": row.entry.id,
        "framework": row.framework,
        "arm": row.arm,
        "quantity": row.published.of,
        "measured": row.published.measured,
        "predicted": None if row.predicted is None else asdict(row.predicted),
        "error": row.error,
        "failure": row.failure,
        **row.published.model_dump(mode="json", include=_PUBLISHED),
    }


def _pair(pair: Pair) -> dict[str, object]:
    return {
        "entry": pair.second.entry.id,
        "first": pair.first.arm,
        "second": pair.second.arm,
        "quantity": pair.second.published.of,
        "measured": pair.measured,
        "predicted": pair.predicted,
        "is_speedup": pair.is_speedup,
        "counts": pair.counts,
        "agrees": pair.agrees,
    }


def _met(is_met: bool) -> str:
    return "met" if is_met else "MISSED"
