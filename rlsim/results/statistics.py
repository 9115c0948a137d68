"""Means over replications, with Student's t: the run is the unit, never the step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlsim.core.errors import ParameterError


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over ``n`` replications; ``low`` and ``high`` are None where one run says nothing of the spread."""

    mean: float
    low: float | None
    high: float | None
    n: int


def interval(values: Sequence[float], confidence: float = 0.95) -> Estimate:
    """Mean and t interval with n - 1 degrees of freedom; ``ParameterError`` without finite values."""
    finite = _finite(values, "values")
    if not 0 < confidence < 1:
        raise ParameterError("confidence", confidence, "a number between 0 and 1")
    mean, n = float(np.mean(finite)), len(finite)
    if n == 1:
        return Estimate(mean, None, None, 1)
    degrees = n - 1
    probability = 0.5 + confidence / 2
    from scipy.special import stdtrit

    half = float(stdtrit(degrees, probability)) * float(np.std(finite, ddof=1)) / math.sqrt(n)
    return Estimate(mean, mean - half, mean + half, n)


def paired_difference(a: Sequence[float], b: Sequence[float], confidence: float = 0.95) -> Estimate:
    """``a`` - ``b``, replication by replication."""
    return interval([x - y for x, y in _pairs(a, b)], confidence)


def paired_ratio(a: Sequence[float], b: Sequence[float], confidence: float = 0.95) -> Estimate:
    """``a`` / ``b``: the geometric mean of the ratios of replications, and the interval of their logarithms."""
    pairs = _pairs(a, b)
    for name, values in (("a", a), ("b", b)):
        if min(values) <= 0:
            raise ParameterError(name, min(values), "numbers above 0, for a ratio")
    logs = interval([math.log(x) - math.log(y) for x, y in pairs], confidence)
    low = None if logs.low is None else math.exp(logs.low)
    high = None if logs.high is None else math.exp(logs.high)
    return Estimate(math.exp(logs.mean), low, high, logs.n)


def _pairs(a: Sequence[float], b: Sequence[float]) -> list[tuple[float, float]]:
    if len(a) != len(b):
        raise ParameterError("b", len(b), f"as many replications as a ({len(a)})")
    return list(zip(_finite(a, "a"), _finite(b, "b"), strict=True))


def _finite(values: Sequence[float], name: str) -> list[float]:
    numbers = [float(value) for value in values]
    if not numbers:
        raise ParameterError(name, numbers, "at least one value")
    for value in numbers:
        if not math.isfinite(value):
            raise ParameterError(name, value, "finite numbers")
    return numbers
