"""From a reading at a mark to a probability of success, learnt from how earlier samples came out."""

from __future__ import annotations

import math
from collections import defaultdict

from rlsim.core.view import Group
from rlsim.policies.allocation.running_mean import RunningMean

SOLVED = 0.5
"""Rewards above it are successes."""
_LEAST_VARIANCE = 1e-6
_MOST_LOGIT = 50.0


class QualityHead:
    """A linear discriminant for each mark: readings of successes and of failures are normal with one variance.

    The live counterpart is a head on the hidden states; here the reading is its score, and this its calibration.
    """

    def __init__(self, least_seen: int) -> None:
        """It says nothing at a mark before it has seen so many successes there, and as many failures."""
        self._least = least_seen
        self._of: defaultdict[tuple[int, bool], RunningMean] = defaultdict(RunningMean)
        self._readings: dict[int, dict[int, float]] = {}
        """By sample and mark, until it is known how it came out."""

    def read(self, sample: int, mark: int, value: float) -> float | None:
        """Take a reading; the probability of success that it tells, None while too little is known."""
        self._readings.setdefault(sample, {})[mark] = value
        won, lost = self._of[mark, True], self._of[mark, False]
        if min(won.count, lost.count) < max(1, self._least):
            return None
        variance = max(_LEAST_VARIANCE, (won.squares + lost.squares) / max(1, won.count + lost.count - 2))
        apart = (won.mean - lost.mean) / variance * (value - (won.mean + lost.mean) / 2)
        logit = math.log(won.count / lost.count) + apart
        return 1 / (1 + math.exp(-min(_MOST_LOGIT, max(-_MOST_LOGIT, logit))))

    def observe(self, group: Group) -> None:
        """Learn from members that came to their own end: what was cut says nothing of how it would have ended."""
        for member in group.members:
            for mark, value in self._readings.pop(member.sample, {}).items():
                if not member.truncated:
                    self._of[mark, (member.reward or 0.0) > SOLVED].add(value)

    def forget(self, sample: int) -> None:
        """Given up: nobody will know how it came out."""
        self._readings.pop(sample, None)
