"""A step-time model of disturbed points: robust, non-negative, as simple as the points allow, with intervals.

Each point gives one time, the median of its undisturbed measurements (:mod:`calibration.measure.measurements`), which
counts by how many they are. The model is fitted to the points by non-negative least squares on relative errors,
reweighted so that points which were never undisturbed lose their pull
(:mod:`calibration.fitting.robust_regression`). Dense and sequence terms cannot decrease. Of four families of bends
the simplest is taken whose cross-validated error is not worse than the best one's by a twentieth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from calibration.fitting.robust_regression import bootstrap, solve
from calibration.fitting.step_model import (
    Knots,
    StepSample,
    hats,
    knots_within,
    law_of,
    predicted_seconds,
    regressors,
    rounded,
)
from rlsim.core.errors import ParameterError
from rlsim.costs.evidence import Provenance
from rlsim.costs.sections import COEFFICIENTS, StepModelIntervals
from rlsim.costs.step_model import StepTimeModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

ENOUGH_WEIGHT = 8.0
"""Sixteen measurements of a dozen steps, after which more of the same point say little: what is left is the misfit of
the model and the host's own state."""
FOLDS = 5
LEVEL = 0.95
SIMPLER = 1.05
"""A family may be this much worse than the best and still be preferred for its fewer bends."""


@dataclass(frozen=True, slots=True)
class RobustFit:
    """A step-time model, and what it was fitted with."""

    law: StepTimeModel
    knots: Knots
    samples: tuple[StepSample, ...]
    """One a point, weighed by its measurements."""

    @property
    def unknowns(self) -> int:
        """Count of the numbers that were fitted."""
        knots = self.knots
        return len(knots.tokens) + len(knots.sequences) - 1 + len(knots.decodes) + len(knots.prefill_tokens) + 1


def families(samples: Sequence[StepSample]) -> tuple[Knots, ...]:
    """From straight lines to bends in every term, within the range of the samples."""
    tokens = max(sample.decodes + sample.prefill_tokens for sample in samples)
    sequences = max(sample.decodes + sample.chunks for sample in samples)
    straight = Knots(_to(1, tokens), _to(1, sequences), (1,), (1,), {})
    bent, fine = (replace(straight, tokens=_by(factor, tokens)) for factor in (4, 2))
    curved = replace(bent, sequences=_by(4, sequences), decodes=(1, 8, 64, 512), prefill_tokens=(1, 64, 256))
    return tuple(knots_within(family, samples) for family in (straight, bent, fine, curved))


def richest(samples: Sequence[StepSample]) -> Knots:
    """Every bend that a family has: what the points must be able to tell."""
    *_, fine, curved = families(samples)
    return replace(curved, tokens=fine.tokens)


def fit_samples(samples: Sequence[StepSample], provenance: Provenance) -> RobustFit:
    """The model of one sample a point: of the bends that do about as well as any, the fewest.

    Raises ``ParameterError`` when there are fewer points than a straight model has unknowns.
    """
    if len(samples) < 5:
        raise ParameterError("samples", len(samples), "at least five different points (a larger --budget)")
    trust, choices = trust_of(samples), families(samples)
    errors = [_cross_validated(samples, knots, trust) for knots in choices]
    good_enough = SIMPLER * min(errors)
    knots = next(knots for knots, error in zip(choices, errors, strict=True) if error <= good_enough)
    solution = solve(regressors(samples, knots), _seconds(samples), trust)
    return RobustFit(law_of(solution, knots, provenance), knots, tuple(samples))


def trust_of(samples: Sequence[StepSample]) -> NDArray[np.float64]:
    """Weight of each point's relative residual before any is known: one over its standard error, up to a factor.

    The noise of the measurements averages out, the misfit of the model and the state of the host do not.
    """
    weights = np.array([sample.weight for sample in samples])
    trust: NDArray[np.float64] = 1.0 / np.sqrt(1.0 / weights + 1.0 / ENOUGH_WEIGHT)
    return trust


def law_intervals(fit: RobustFit, times: int = 200, seed: int = 0) -> StepModelIntervals:
    """Percentile intervals of the coefficients, from a residual bootstrap.

    The points stay, because some coefficients rest on few of them; each gets the model's time and the relative
    residual of another point, so that both noise and misfit widen the intervals.
    """
    rows, trust = regressors(fit.samples, fit.knots), trust_of(fit.samples)
    predicted = np.array([predicted_seconds(fit.law, sample) for sample in fit.samples])
    resamples = bootstrap(predicted, _seconds(fit.samples), fit.unknowns, times, trust, seed)
    drawn = [law_of(solve(rows, seconds, trust), fit.knots, fit.law.provenance) for seconds in resamples]
    tail = (1 - LEVEL) / 2
    low, high = {}, {}
    for name in COEFFICIENTS:
        values = np.array([np.atleast_1d(getattr(law, name)) for law in drawn])
        central = np.atleast_1d(getattr(fit.law, name))
        low[name] = tuple(rounded(np.minimum(np.quantile(values, tail, axis=0), central)))
        high[name] = tuple(rounded(np.maximum(np.quantile(values, 1 - tail, axis=0), central)))
    return StepModelIntervals(LEVEL, f"residual bootstrap over the points, {times} times", low, high)


def effects(intervals: StepModelIntervals, law: StepTimeModel, domain: Sequence[StepSample]) -> dict[str, float]:
    """Relative change of a step of the domain, at most, by half the width of each coefficient's interval.

    A coefficient with many knots is as wide as its widest.
    """
    predicted = np.array([predicted_seconds(law, sample) for sample in domain])
    decodes = np.array([sample.decodes for sample in domain])
    prefilled = np.array([sample.prefill_tokens for sample in domain])
    tokens = decodes + prefilled
    sequences = decodes + np.array([sample.chunks for sample in domain])
    kv_tokens = np.array([sample.kv_tokens for sample in domain], dtype=float)
    rows = {
        "dense_seconds": np.abs(hats(tokens, law.tokens)),
        "sequence_seconds": np.abs(hats(sequences, law.sequences)),
        "kv_seconds_per_token": hats(np.minimum(decodes, law.decodes[-1]), law.decodes) * kv_tokens[:, None],
        "prefill_seconds": np.abs(hats(prefilled, law.prefill_tokens)) * (prefilled > 0)[:, None],
        "pair_seconds": np.array([[sample.pairs] for sample in domain], dtype=float),
    }
    widest = {}
    for name in COEFFICIENTS:
        half = (np.array(intervals.high[name]) - np.array(intervals.low[name])) / 2
        widest[name] = float((rows[name] * half / predicted[:, None]).max())
    return widest


def information(samples: Sequence[StepSample], law: StepTimeModel, knots: Knots) -> NDArray[np.float64]:
    """Regressors of relative errors, one row a sample: what a measurement there says of each unknown."""
    predicted = np.array([predicted_seconds(law, sample) for sample in samples])
    rows = regressors(samples, knots) / np.maximum(predicted, 1e-12)[:, None]
    largest = np.abs(rows).max(axis=0)
    scaled: NDArray[np.float64] = rows / np.where(largest > 0, largest, 1.0)
    return scaled


def _seconds(samples: Sequence[StepSample]) -> NDArray[np.float64]:
    return np.array([sample.seconds for sample in samples])


def _cross_validated(samples: Sequence[StepSample], knots: Knots, trust: NDArray[np.float64]) -> float:
    """Mean absolute relative error on points left out, a tenth of them, the worst, aside."""
    errors: list[float] = []
    rows, seconds = regressors(samples, knots), _seconds(samples)
    # every fifth point in order of size is left out, so that every fold has small and large ones
    ordered = sorted(range(len(samples)), key=lambda number: (samples[number].kind, samples[number].seconds))
    folds = min(FOLDS, len(ordered))
    for fold in range(folds):
        left = ordered[fold::folds]
        kept = [number for index, number in enumerate(ordered) if index % folds != fold]
        solution = solve(rows[kept], seconds[kept], trust[kept])
        errors += np.abs(rows[left] @ solution / seconds[left] - 1.0).tolist()
    return float(np.mean(sorted(errors)[: max(1, len(errors) * 9 // 10)]))


def _to(first: int, last: int) -> tuple[int, ...]:
    return (first, last) if last > first else (first,)


def _by(factor: int, last: int) -> tuple[int, ...]:
    """Powers of ``factor`` below ``last``, and ``last``."""
    return (*(factor**n for n in range(20) if factor**n < last), last) if last > 1 else (1,)
