"""Non-negative robust fits on relative errors, their intervals, and the errors of what was not fitted.

Models here are linear in their unknowns: a row a point, a column an unknown, and seconds that are never zero. A factor
by which things last longer while something else runs beside them is fitted with the model that it multiplies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rlsim.core.ticks import Ticks
from rlsim.costs.evidence import HoldOutError

if TYPE_CHECKING:
    from numpy.typing import NDArray


CAUCHY = 2.385
"""Scaled residual at which a weight is a half: 95 % efficient under normal noise (Holland and Welsch 1977)."""
LEAST_SCALE = 0.002
"""Relative; below it residuals are rounding, not noise."""
ITERATIONS = 12
OUTLIER = 6.0
"""Times the median residual, four standard deviations of normal noise: what is farther out is a disturbed point, which
the fit does not follow, and counts as so far out in the intervals."""


def solve(
    rows: NDArray[np.float64],
    seconds: NDArray[np.float64],
    trust: NDArray[np.float64] | None = None,
    least: NDArray[np.float64] | None = None,
    iterations: int = ITERATIONS,
) -> NDArray[np.float64]:
    """Unknowns of at least ``least`` (zero) with the least squared relative errors, large ones weighed down.

    ``trust`` is one over what each point's relative error is expected to be, up to a factor (the same for all).
    Non-negative least squares, reweighted by the Cauchy function of the residuals over their median; one iteration is
    not robust, for seconds that nothing disturbed. ``scipy.optimize.least_squares`` with the Cauchy loss needs the
    same rounds for the scale of the residuals, takes about ten times as long and gives no unknown exactly zero.
    """
    from scipy.optimize import nnls

    trust = np.ones(len(seconds)) if trust is None else trust
    relative = rows / seconds[:, None]
    scale = np.maximum(relative.max(axis=0), 1e-30)
    target = 1.0 if least is None else 1.0 - relative @ least
    weight, above = trust, np.zeros(rows.shape[1])
    for _ in range(iterations):
        before = above
        above, _ = nnls(relative / scale * weight[:, None], weight * target, maxiter=20_000)
        residuals = (relative / scale @ above - target) * trust
        width = max(1.4826 * float(np.median(np.abs(residuals))), LEAST_SCALE * float(np.median(trust)))
        weight = trust / np.sqrt(1.0 + (residuals / (CAUCHY * width)) ** 2)
        if np.allclose(before, above, rtol=1e-6, atol=0):
            break
    unknowns: NDArray[np.float64] = above / scale if least is None else least + above / scale
    return unknowns


def bootstrap(
    predicted: NDArray[np.float64],
    seconds: NDArray[np.float64],
    unknowns: int,
    times: int,
    trust: NDArray[np.float64] | None = None,
    seed: int = 0,
) -> Iterator[NDArray[np.float64]]:
    """Seconds of as many residual bootstraps: each point gets the model's time and the error of another point.

    Errors are compared in units of what each point's ``trust`` lets expect, and widened by the degrees of freedom, so
    that an unknown which few points determine has a wide interval.
    """
    trust = np.ones(len(seconds)) if trust is None else trust
    errors = seconds / predicted - 1.0
    freedom = max(len(errors) - unknowns, 1)
    errors = (errors - np.median(errors)) * trust * np.sqrt(len(errors) / freedom)
    reach = OUTLIER * max(float(np.median(np.abs(errors))), LEAST_SCALE * float(np.median(trust)))
    errors, generator = np.clip(errors, -reach, reach), np.random.default_rng(seed)
    for _ in range(times):
        yield predicted * (1.0 + np.maximum(generator.choice(errors, len(errors)) / trust, -0.9))


def hold_out(predicted: NDArray[np.float64], measured: NDArray[np.float64], names: Sequence[object]) -> HoldOutError:
    """Errors of predictions of points that were not fitted."""
    errors = np.abs(predicted / measured - 1.0)
    worst = int(errors.argmax())
    return HoldOutError(
        median=round(float(np.median(errors)), 5),
        p95=round(float(np.quantile(errors, 0.95)), 5),
        worst=round(float(errors[worst]), 5),
        where=str(names[worst]),
        points=len(errors),
    )


ROUNDS = 8
"""Rounds in which model and factor are fitted in turn."""
LEAST_WEIGHT = 20.0
"""Least weight of what ran beside, and of what ran alone, for a factor to be told from the model."""


def fit_contention(
    design: NDArray[np.float64],
    seconds: NDArray[np.float64],
    weights: NDArray[np.float64],
    shares: NDArray[np.float64],
    least_weight: float = LEAST_WEIGHT,
) -> tuple[NDArray[np.float64], float]:
    """Unknowns of ``seconds = design @ unknowns * (1 + (factor - 1) * shares)``, and the factor, at least 1.

    ``weights`` are the things that each row is the mean of. The factor makes what ran beside last as long in sum,
    against the model, as what ran alone. 1 where either is missing.
    """
    beside, alone, trust = weights * shares, weights * (1 - shares), np.sqrt(weights)
    factor = 1.0
    solution = solve(design, seconds, trust)
    if min(beside.sum(), alone.sum()) < least_weight:
        return solution, factor
    for _ in range(ROUNDS):
        predicted = design @ solution
        # alone, a thing lasts its predicted time times a common error; beside, times the factor as well
        error = (seconds * alone).sum() / (predicted * (1 + (factor - 1) * shares) * alone).sum()
        factor = max(1.0, float((seconds * beside).sum() / (predicted * beside).sum() / error))
        solution = solve(design * (1 + (factor - 1) * shares)[:, None], seconds, trust)
    return solution, float(f"{factor:.4g}")


def overlap_shares(intervals: Sequence[tuple[Ticks, Ticks]], by: Sequence[tuple[Ticks, Ticks]]) -> list[float]:
    """Share of each interval that the intervals of ``by`` cover, which do not overlap each other."""
    starts = np.array([start for start, _ in sorted(by)], float)
    ends = np.array([end for _, end in sorted(by)], float)
    shares = []
    for start, end in intervals:
        overlap = np.minimum(ends, end) - np.maximum(starts, start)
        shares.append(float(overlap[overlap > 0].sum()) / max(1, end - start))
    return shares


DRAWS = 200
LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class LinearFit:
    """Values of the unknowns, and the ends of their 95 % intervals."""

    values: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def width(self, columns: Sequence[int]) -> float:
        """Half width of the widest relative interval among ``columns``."""
        chosen = list(columns)
        half = (self.high - self.low)[chosen] / 2
        return float((half / np.maximum(self.values[chosen], 1e-300)).max())


def fit_linear(
    design: NDArray[np.float64],
    seconds: NDArray[np.float64],
    least: NDArray[np.float64] | None = None,
    below: float = 0.0,
) -> LinearFit:
    """Unknowns that are at least ``least`` (zero), and their intervals: a residual bootstrap, and ``below``.

    ``design`` is by point and unknown; ``seconds`` are above zero. All of them may be too long by up to the share
    ``below``, which no scatter of points can show: the lower ends are lower by it.
    """
    values = solve(design, seconds, least=least)
    unknowns = int((values > (0.0 if least is None else least)).sum())
    again = [solve(design, drawn, least=least) for drawn in bootstrap(design @ values, seconds, unknowns, DRAWS)]
    low, high = np.quantile(again, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return LinearFit(values, np.minimum(low, values) * (1.0 - below), np.maximum(high, values))
