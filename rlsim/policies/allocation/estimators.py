"""Estimators that allocation strategies share: beliefs about prompts, statistics of rewards, and shares in samples.

``Beliefs`` is a Beta posterior of each prompt's success that forgets; ``Levels`` sorts prompts by it; ``QualityHead``
turns readings at a mark into a probability of success; ``Recent`` holds the last lengths and their quantiles;
``shared_out`` divides a number of samples among groups.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.group_statistics import useful_group_expected
from rlsim.core.hashing import gamma
from rlsim.core.running_mean import RunningMean
from rlsim.core.view import Group, View
from rlsim.policies.hooks import Size


def usual(view: View) -> Size:
    """``workload.group_size`` samples, all of which are needed."""
    return Size(view.shape.group_size, view.shape.group_size)


class WholeGroups:
    """``group_size`` samples of every prompt, and all of them are needed."""

    __slots__ = ()
    aborts_surplus: ClassVar[bool] = True

    def members(self, view: View, group: Group) -> Size:
        """The same for every prompt."""
        return usual(view)


def agree(rewards: Sequence[float]) -> bool:
    """Whether they are all the same: no advantage."""
    return len(set(rewards)) < 2


def mean(rewards: Sequence[float]) -> float:
    """0 where there are none."""
    return sum(rewards) / len(rewards) if rewards else 0.0


def variance(rewards: Sequence[float]) -> float:
    """Mean squared distance from their mean."""
    centre = mean(rewards)
    return mean([(reward - centre) ** 2 for reward in rewards])


def solved(reward: float) -> float:
    """How much of a success a reward is, in [0, 1]."""
    return min(max(reward, 0.0), 1.0)


def first_wave(group: Group, launched: int) -> bool:
    """Whether a group has had no more than the samples that it began with."""
    return group.launched <= launched


PRIOR = 1.0
"""Successes and failures of a prompt that was never sampled: a uniform distribution."""


@dataclass(frozen=True, slots=True)
class Belief:
    """A Beta distribution of the success probability: 1 + successes, 1 + failures, both remembered in part."""

    successes: float = PRIOR
    failures: float = PRIOR

    @property
    def mean(self) -> float:
        """Expected success probability."""
        return self.successes / (self.successes + self.failures)

    @property
    def variance(self) -> float:
        """Of the success probability."""
        total = self.successes + self.failures
        return self.successes * self.failures / (total**2 * (total + 1))

    def useful(self, samples: int) -> float:
        """Expected probability that a group of this size has two rewards."""
        return useful_group_expected(self.successes, self.failures, samples)

    def told(self, rewards: Sequence[float]) -> Belief:
        """With further samples."""
        won = sum(solved(reward) for reward in rewards)
        return Belief(self.successes + won, self.failures + len(rewards) - won)

    def faded(self, kept: float) -> Belief:
        """With this share of what was seen."""
        return Belief(PRIOR + kept * (self.successes - PRIOR), PRIOR + kept * (self.failures - PRIOR))

    def drawn(self, *key: int | str) -> float:
        """A success probability from it, by hash."""
        won = gamma(self.successes, *key, "successes")
        return won / (won + gamma(self.failures, *key, "failures"))


class Beliefs:
    """By prompt: a visit keeps ``kept_per_visit`` of what was seen before, a weights version ``kept_per_version``."""

    def __init__(self, kept_per_visit: float, kept_per_version: float) -> None:
        self._visit, self._version = kept_per_visit, kept_per_version
        self._known: dict[int, tuple[Belief, int]] = {}

    def of(self, prompt: int, version: int) -> Belief:
        """At a version; that of a new prompt is even."""
        belief, updated = self._known.get(prompt, (Belief(), version))
        return belief.faded(self._version ** (version - updated))

    def tell(self, prompt: int, version: int, rewards: Sequence[float]) -> None:
        """How a group came out."""
        self._known[prompt] = (self.of(prompt, version).faded(self._visit).told(rewards), version)


LARGEST_VARIANCE = 0.25
"""Of rewards between 0 and 1."""


class Levels:
    """Prompts by estimated success: ``count`` equal intervals, and one more for prompts that were never sampled."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.beliefs = Beliefs(0.5, 1.0)
        self._sampled: set[int] = set()

    def of(self, prompt: int) -> int:
        """Its level, from hard to easy; ``count`` for a new one."""
        if prompt not in self._sampled:
            return self.count
        return min(self.count - 1, math.floor(self.count * self.beliefs.of(prompt, 0).mean))

    def tell(self, group: Group) -> None:
        """How a group came out."""
        self._sampled.add(group.prompt)
        self.beliefs.tell(group.prompt, 0, group.rewards)


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


class Recent:
    """At most ``kept`` lengths, in tokens; the oldest go first."""

    def __init__(self, kept: int) -> None:
        self._lengths: deque[int] = deque(maxlen=kept)

    def __len__(self) -> int:
        return len(self._lengths)

    def add(self, tokens: int) -> None:
        """See another."""
        self._lengths.append(tokens)

    def quantile(self, share: float) -> int:
        """The shortest that at least this share is not longer than."""
        ordered = sorted(self._lengths)
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def shared_out(total: int, weights: Sequence[float], most: int) -> list[int]:
    """At most ``most`` each, in proportion to the weights by largest remainders; the first among equals.

    What nobody may have, or nobody weighs, is not given out.
    """
    shares = [0] * len(weights)
    left = total
    while left > 0:
        heavy = [index for index, weight in enumerate(weights) if weight > 0 and shares[index] < most]
        if not heavy:
            break
        for index, more in _round(left, [(index, weights[index]) for index in heavy]):
            more = min(more, most - shares[index])
            shares[index] += more
            left -= more
    return shares


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
