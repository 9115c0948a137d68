"""The step time model of an engine from its own statistics lines: throughput over what was running.

With ``R`` running, a token each a step, steps follow each other every ``R / rate`` seconds; base, ``R`` sequences, KV
tokens and the step's prompt tokens each have their share of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from calibration.fitting.robust_regression import hold_out
from calibration.logs.engine_lines import StatLines
from calibration.logs.estimates import MOST_SHARED, LogEstimate, check_varies, least_squares, shared
from rlsim.core.errors import ParameterError
from rlsim.costs.evidence import HoldOutError, Provenance
from rlsim.costs.step_model import StepTimeModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

FEWEST_INTERVALS = 9
COLUMNS = ("base_seconds", "per_sequence_seconds", "per_kv_token_seconds", "per_prefill_token_seconds")
"""Coefficients of the affine model, as a scenario names them."""


@dataclass(frozen=True, slots=True)
class LineFit:
    """An affine step time model, and how it does on the last third of the intervals."""

    law: StepTimeModel
    estimates: tuple[LogEstimate, ...]
    unidentified: tuple[str, ...]
    hold_out: HoldOutError
    intervals: int


def fit_stat_lines(lines: StatLines, kv_tokens: int) -> LineFit:
    """The model of least relative squares over the first two thirds of the intervals.

    Raises ``ParameterError`` for fewer than nine steady intervals, and when as many requests run in all of them.
    """
    steady = list(lines.intervals(kv_tokens))
    if len(steady) < FEWEST_INTERVALS:
        count = sum(map(len, lines.engines.values()))
        said = f"{len(steady)} intervals with steadily running requests in {count} statistics lines"
        raise ParameterError(lines.origin, said, f"at least {FEWEST_INTERVALS}")
    places, table = [place for place, _ in steady], np.array([interval for _, interval in steady], dtype=float)
    last = len(steady) // 3
    fitted, held = table[:-last], table[-last:]
    check_varies(lines.origin, "Running", fitted[:, 1], "the cost of a sequence")
    kept, unknown = _distinguishable(fitted)
    line = least_squares(np.ones(len(fitted)), [_column(fitted, name) / fitted[:, 0] for name in kept])
    while (worst := int(line.coefficients.argmin())) >= 0 and line.coefficients[worst] < 0:
        unknown.append(f"{kept.pop(worst)}: not above zero in this log")
        line = least_squares(np.ones(len(fitted)), [_column(fitted, name) / fitted[:, 0] for name in kept])
    values = dict(zip(kept, line.coefficients.tolist(), strict=True))
    predicted = np.sum([value * _column(held, name) for name, value in values.items()], axis=0)
    source = f"{len(fitted)} intervals of the engine's statistics"
    law = StepTimeModel.affine(*(values.get(name, 0.0) for name in COLUMNS))
    return LineFit(
        replace(law, provenance=Provenance("fitted", f"{lines.engine}'s statistics lines ({lines.origin})")),
        tuple(line.estimate(n, f"rollout.step_time.{name}", source) for n, name in enumerate(kept)),
        tuple(unknown),
        hold_out(predicted, held[:, 0], places[-last:]),
        len(steady),
    )


def _column(table: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    return np.ones(len(table)) if name == COLUMNS[0] else table[:, COLUMNS.index(name)]


def _distinguishable(table: NDArray[np.float64]) -> tuple[list[str], list[str]]:
    """Columns whose effects can be seen, and what is said of the others."""
    kept, unknown = list(COLUMNS), []
    if not table[:, 2].any():
        unknown.append("per_kv_token_seconds: no KV usage in the log")
    elif shared(table[:, 1], table[:, 2]) > MOST_SHARED:
        unknown.append("per_kv_token_seconds: KV grows with the running requests; in per_sequence_seconds")
    if not table[:, 3].any():
        unknown.append("per_prefill_token_seconds: no prefill in steady intervals")
    return [name for name in kept if not any(said.startswith(name) for said in unknown)], unknown
