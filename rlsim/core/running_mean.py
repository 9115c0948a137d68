"""Mean and spread of numbers that come one by one."""

from __future__ import annotations

import math


class RunningMean:
    """Of all numbers so far (Welford 1962)."""

    __slots__ = ("_squares", "count", "mean")

    def __init__(self) -> None:
        self.count = 0
        self.mean = self._squares = 0.0

    def add(self, value: float) -> None:
        """See another."""
        self.count += 1
        before = value - self.mean
        self.mean += before / self.count
        self._squares += before * (value - self.mean)

    @property
    def squares(self) -> float:
        """Sum of the squared distances from the mean."""
        return self._squares

    @property
    def deviation(self) -> float:
        """Standard deviation of the numbers; 0 of fewer than two."""
        return math.sqrt(self._squares / (self.count - 1)) if self.count > 1 else 0.0
