"""Random extra time of engine steps, exact in distribution under jumps and cuts.

Every step takes its law's time less ``mean_ps`` plus an independent gamma variable of that mean and of shape ``shape``
(1: exponential), so the mean is the law's and each step has a standard deviation of ``mean_ps / sqrt(shape)``.
The extra of ``n`` steps is one gamma draw of shape ``n*shape``; given it, the extra of the first ``m`` is a beta share
of it. A window so costs O(log n) draws whatever its length.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Protocol

import numpy as np

from rlsim.core.ticks import Ticks


class Extra(Protocol):
    """What the steps of a replica take beside their law."""

    def open(self, steps: int) -> None:
        """A new window of at most ``steps`` steps."""
        ...

    def ticks(self, steps: int) -> Ticks:
        """Of the window's first ``steps`` steps; may be negative."""
        ...


class StepNoise:
    """The gamma path of one replica's steps, drawn where it is looked at."""

    def __init__(self, rng: np.random.Generator, mean_ps: int, shape: float = 1.0) -> None:
        self._rng, self._mean, self._shape = rng, mean_ps, shape
        self._steps, self._extra = [0], [0.0]

    def open(self, steps: int) -> None:
        """A new window of at most ``steps`` steps."""
        extra = self._rng.gamma(steps * self._shape) * self._mean / self._shape
        self._steps, self._extra = [0, steps], [0.0, extra]

    def ticks(self, steps: int) -> Ticks:
        """Extra time of the window's first ``steps`` steps, less its mean."""
        at = bisect_left(self._steps, steps)
        if self._steps[at] != steps:
            self._split(at, steps)
        return round(self._extra[at]) - steps * self._mean

    def _split(self, at: int, steps: int) -> None:
        """Draw the path at ``steps`` between two points already known."""
        before, after = self._steps[at - 1], self._steps[at]
        low, high = self._extra[at - 1], self._extra[at]
        share = self._rng.beta((steps - before) * self._shape, (after - steps) * self._shape)
        self._steps.insert(at, steps)
        self._extra.insert(at, low + (high - low) * share)
