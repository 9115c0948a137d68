"""Coefficients with intervals: least squares on few columns, and means, both with Student's t."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rlsim.core.errors import ParameterError

if TYPE_CHECKING:
    from numpy.typing import NDArray

CONFIDENCE = 0.95
LEAST_VARIATION = 0.02
"""Relative standard deviation below which a column does not vary: noise would be fitted."""
RESOLUTION = 1e-5
"""Relative: what a log's digits leave open even where all its values are equal."""
MOST_SHARED = 0.98
"""R squared of one column on another from which their effects cannot be told apart."""


@dataclass(frozen=True, slots=True)
class LogEstimate:
    """One fitted number, by the key that it has in a scenario or a profile, and its 95 % interval."""

    key: str
    value: float
    low: float
    high: float
    source: str
    """The columns, and how."""

    def contains(self, value: float) -> bool:
        """Whether ``value`` is in the interval."""
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{self.key} = {self.value:.4g} ({self.low:.4g} to {self.high:.4g}), from {self.source}"


@dataclass(frozen=True, slots=True)
class LinearEstimate:
    """A linear fit: coefficients and the ends of their intervals, in the order of the columns."""

    coefficients: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def estimate(self, index: int, key: str, source: str) -> LogEstimate:
        """One coefficient."""
        value, low, high = (float(part[index]) for part in (self.coefficients, self.low, self.high))
        return LogEstimate(key, value, low, high, source)


def least_squares(target: NDArray[np.float64], columns: Sequence[NDArray[np.float64]]) -> LinearEstimate:
    """Ordinary least squares of ``target`` on ``columns``, without a constant unless one is among them."""
    from scipy.stats import t

    design = np.stack(columns, axis=1)
    scale = np.abs(design).max(axis=0)
    scaled = design / scale
    solution = np.linalg.lstsq(scaled, target, rcond=None)[0]
    freedom = len(target) - design.shape[1]
    if freedom < 1:
        raise ParameterError("steps", len(target), f"more than {design.shape[1]}, the coefficients to fit")
    spread = float(np.sqrt(((target - scaled @ solution) ** 2).sum() / freedom))
    errors = spread * np.sqrt(np.diag(np.linalg.pinv(scaled.T @ scaled)))
    reach = float(t.ppf(0.5 + CONFIDENCE / 2, freedom)) * errors
    return LinearEstimate(solution / scale, (solution - reach) / scale, (solution + reach) / scale)


def mean_of(key: str, values: NDArray[np.float64], source: str) -> LogEstimate:
    """The mean, and its interval over independent steps."""
    mean, reach = float(values.mean()), mean_reach(values)
    return LogEstimate(key, mean, mean - reach, mean + reach, source)


def mean_reach(values: NDArray[np.float64]) -> float:
    """Half the interval of a mean."""
    from scipy.stats import t

    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    return float(t.ppf(0.5 + CONFIDENCE / 2, len(values) - 1)) * error + RESOLUTION * abs(float(values.mean()))


def check_varies(origin: str, name: str, values: NDArray[np.float64], of: str) -> None:
    """``ParameterError`` for a column whose effect cannot be seen because it is always the same."""
    mean = float(values.mean())
    variation = float(values.std() / abs(mean)) if mean else 0.0
    if variation < LEAST_VARIATION:
        value = f"{name} varies by {variation:.2%} over {len(values)} steps"
        raise ParameterError(origin, value, f"a variation of at least {LEAST_VARIATION:.0%}: {of} cannot be fitted")


def shared(column: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """R squared of one column on another; 1 where one of them is constant."""
    if not column.std() or not other.std():
        return 1.0
    return float(np.corrcoef(column, other)[0, 1] ** 2)
