"""A host whose clock only moves by the work on it: a known law, jitter, and bursts in which everything is slow."""

from __future__ import annotations

import numpy as np


class NoisyHost:
    """Runs work of known seconds on a shared machine.

    Jitter: half a per cent either way and an exponential delay of 2 % on average. Bursts: for a quarter of the time,
    in stretches of seconds, everything takes 1.2 to 2 times as long, as on shared machines (repeats of one point 20
    to 50 % apart).
    """

    def __init__(self, seed: int, calm: bool = False) -> None:
        self._draw = np.random.default_rng(seed)
        self._calm = calm
        self._now = 0.0
        self._changes_at, self._factor = 0.0, 1.0

    def clock(self) -> float:
        """Seconds so far."""
        return self._now

    def run(self, seconds: float) -> float:
        """What the work is measured to take."""
        if self._calm:
            self._now += seconds
            return seconds
        while self._now >= self._changes_at:
            bursting = self._factor > 1
            self._factor = 1.0 if bursting else float(self._draw.uniform(1.2, 2.0))
            self._changes_at += float(self._draw.exponential(6.0 if bursting else 2.0))
        taken = seconds * self._factor * (1 + 0.005 * self._draw.standard_normal() + self._draw.exponential(0.02))
        self._now += taken
        return float(taken)
