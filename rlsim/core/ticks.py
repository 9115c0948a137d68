"""Time inside the engine: an integer number of picoseconds, so that sums do not depend on their order."""

from __future__ import annotations

Ticks = int
"""Picoseconds since the start of the run."""

TICKS_PER_SECOND = 10**12


def to_ticks(seconds: float) -> Ticks:
    """Nearest whole picosecond."""
    return round(seconds * TICKS_PER_SECOND)


def to_seconds(ticks: Ticks) -> float:
    """Seconds, for output only."""
    return ticks / TICKS_PER_SECOND
