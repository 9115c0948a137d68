"""Standard errors of what maximises a sum over independent parts, right for parts of another distribution too.

Huber (1967) and White (1982): the inverse curvature on both sides of the outer product of the scores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

Z95 = 1.959964
STEP = 1e-2
"""Difference that stands for derivatives.

Likelihoods summed over a grid of scores are rough at a tenth of it: second differences would depend on the processor
and its rounding, intervals by a factor of two.
"""


def standard_errors(parts: Callable[[Floats], Floats], x: Floats, free: Sequence[int]) -> Floats:
    """Standard errors at ``x``, shape (unknowns,); 0 for those not in ``free``.

    ``parts(x)`` are the log-likelihoods of the parts, shape (parts,).
    """

    steps = [STEP * (np.arange(len(x)) == unknown) for unknown in free]

    def scores(at: Floats) -> Floats:
        """Derivatives of each part, shape (parts, free unknowns)."""
        return np.stack([(parts(at + step) - parts(at - step)) / (2 * STEP) for step in steps], axis=1)

    hessian = np.array([(scores(x + step).sum(0) - scores(x - step).sum(0)) / (2 * STEP) for step in steps])
    inverse_curvature = np.linalg.pinv(-(hessian + hessian.T) / 2)
    at_x = scores(x)
    covariance = inverse_curvature @ (at_x.T @ at_x) @ inverse_curvature
    errors = np.zeros_like(x)
    errors[list(free)] = np.sqrt(np.maximum(0.0, np.diag(covariance)))
    return errors
