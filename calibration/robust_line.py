"""Non-negative robust least squares on relative errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
