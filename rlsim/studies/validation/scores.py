"""How far predictions are off, and whether they choose as the measurements do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from rlsim.studies.measures import is_rate
from rlsim.studies.validation.running import ValidationRow

EFFECT = 0.05
"""Measured differences up to this say nothing of who is faster."""
MEDIAN_BAR, TAIL_BAR, ORDER_BAR = 0.12, 0.30, 0.90
"""What is asked of predicted rows: median and 90th percentile of absolute errors, share of pairs in order."""


@dataclass(frozen=True, slots=True)
class ErrorSummary:
    """Absolute relative errors of predicted rows; ``failed`` rows have none."""

    name: str
    rows: int
    failed: int
    median: float | None
    p90: float | None


@dataclass(frozen=True, slots=True)
class Pair:
    """Two rows of one family: by which factor the second is better, as measured and as predicted."""

    first: ValidationRow
    second: ValidationRow
    measured: float
    predicted: float | None
    is_speedup: bool
    """Whether the first is the family's baseline."""

    @property
    def counts(self) -> bool:
        """Whether the measured effect is large enough to have a sign."""
        return max(self.measured, 1 / self.measured) > 1 + EFFECT

    @property
    def agrees(self) -> bool:
        """Whether the predicted effect has the measured sign."""
        return self.predicted is not None and (self.predicted > 1) == (self.measured > 1)


def error_summary(name: str, rows: Iterable[ValidationRow]) -> ErrorSummary:
    """Of the rows that were not used to fit something."""
    predicted = [row for row in rows if not row.published.calibrated]
    errors = [abs(row.error) for row in predicted if row.error is not None]
    failed = len(predicted) - len(errors)
    if not errors:
        return ErrorSummary(name, len(predicted), failed, None, None)
    median, p90 = np.quantile(errors, [0.5, 0.9]).tolist()
    return ErrorSummary(name, len(predicted), failed, median, p90)


def error_summaries(rows: Sequence[ValidationRow]) -> list[ErrorSummary]:
    """By framework in order of first appearance, then of all."""
    frameworks = dict.fromkeys(row.framework for row in rows)
    each = [error_summary(name, (row for row in rows if row.framework == name)) for name in frameworks]
    return [*each, error_summary("all", rows)]


def pairs(rows: Sequence[ValidationRow]) -> list[Pair]:
    """All pairs within families, and every printed speed-up against 1, whose sign it is."""
    families: dict[tuple[str, str, str], list[ValidationRow]] = {}
    for row in rows:
        if row.published.family is not None:
            families.setdefault((row.file, row.published.family, row.published.of), []).append(row)
    within = (pair for family in families.values() for pair in _family_pairs(family))
    alone = (
        Pair(row, row, row.published.measured, None if row.predicted is None else row.predicted.mean, True)
        for row in rows
        if row.published.over is not None
    )
    return [*within, *alone]


def agreement(compared: Iterable[Pair]) -> tuple[int, int]:
    """Pairs with the right sign, of those whose measured effect counts."""
    counted = [pair.agrees for pair in compared if pair.counts]
    return sum(counted), len(counted)


def _family_pairs(family: Sequence[ValidationRow]) -> Iterator[Pair]:
    for first, second in combinations(family, 2):
        better = is_rate(first.published.of) or first.published.over is not None
        measured = _factor(first.published.measured, second.published.measured, better)
        predicted = None
        if first.predicted is not None and second.predicted is not None:
            predicted = _factor(first.predicted.mean, second.predicted.mean, better)
        yield Pair(first, second, measured, predicted, first is family[0] and first.published.over is None)


def _factor(first: float, second: float, more_is_better: bool) -> float:
    return second / first if more_is_better else first / second
