"""Coefficients with intervals: least squares on few columns, and means, robust to drift and autocorrelation.

Steps of a run are neither independent nor equally noisy: lengths drift, a slow network lasts for hours. Intervals
are the wider of the ordinary ones and of those of the equal-weighted cosine estimator of the long-run variance, with
Student's t of as many degrees of freedom as cosines (Lazarus, Lewis, Stock and Watson, "HAR Inference:
Recommendations for Practice", 2018).
"""

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
COSINES, COSINE_POWER, FEWEST_COSINES = 0.4, 2 / 3, 2
"""Cosines of the long-run variance: 0.4 n^(2/3), as the paper recommends."""
DISTURBED, LEAST_DISTURBANCE = 8.0, 0.25
"""Standard deviations of normal noise, and share of the value, from which a step is taken for a disturbed one."""


@dataclass(frozen=True, slots=True)
class LogEstimate:
    """One fitted number, by the key that it has in a scenario or a profile, and its 95 % interval."""

    key: str
    value: float
    low: float
    high: float
    source: str
    """The columns, and how."""
    bound: str = ""
    """The bound that the value is at, where it is at one."""

    def contains(self, value: float) -> bool:
        """Whether ``value`` is in the interval."""
        return self.low <= value <= self.high

    @property
    def interval(self) -> str:
        """The value's interval, and its bound where it is at one."""
        bound = f", at its bound {self.bound}" if self.bound else ""
        return f"{self.low:.4g} to {self.high:.4g}{bound}"

    def __str__(self) -> str:
        return f"{self.key} = {self.value:.4g} ({self.interval}), from {self.source}"


@dataclass(frozen=True, slots=True)
class JointEstimate:
    """Numbers that stand for each other, and what they come to together at the mean work, which is far surer."""

    keys: tuple[str, str]
    correlation: float
    """Of the errors of the two."""
    together: LogEstimate

    def __str__(self) -> str:
        first, second = self.keys
        return (
            f"{first} and {second} stand for each other (correlation {self.correlation:+.2f}); "
            f"together {self.together.key} {self.together.value:.4g} s ({self.together.interval})"
        )


@dataclass(frozen=True, slots=True)
class OpenQuantity:
    """What a log does not tell: why, what stands in the scenario instead, and which log would tell it."""

    name: str
    why: str
    kept: str = "as in the base"
    told_by: str = ""

    def __str__(self) -> str:
        source = f"; {self.told_by} would tell" if self.told_by else ""
        return f"{self.name}: {self.why}; {self.kept}{source}"


@dataclass(frozen=True, slots=True)
class LinearEstimate:
    """A linear fit: coefficients in the order of the columns, and how sure any sum of them is."""

    coefficients: NDArray[np.float64]
    covariances: tuple[tuple[NDArray[np.float64], float], ...]
    """Ordinary and robust, each with its quantile of Student's t."""

    def reach(self, weights: Sequence[float]) -> float:
        """Half the interval of a weighted sum of the coefficients."""
        each = np.asarray(weights, dtype=float)
        return max(quantile * float(np.sqrt(max(0.0, each @ part @ each))) for part, quantile in self.covariances)

    @property
    def half(self) -> NDArray[np.float64]:
        """Half the intervals of the coefficients."""
        return np.array([self.reach(row.tolist()) for row in np.eye(len(self.coefficients))])

    @property
    def low(self) -> NDArray[np.float64]:
        """Lower ends of the intervals."""
        return self.coefficients - self.half

    @property
    def high(self) -> NDArray[np.float64]:
        """Upper ends of the intervals."""
        return self.coefficients + self.half

    def correlation(self) -> float:
        """Correlation of the errors of the first two coefficients."""
        covariance = self.covariances[0][0]
        spread = float(np.sqrt(covariance[0, 0] * covariance[1, 1]))
        return float(covariance[0, 1]) / spread if spread else 0.0

    def estimate(self, index: int, key: str, source: str) -> LogEstimate:
        """One coefficient."""
        value, low, high = (float(part[index]) for part in (self.coefficients, self.low, self.high))
        return LogEstimate(key, value, low, high, source)

    def together(self, weights: Sequence[float], key: str, source: str) -> LogEstimate:
        """A weighted sum of the coefficients."""
        value, reach = float(np.asarray(weights) @ self.coefficients), self.reach(weights)
        return LogEstimate(key, value, value - reach, value + reach, source)


def least_squares(target: NDArray[np.float64], columns: Sequence[NDArray[np.float64]]) -> LinearEstimate:
    """Ordinary least squares of ``target`` on ``columns``, without a constant unless one is among them.

    Raises ``ParameterError`` for no more rows than columns.
    """
    design = np.stack(columns, axis=1)
    scale = np.abs(design).max(axis=0)
    scaled = design / scale
    solution = np.linalg.lstsq(scaled, target, rcond=None)[0]
    freedom = len(target) - design.shape[1]
    if freedom < 1:
        raise ParameterError("steps", len(target), f"more than {design.shape[1]}, the coefficients to fit")
    residuals = target - scaled @ solution
    inverse = np.linalg.pinv(scaled.T @ scaled)
    ordinary = inverse * float((residuals**2).sum()) / freedom
    cosines = _cosines(len(target))
    scores = cosines @ (scaled * residuals[:, None])
    middle = scores.T @ scores / len(cosines) * len(target) / freedom
    units = np.outer(scale, scale)
    robust = (inverse @ middle @ inverse) / units
    return LinearEstimate(solution / scale, ((ordinary / units, _quantile(freedom)), (robust, _quantile(len(cosines)))))


def _cosines(count: int) -> NDArray[np.float64]:
    """Slow cosines over the rows, each of length ``sqrt(count)``, shape (cosines, rows)."""
    number = max(FEWEST_COSINES, int(COSINES * count**COSINE_POWER))
    phases = np.outer(np.arange(1, number + 1), np.arange(count) + 0.5) * np.pi / count
    cosines: NDArray[np.float64] = np.sqrt(2.0) * np.cos(phases)
    return cosines


def _quantile(freedom: int) -> float:
    from scipy.stats import t

    return float(t.ppf(0.5 + CONFIDENCE / 2, freedom))


def mean_of(key: str, values: NDArray[np.float64], source: str) -> LogEstimate:
    """The mean, and its interval over steps that may drift."""
    mean, reach = float(values.mean()), mean_reach(values)
    return LogEstimate(key, mean, mean - reach, mean + reach, source)


def mean_reach(values: NDArray[np.float64]) -> float:
    """Half the interval of a mean."""
    reach = least_squares(values, [np.ones(len(values))]).reach([1.0])
    return reach + RESOLUTION * abs(float(values.mean()))


def independent_reach(values: NDArray[np.float64]) -> float:
    """Half the interval of the mean of independent values, such as those of replications."""
    spread = float(values.std(ddof=1)) / math.sqrt(len(values))
    return _quantile(len(values) - 1) * spread + RESOLUTION * abs(float(values.mean()))


def undisturbed(values: NDArray[np.float64], expected: NDArray[np.float64] | None = None) -> NDArray[np.bool_]:
    """Which values are not far off what is expected, by default their median.

    A step in which a run was restarted, saved or hung is no step of the run; by ``DISTURBED`` and
    ``LEAST_DISTURBANCE`` steps of usual noise stay in.
    """
    centre = np.full(len(values), float(np.median(values))) if expected is None else expected
    errors = np.abs(values - centre)
    width = 1.4826 * float(np.median(errors))
    usual: NDArray[np.bool_] = errors <= np.maximum(DISTURBED * width, LEAST_DISTURBANCE * np.abs(centre))
    return usual


def check_varies(origin: str, name: str, values: NDArray[np.float64], of: str) -> None:
    """``ParameterError`` for a column whose effect cannot be seen because it is always the same."""
    variation = variation_of(values)
    if variation < LEAST_VARIATION:
        value = f"{name} varies by {variation:.2%} over {len(values)} steps"
        raise ParameterError(origin, value, f"a variation of at least {LEAST_VARIATION:.0%}: {of} cannot be fitted")


def variation_of(values: NDArray[np.float64]) -> float:
    """Standard deviation over the mean."""
    mean = float(values.mean())
    return float(values.std() / abs(mean)) if mean else 0.0


def shared(column: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """R squared of one column on another; 1 where one of them is constant."""
    if not column.std() or not other.std():
        return 1.0
    return float(np.corrcoef(column, other)[0, 1] ** 2)
