"""Whether samples end in the same order in two runs, and at the same times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rlsim.sim.recorded import Key


@dataclass(frozen=True, slots=True)
class Order:
    """The ends of the samples of a live run, and those of a simulated one."""

    samples: int
    """That ended in both."""
    unmatched: int
    """That ended in one of them only."""
    pairs: int
    """Of samples that ended in both, live more than a tie apart."""
    inversions: int
    """Pairs among these that end in the other order."""
    tie_seconds: float
    median_seconds: float
    """Of the absolute differences of a sample's two ends."""
    worst_seconds: float


def order_of(live: Mapping[Key, float], simulated: Mapping[Key, float], tie_seconds: float) -> Order:
    """Compare; ends that are no more than ``tie_seconds`` apart live may come in either order."""
    both = sorted(live.keys() & simulated.keys(), key=lambda key: live[key])
    mine = np.array([live[key] for key in both])
    other = np.array([simulated[key] for key in both])
    pairs = inversions = 0
    for index, end in enumerate(mine):
        later = int(np.searchsorted(mine, end + tie_seconds, side="right"))
        pairs += len(mine) - later
        inversions += int((other[later:] < other[index]).sum())
    apart = np.abs(mine - other)
    return Order(
        len(both),
        len(live.keys() ^ simulated.keys()),
        pairs,
        inversions,
        tie_seconds,
        float(np.median(apart)) if len(apart) else 0.0,
        float(apart.max(initial=0.0)),
    )
