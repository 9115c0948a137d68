"""The best prompts of a pool: the loader's next ones are compared, and what a batch does not take is passed over."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from rlsim.core.view import Shape, View
from rlsim.policies.bounds import at_least
from rlsim.policies.hashed import exponential
from rlsim.policies.hooks import Offer, Pick


class Pool:
    """Picks whatever is worth most; when a batch has been picked, the others wait for the next epoch.

    A prompt is valued once, when it comes on offer.
    """

    def __init__(self, shape: Shape, size: float, worth: Callable[[View, Offer], float]) -> None:
        self.candidates = math.ceil(size * shape.prompts_per_step)
        self._batch, self._picked = shape.prompts_per_step, 0
        self._worth, self._known = worth, dict[int, float]()

    def pick(self, view: View, offers: Sequence[Offer]) -> Pick:
        """The first among equals."""
        for offer in offers:
            if offer.draw not in self._known:
                self._known[offer.draw] = self._worth(view, offer)
        best = max(range(len(offers)), key=lambda place: self._known[offers[place].draw])
        self._picked += 1
        if self._picked % self._batch:
            del self._known[offers[best].draw]
            return Pick(best)
        self._known.clear()
        return Pick(best, tuple(place for place in range(len(offers)) if place != best))


def first_useful(worths: Iterable[float], least: float) -> Pick:
    """The first that is worth at least so much, or else the best; all others that were looked at are passed over."""
    seen: list[float] = []
    for place, worth in enumerate(worths):
        seen.append(worth)
        if worth >= least:
            return Pick(place, tuple(range(place)))
    best = seen.index(max(seen))
    return Pick(best, tuple(place for place in range(len(seen)) if place != best))


def check_pool(pool: float) -> None:
    """Refuse a pool that is smaller than the batch."""
    at_least("pool", pool, 1)


def by_weight(logarithm: float, *key: int | str) -> float:
    """A worth that picks whoever has weight exp(logarithm) with that weight, by hash.

    The least of exponentials of rate w is the i-th with probability w_i / sum w.
    """
    return logarithm - math.log(exponential(*key))
