"""Laws that are linear in what is unknown: non-negative robust fits, their intervals, errors and the noise floor.

Noise on a shared machine only ever adds time, in bursts: a point's time is the mean of the quickest quarter of its
samples. Even passes are fitted, odd ones judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rlsim.costs.evidence import HoldOutError

if TYPE_CHECKING:
    from numpy.typing import NDArray

HUBER = 1.345
"""Residuals beyond this many robust standard deviations count linearly (95 % efficiency on normal noise)."""
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
    design: NDArray[np.float64], seconds: NDArray[np.float64], least: NDArray[np.float64] | None = None
) -> LinearFit:
    """Unknowns that are at least ``least`` (zero), with relative Huber loss; intervals by a residual bootstrap.

    ``design`` is by point and unknown; ``seconds`` are above zero. Resampled residuals are widened by the degrees of
    freedom, so that an unknown that few points determine has a wide interval.
    """
    floor = np.zeros(design.shape[1]) if least is None else least
    values = _solved(design, seconds, floor)
    expected = design @ values
    spare = max(1, len(seconds) - int((values > floor).sum()))
    residuals = (seconds / expected - 1.0) * np.sqrt(len(seconds) / spare)
    draw = np.random.default_rng(0)
    again = [
        _solved(design, expected * np.maximum(0.05, 1.0 + draw.choice(residuals, len(seconds))), floor)
        for _ in range(DRAWS)
    ]
    low, high = np.quantile(again, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return LinearFit(values, np.minimum(low, values), np.maximum(high, values))


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


def _solved(
    design: NDArray[np.float64], seconds: NDArray[np.float64], floor: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Iterated non-negative least squares on relative errors, large ones weighed down."""
    from scipy.optimize import nnls

    relative = design / seconds[:, None]
    scale = np.maximum(np.abs(relative).max(axis=0), 1e-300)
    target, weight = 1.0 - relative @ floor, np.ones(len(seconds))
    for _ in range(8):
        root = np.sqrt(weight)
        above, _ = nnls(relative / scale * root[:, None], target * root)
        error = np.abs(relative @ (above / scale) - target)
        spread = max(float(np.median(error)) / 0.6745, 1e-9)
        weight = np.minimum(1.0, HUBER * spread / np.maximum(error, 1e-12))
    solution: NDArray[np.float64] = floor + above / scale
    return solution
