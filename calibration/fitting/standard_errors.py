"""Standard errors of what maximises a sum over independent parts; right for parts of another law too."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

Z95 = 1.959964
STEP = 1e-3
"""Of the differences that stand for derivatives."""


def standard_errors(parts: Callable[[Floats], Floats], x: Floats, free: Sequence[int]) -> Floats:
    """By the sandwich at ``x``, shape (unknowns,); 0 for those not in ``free``. ``parts(x)`` has shape (parts,)."""

    def scores(at: Floats) -> Floats:
        columns = []
        for i in free:
            step = np.zeros_like(at)
            step[i] = STEP
            columns.append((parts(at + step) - parts(at - step)) / (2 * STEP))
        return np.stack(columns, axis=1)

    rows = []
    for i in free:
        step = np.zeros_like(x)
        step[i] = STEP
        rows.append((scores(x + step).sum(0) - scores(x - step).sum(0)) / (2 * STEP))
    bread = np.linalg.pinv(-(np.array(rows) + np.array(rows).T) / 2)
    each = scores(x)
    errors = np.zeros_like(x)
    errors[list(free)] = np.sqrt(np.maximum(0.0, np.diag(bread @ (each.T @ each) @ bread)))
    return errors
