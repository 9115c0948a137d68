"""Groups of prompts of like difficulty: which to sample more often, which with more samples (GDRO)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlsim.core.checks import at_least, fraction, several
from rlsim.core.errors import ParameterError
from rlsim.core.hashing import uniform
from rlsim.core.view import Group, RunSizes, View
from rlsim.policies.allocation.estimators import Beliefs, usual, variance
from rlsim.policies.allocation.prompt_selection import Pool, by_weight, check_pool
from rlsim.policies.hooks import Offer, Pick, Size

LARGEST_VARIANCE = 0.25
"""Of rewards between 0 and 1."""


class Levels:
    """Prompts by estimated success: ``count`` equal intervals, and one more for prompts that were never sampled."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._beliefs = Beliefs(0.5, 1.0)
        self._seen: set[int] = set()

    def of(self, prompt: int) -> int:
        """Its level, from hard to easy; ``count`` for a new one."""
        if prompt not in self._seen:
            return self.count
        return min(self.count - 1, math.floor(self.count * self._beliefs.of(prompt, 0).mean))

    def tell(self, group: Group) -> None:
        """How a group came out."""
        self._seen.add(group.prompt)
        self._beliefs.tell(group.prompt, 0, group.rewards)


@dataclass(frozen=True, slots=True)
class GdroPrompt:
    """Stand-in: prompts drawn with weight exp(eta * signal) of their level; signal: mean reward variance over 1/4.

    Prompt-GDRO (systems list entry 21) has an online classifier and a multiplicative-weights bandit with debiased
    moving averages. Which loss it weighs is not given in the abstract: ours is what a policy gradient has of a level.
    """

    levels: int = 5
    """Intervals of estimated success."""
    eta: float = 3.0
    """How much the weights follow the signal."""
    smoothing: float = 0.95
    """Of the moving average, a group."""
    pool: float = 2.0
    """Prompts drawn from, as a multiple of ``prompts_per_step``; the rest is passed over until the next epoch."""

    def start(self, shape: RunSizes) -> _Weighted:
        """Refuse levels and averages that are none."""
        several("gdro-prompt", shape)
        at_least("levels", self.levels, 1)
        fraction("smoothing", self.smoothing)
        if self.smoothing == 1:
            raise ParameterError("smoothing", 1, "below 1: nothing would be learnt")
        check_pool(self.pool)
        return _Weighted(self, shape)


class _Weighted:
    aborts_surplus = True

    def __init__(self, part: GdroPrompt, shape: RunSizes) -> None:
        self._part, self._seed = part, shape.seed
        self._levels = Levels(part.levels)
        self._averages = [0.0] * (part.levels + 1)
        self._weights = [0.0] * (part.levels + 1)
        """Of the averages: 1 - smoothing^n, which takes their start at 0 out."""
        self._pool = Pool(shape, part.pool, self._worth)
        self.candidates = self._pool.candidates

    def members(self, view: View, group: Group) -> Size:
        return usual(view)

    def pick(self, view: View, offers: Sequence[Offer]) -> Pick:
        return self._pool.pick(view, offers)

    def signal(self, level: int) -> float:
        """In [0, 1]; the largest possible for a level that was never met."""
        return self._averages[level] / self._weights[level] if self._weights[level] else 1.0

    def _worth(self, view: View, offer: Offer) -> float:
        logarithm = self._part.eta * self.signal(self._levels.of(offer.prompt))
        return by_weight(logarithm, self._seed, "gdro-prompt", offer.draw)

    def observe(self, view: View, group: Group) -> None:
        level, kept = self._levels.of(group.prompt), self._part.smoothing
        told = variance(group.rewards) / LARGEST_VARIANCE
        self._averages[level] = kept * self._averages[level] + (1 - kept) * told
        self._weights[level] = kept * self._weights[level] + 1 - kept
        self._levels.tell(group)


@dataclass(frozen=True, slots=True)
class GdroRollout:
    """Stand-in: samples of a level in proportion to the root of its reward variance, at a price that keeps the mean.

    Rollout-GDRO, systems list entry 21: square-root allocation and a shadow price at a fixed mean budget; the update of
    the price, the levels and the bounds are ours. The mean is over groups: levels differ in length, so tokens may not
    keep theirs.
    """

    levels: int = 5
    """Intervals of estimated success."""
    smoothing: float = 0.95
    """Of the moving average of a level's variance, a group."""
    price_step: float = 0.05
    """Relative change of the price for a group of twice the mean size."""
    most_ratio: float = 4.0
    """Samples of a group, as a multiple of ``group_size``; the least is 2."""

    def start(self, shape: RunSizes) -> _Priced:
        """Refuse bounds that leave no group, and groups of one."""
        several("gdro-rollout", shape)
        at_least("levels", self.levels, 1)
        fraction("smoothing", self.smoothing)
        at_least("price_step", self.price_step, 0)
        at_least("most_ratio", self.most_ratio, 1)
        return _Priced(self, shape)


class _Priced:
    aborts_surplus = True
    resizes = True

    def __init__(self, part: GdroRollout, shape: RunSizes) -> None:
        self._part, self._seed, self._mean = part, shape.seed, shape.group_size
        self._levels = Levels(part.levels)
        self._variances = [LARGEST_VARIANCE] * (part.levels + 1)
        self._price = LARGEST_VARIANCE / shape.group_size**2

    def members(self, view: View, group: Group) -> Size:
        exact = math.sqrt(self._variances[self._levels.of(group.prompt)] / self._price)
        exact = min(self._part.most_ratio * self._mean, max(2.0, exact))
        self._price *= math.exp(self._part.price_step * (exact / self._mean - 1))
        size = math.floor(exact + uniform(self._seed, "gdro-rollout", group.group))
        return Size(size, size)

    def observe(self, view: View, group: Group) -> None:
        level, count = self._levels.of(group.prompt), len(group.rewards)
        if count > 1:
            unbiased = variance(group.rewards) * count / (count - 1)
            kept = self._part.smoothing
            self._variances[level] = kept * self._variances[level] + (1 - kept) * unbiased
        self._levels.tell(group)
