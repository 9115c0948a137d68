"""Laws that are linear in what is unknown: non-negative robust fits, their intervals, errors and the noise floor.

Noise on a shared machine only ever adds time, in bursts: a point's time is the mean of the quickest quarter of its
samples. Even passes are fitted, odd ones judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from calibration.relative_fit import redrawn, solve

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
