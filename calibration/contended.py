"""How much longer things last while something else runs beside them: one factor, fitted with the law it multiplies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from calibration.robust_line import robust
from rlsim.core.ticks import Ticks

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
