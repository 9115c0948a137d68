"""Further samples where they make the estimate of success surer: XRPO."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlsim.core.view import Group, Shape, View
from rlsim.policies.allocation.batch_waves import BatchWaves
from rlsim.policies.allocation.beliefs import Belief
from rlsim.policies.allocation.outcomes import first_wave
from rlsim.policies.bounds import at_least, fraction, several
from rlsim.policies.hooks import Size


@dataclass(frozen=True, slots=True)
class Xrpo:
    """Stand-in: half of the samples to every prompt, the rest one by one to the prompt whose mean becomes surest.

    XRPO (systems list entry 88) allocates by uncertainty reduction; its priority is not given in the abstract. Ours is
    the fall of sqrt(p (1 - p) / n) with p = (1 + successes) / (2 + n). The second wave waits for the whole batch: a
    barrier. Exemplars that are put into prompts nobody solves, and novelty, are not simulated.
    """

    first_share: float = 0.5
    """Of ``group_size``, launched for every prompt; rounded up, at least 2."""
    most_ratio: float = 4.0
    """Samples of one prompt, as a multiple of ``group_size``."""

    def start(self, shape: Shape) -> _Surer:
        """Refuse groups of one."""
        several("xrpo", shape)
        fraction("first_share", self.first_share)
        at_least("most_ratio", self.most_ratio, 1)
        return _Surer(self, shape)


class _Surer:
    aborts_surplus = True

    def __init__(self, part: Xrpo, shape: Shape) -> None:
        self._first = max(2, math.ceil(part.first_share * shape.group_size))
        self._rest = shape.group_size - self._first
        self._most = math.floor(part.most_ratio * shape.group_size)
        self._waves = BatchWaves()

    def members(self, view: View, group: Group) -> Size:
        self._waves.opened(group)
        return Size(self._first, self._first)

    def observe(self, view: View, group: Group) -> None:
        """Nothing is remembered."""

    def extend(self, view: View) -> Sequence[tuple[int, int]]:
        return [further for groups in self._waves.at_rest(view) for further in self._shared(groups)]

    def _shared(self, groups: Sequence[Group]) -> list[tuple[int, int]]:
        fresh = [group for group in groups if first_wave(group, self._first)]
        deviations = [_deviation(group.rewards) for group in fresh]
        more = surest(deviations, [group.ended for group in fresh], len(fresh) * self._rest, self._most)
        done = [(group.group, 0) for group in groups if group not in fresh]
        return done + [(group.group, count) for group, count in zip(fresh, more, strict=True)]


def _deviation(rewards: Sequence[float]) -> float:
    success = Belief().told(rewards).mean
    return math.sqrt(success * (1 - success))


def surest(deviations: Sequence[float], counts: Sequence[int], total: int, most: int) -> list[int]:
    """Further samples, each to whoever's deviation / sqrt(n) falls most while n < ``most``; first among equals."""

    def gain(place: int, count: int) -> float:
        return deviations[place] * (1 / math.sqrt(max(1, count)) - 1 / math.sqrt(count + 1))

    now = list(counts)
    queue = [(-gain(place, count), place) for place, count in enumerate(now) if count < most]
    heapq.heapify(queue)
    for _ in range(total):
        if not queue:
            break
        place = queue[0][1]
        now[place] += 1
        if now[place] < most:
            heapq.heapreplace(queue, (-gain(place, now[place]), place))
        else:
            heapq.heappop(queue)
    return [count - before for count, before in zip(now, counts, strict=True)]
