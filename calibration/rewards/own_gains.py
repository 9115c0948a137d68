"""What the groups of a prompt have left with it: the part of gains that does not transfer, from a run's own rewards."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from calibration.rewards.log import RewardLog

Floats = npt.NDArray[np.float64]


def allocated_shares(log: RewardLog, exponent: float) -> Floats:
    """Share of each group in what the step of its version leaves with prompts, times the prompts of the log.

    By ``rlsim.learning.locality``: n I^exponent of its group over those of all groups of the version, each trained on.
    """
    rate = log.successes / log.samples
    weights = log.samples * (rate * (1 - rate)) ** exponent
    total = np.bincount(log.version, weights)[log.version]
    return np.asarray(len(np.unique(log.prompt)) * weights / np.where(total > 0, total, 1.0))


class OwnGains:
    """Sums over the groups of a prompt at earlier versions than a group's."""

    def __init__(self, log: RewardLog, shares: Floats) -> None:
        self._version, self._shares = log.version, shares
        places = np.arange(len(log.prompt))
        other = np.diff(log.prompt, prepend=-1) != 0
        self._begin = np.maximum.accumulate(np.where(other, places, 0))
        self._first = np.maximum.accumulate(np.where(other | (np.diff(log.version, prepend=-1) != 0), places, 0))

    @property
    def told(self) -> bool:
        """Whether any group follows another of its prompt."""
        return bool((self._first > self._begin).any())

    def before(self, gains: Floats) -> Floats:
        """Logits that each group's prompt has for itself if nothing transfers; ``gains`` by version are means."""
        total = np.concatenate([[0.0], np.cumsum(self._shares * gains[self._version])])
        return np.asarray(total[self._first] - total[self._begin])
