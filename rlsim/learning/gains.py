"""How far training moves a prompt, by how often it succeeds.

``Alike``: a gain of g logits moves every prompt by g. ``Reinforced``: what moves a prompt are the successes of groups
like its own, each by its advantage, so that a group of n samples with k successes gives 1 - k / n if it holds one, and
nothing if not. A prompt that succeeds with p then moves by

    dx / dg = E[1 - k / n; k > 0] = (1 - p) (1 - (1 - p)^(n - 1)),

and g is the logits that a prompt would gain that seldom succeeds, but in every group. What is hard catches up with what
is easy, and what never succeeds stays. Ours; live runs show both (docs/evidence/index.md).
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from typing import Protocol

import numpy as np

from rlsim.core.streams import FloatArray

LARGEST_SHIFT = 40.0
FARTHEST = 30.0
"""Logits beyond which a prompt that is reinforced does not move."""
NODES_A_LOGIT = 100
LARGEST_GAIN = 1e12
"""From even odds on it takes this to come as far as ``FARTHEST``."""


class Gains(Protocol):
    """A law of moves."""

    shifts: FloatArray
    """Gains at which populations are tabulated, in order, from what was lost to what is gained."""

    def moved(self, logit: float, gain: float) -> float:
        """Where training that gains ``gain`` moves a prompt from ``logit``."""

    def all_moved(self, logits: FloatArray, gains: FloatArray) -> FloatArray:
        """The same for many, by numpy's rules of shapes."""


class Alike(Gains):
    """Every prompt by the same logits."""

    shifts = np.linspace(-LARGEST_SHIFT, LARGEST_SHIFT, 2001)

    def moved(self, logit: float, gain: float) -> float:
        return logit + gain

    def all_moved(self, logits: FloatArray, gains: FloatArray) -> FloatArray:
        return np.asarray(logits + gains)


class Reinforced(Gains):
    """Each prompt as its successes teach it, in groups of ``samples``."""

    shifts = np.sinh(np.linspace(-np.arcsinh(LARGEST_GAIN), np.arcsinh(LARGEST_GAIN), 2001))

    def __init__(self, samples: int, value_baseline: bool) -> None:
        self._logits, self._times = _times(samples if value_baseline else samples - 1)
        self._by_place: list[float] = self._times.tolist()
        self._last = len(self._by_place) - 2

    def moved(self, logit: float, gain: float) -> float:
        """Along dx / dg, through the table; a prompt beyond it stays."""
        if not -FARTHEST < logit < FARTHEST:
            return logit
        place = (logit + FARTHEST) * NODES_A_LOGIT
        times, index = self._by_place, min(int(place), self._last)
        low = times[index]
        time = low + (place - index) * (times[index + 1] - low) + gain
        index = min(max(bisect_right(times, time) - 1, 0), self._last)
        low = times[index]
        share = min(1.0, max(0.0, (time - low) / (times[index + 1] - low)))
        return (index + share) / NODES_A_LOGIT - FARTHEST

    def all_moved(self, logits: FloatArray, gains: FloatArray) -> FloatArray:
        times = np.interp(logits, self._logits, self._times) + gains
        inside = np.abs(logits) < FARTHEST
        return np.asarray(np.where(inside, np.interp(times, self._times, self._logits), logits))


@lru_cache(maxsize=8)
def _times(others: int) -> tuple[FloatArray, FloatArray]:
    """Logits in order, and the gain that it takes to come to each from even odds."""
    half = np.arange(1, round(FARTHEST * NODES_A_LOGIT) + 1) / NODES_A_LOGIT
    logits = np.concatenate([-half[::-1], [0.0], half])
    failing = -np.logaddexp(0.0, logits)
    slow = np.exp(-failing) / -np.expm1(others * failing)
    steps = (slow[1:] + slow[:-1]) / (2 * NODES_A_LOGIT)
    below, above = steps[: len(half)], steps[len(half) :]
    return logits, np.concatenate([-np.cumsum(below[::-1])[::-1], [0.0], np.cumsum(above)])


def gains_named(name: str, samples: int, value_baseline: bool) -> Gains:
    """``alike`` or ``reinforced``, in groups of so many samples."""
    return Reinforced(samples, value_baseline) if name == "reinforced" else Alike()
