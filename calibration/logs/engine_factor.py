"""A factor on the base's step time model from an engine's statistics lines, where they tell no model of their own.

Lines in which about as many requests always run, or few of them, still say how long a step of that batch takes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from calibration.fitting.robust_regression import hold_out
from calibration.logs.costs import SCALE
from calibration.logs.engine_lines import Interval, StatLines
from calibration.logs.engine_step_model import LineFit, fit_stat_lines
from calibration.logs.estimates import least_squares
from rlsim.core.errors import ParameterError
from rlsim.costs.evidence import Provenance
from rlsim.costs.step_model import StepTimeModel
from rlsim.engine.steptime import attention_pairs

FEWEST = 3
"""Steady intervals: two to fit on and one to hold out."""


def fit_lines(lines: StatLines, kv_tokens: int, base: StepTimeModel) -> LineFit:
    """The model that the lines tell, or a factor on ``base``; ``ParameterError`` with fewer than three intervals."""
    try:
        return fit_stat_lines(lines, kv_tokens)
    except ParameterError as refused:
        steady = list(lines.intervals(kv_tokens))
        if len(steady) < FEWEST:
            raise
        why = f"{refused.found}; of {refused.allowed}"
    measured = np.array([interval.step_seconds for _, interval in steady])
    priced = np.array([_priced(base, interval) for _, interval in steady])
    fitted = len(steady) - len(steady) // 3
    line = least_squares(measured[:fitted], [priced[:fitted]])
    factor = line.estimate(0, SCALE, f"{fitted} intervals of the engine's statistics, over the base's model")
    fitted_model = replace(
        base.calibrated(factor.value),
        provenance=Provenance("fitted", f"{base.provenance.source}, times a factor of {lines.origin}"),
    )
    errors = hold_out(factor.value * priced[fitted:], measured[fitted:], [place for place, _ in steady[fitted:]])
    return LineFit(fitted_model, (factor,), (f"a model of its own: {why}",), errors, len(steady))


def _priced(base: StepTimeModel, interval: Interval) -> float:
    """What the base says of a step of that batch."""
    tokens = round(interval.prefill_per_step)
    chunks = min(tokens, 1)
    return base.mixed_seconds(round(interval.running), interval.kv_tokens, chunks, tokens, attention_pairs(tokens, 0))
