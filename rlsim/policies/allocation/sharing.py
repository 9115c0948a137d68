"""A number of samples shared out among groups, in whole samples."""

from __future__ import annotations

import math
from collections.abc import Sequence


def shared_out(total: int, weights: Sequence[float], most: int) -> list[int]:
    """At most ``most`` each, in proportion to the weights by largest remainders; the first among equals.

    What nobody may have, or nobody weighs, is not given out.
    """
    given = [0] * len(weights)
    left = total
    while left > 0:
        heavy = [place for place, weight in enumerate(weights) if weight > 0 and given[place] < most]
        if not heavy:
            break
        for place, more in _round(left, [(place, weights[place]) for place in heavy]):
            more = min(more, most - given[place])
            given[place] += more
            left -= more
    return given


def _round(total: int, weights: Sequence[tuple[int, float]]) -> list[tuple[int, int]]:
    """Largest remainders: all of ``total``."""
    heaviest = max(weight for _, weight in weights)
    scaled = [(place, weight / heaviest) for place, weight in weights]
    whole = sum(weight for _, weight in scaled)
    exact = [(place, total * weight / whole) for place, weight in scaled]
    floors = {place: math.floor(share) for place, share in exact}
    spare = total - sum(floors.values())
    by_remainder = sorted(exact, key=lambda pair: (-round(pair[1] - floors[pair[0]], 12), pair[0]))
    for place, _ in by_remainder[:spare]:
        floors[place] += 1
    return list(floors.items())
