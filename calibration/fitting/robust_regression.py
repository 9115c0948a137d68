"""Non-negative robust fits on relative errors, resamples of them, and the errors of what was not fitted.

Laws here are linear in their unknowns: a row a point, a column an unknown, and seconds that are never zero.

Non-negative robust least squares on relative errors.

How much longer things last while something else runs beside them: one factor, fitted with the law it multiplies.

Laws that are linear in what is unknown: non-negative robust fits, their intervals, errors and the noise floor.

Noise on a shared machine only ever adds time, in bursts: a point's time is the mean of the quickest quarter of its
samples. Even passes are fitted, odd ones judge.
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
) -> NDArray[np.float64]:
    """Unknowns of at least ``least`` (zero) with the least squared relative errors, large ones weighed down.

    ``trust`` is one over what each point's relative error is expected to be, up to a factor (the same for all).
    """
    from scipy.optimize import nnls

    trust = np.ones(len(seconds)) if trust is None else trust
    relative = rows / seconds[:, None]
    scale = np.maximum(relative.max(axis=0), 1e-30)
    target = 1.0 if least is None else 1.0 - relative @ least
    weight, above = trust, np.zeros(rows.shape[1])
    for _ in range(ITERATIONS):
        before = above
        above, _ = nnls(relative / scale * weight[:, None], weight * target, maxiter=20_000)
        residuals = (relative / scale @ above - target) * trust
        width = max(1.4826 * float(np.median(np.abs(residuals))), LEAST_SCALE * float(np.median(trust)))
        weight = trust / np.sqrt(1.0 + (residuals / (CAUCHY * width)) ** 2)
        if np.allclose(before, above, rtol=1e-6, atol=0):
            break
    found: NDArray[np.float64] = above / scale if least is None else least + above / scale
    return found


def redrawn(
    predicted: NDArray[np.float64],
    seconds: NDArray[np.float64],
    unknowns: int,
    times: int,
    trust: NDArray[np.float64] | None = None,
    seed: int = 0,
) -> Iterator[NDArray[np.float64]]:
    """Seconds of as many residual bootstraps: each point gets the law's time and the error of another point.

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


HUBER = 1.345
"""Residuals beyond this many robust standard deviations count linearly (95 % efficiency on normal noise)."""


def robust(
    design: NDArray[np.float64], seconds: NDArray[np.float64], weight: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Non-negative unknowns of least weighted relative errors, large ones weighed down (Huber)."""
    from scipy.optimize import nnls

    relative = design / seconds[:, None]
    scale = np.maximum(np.abs(relative).max(axis=0), 1e-300)
    pull = np.ones(len(seconds))
    for _ in range(8):
        root = np.sqrt(weight * pull)
        solution, _ = nnls(relative / scale * root[:, None], root)
        error = np.abs(relative / scale @ solution - 1)
        spread = max(float(np.median(error)) / 0.6745, 1e-9)
        pull = np.minimum(1.0, HUBER * spread / np.maximum(error, 1e-12))
    found: NDArray[np.float64] = solution / scale
    return found


ROUNDS = 8
"""In which law and factor are fitted in turn."""
LEAST_WEIGHT = 20.0
"""Of what ran beside, and of what ran alone, for a factor to be told from the law."""


def contended(
    design: NDArray[np.float64],
    seconds: NDArray[np.float64],
    weight: NDArray[np.float64],
    shares: NDArray[np.float64],
    least_weight: float = LEAST_WEIGHT,
) -> tuple[NDArray[np.float64], float]:
    """Unknowns of ``seconds = design @ unknowns * (1 + (factor - 1) * shares)``, and the factor, at least 1.

    The factor makes what ran beside last as long in sum, against the law, as what ran alone. 1 where either is missing.
    """
    beside, alone = weight * shares, weight * (1 - shares)
    factor = 1.0
    solution = robust(design, seconds, weight)
    if min(beside.sum(), alone.sum()) < least_weight:
        return solution, factor
    for _ in range(ROUNDS):
        law = design @ solution
        # alone, a thing lasts its law's time times a common error; beside, times the factor as well
        error = (seconds * alone).sum() / (law * (1 + (factor - 1) * shares) * alone).sum()
        factor = max(1.0, float((seconds * beside).sum() / (law * beside).sum() / error))
        solution = robust(design * (1 + (factor - 1) * shares)[:, None], seconds, weight)
    return solution, float(f"{factor:.4g}")


def covered(intervals: Sequence[tuple[Ticks, Ticks]], by: Sequence[tuple[Ticks, Ticks]]) -> list[float]:
    """Of each interval, the share that others cover, which do not overlap each other."""
    starts = np.array([start for start, _ in sorted(by)], float)
    ends = np.array([end for _, end in sorted(by)], float)
    found = []
    for start, end in intervals:
        overlap = np.minimum(ends, end) - np.maximum(starts, start)
        found.append(float(overlap[overlap > 0].sum()) / max(1, end - start))
    return found


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


def quickest(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Seconds by point: the mean of the quickest quarter of its samples; ``table`` is by pass and point."""
    best = np.sort(table, axis=0)[: -(-len(table) // 4)]
    seconds: NDArray[np.float64] = best.mean(axis=0)
    return seconds


def halves(table: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Seconds by point of the even passes (to fit) and of the odd ones (to judge)."""
    return quickest(table[0::2]), quickest(table[1::2])


def noise_floor(table: NDArray[np.float64]) -> float:
    """Median relative difference of a point between even and odd passes: no fit can be asked to be closer."""
    even, odd = halves(table)
    return float(np.median(np.abs(even / odd - 1.0)))


def contention(table: NDArray[np.float64]) -> float:
    """Median sample over the quickest quarter's mean of its point: how much others took."""
    return float(np.median(table / quickest(table)))


def fitted(
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
    again = [solve(design, drawn, least=least) for drawn in redrawn(design @ values, seconds, unknowns, DRAWS)]
    low, high = np.quantile(again, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return LinearFit(values, np.minimum(low, values) * (1.0 - below), np.maximum(high, values))


def added(table: NDArray[np.float64]) -> float:
    """By how much all times may be too long together, as others on a machine only ever add: a share.

    An estimate: how far the quickest quarter of a point's samples is above the quickest, in the median over the
    points, and once more what repeats of a point differ by (the noise floor).
    """
    return float(np.median(quickest(table) / table.min(axis=0) - 1.0)) + noise_floor(table)
