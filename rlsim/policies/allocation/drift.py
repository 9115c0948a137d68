"""When does a student's response part from its teacher? Low overlaps, one after the other."""

from __future__ import annotations


class Drifts:
    """Counts readings below ``level``; ``needed`` in a row are a drift, so that one noisy reading is none."""

    def __init__(self, level: float, needed: int) -> None:
        self._level, self._needed = level, needed
        self._low: dict[int, int] = {}
        """Low readings in a row, by sample."""

    def read(self, sample: int, overlap: float) -> bool:
        """Take a reading; whether it is the one that makes a drift."""
        low = self._low.get(sample, 0) + 1 if overlap < self._level else 0
        self._low[sample] = low
        return low == self._needed

    def forget(self, sample: int) -> None:
        """It is done with."""
        self._low.pop(sample, None)
