"""Non-negative robust fits on relative errors, resamples of them, and the errors of what was not fitted.

Laws here are linear in their unknowns: a row a point, a column an unknown, and seconds that are never zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

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
