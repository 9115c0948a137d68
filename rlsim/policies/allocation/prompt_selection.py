"""Prompt selection: the loader's next prompts are compared, and the best of them are sampled.

What a batch does not take is passed over until the next epoch. Worth is distance to a target difficulty, the odds
that rewards differ (VADE, HIVE, which also checks entropy at the start of the response), the signal of a level of
difficulty (GDRO), or a prediction of success and length (MASA).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.checks import at_least, fraction, several
from rlsim.core.commands import Watch
from rlsim.core.errors import ParameterError
from rlsim.core.hashing import exponential
from rlsim.core.running_mean import RunningMean
from rlsim.core.view import Group, RunSizes, Sample, View
from rlsim.policies.allocation.estimators import LARGEST_VARIANCE, Beliefs, Levels, WholeGroups, solved, variance
from rlsim.policies.hooks import Offer, Pick, Verdict
from rlsim.policies.registry import part


class PromptPool:
    """Picks whatever is worth most; when a batch has been picked, the others wait for the next epoch.

    A prompt is valued once, when it comes on offer.
    """

    def __init__(self, shape: RunSizes, size: float, worth: Callable[[View, Offer], float]) -> None:
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


class BestOfPool(WholeGroups):
    """Groups of the usual size, of the prompts of a pool that ``worth`` puts first."""

    def __init__(self, shape: RunSizes, size: float, beliefs: Beliefs) -> None:
        self._beliefs, self._pool = beliefs, PromptPool(shape, size, self.worth)
        self.candidates = self._pool.candidates

    def pick(self, view: View, offers: Sequence[Offer]) -> Pick:
        """The best of the pool."""
        return self._pool.pick(view, offers)

    def worth(self, view: View, offer: Offer) -> float:
        """Value of a prompt, to be compared with those of the others on offer."""
        raise NotImplementedError

    def observe(self, view: View, group: Group) -> None:
        """Believe what the group showed."""
        self._beliefs.tell(group.prompt, view.version, group.rewards)


def first_useful(worths: Iterable[float], least: float) -> Pick:
    """The first that is worth at least so much, or else the best; all others that were looked at are passed over."""
    compared: list[float] = []
    for index, worth in enumerate(worths):
        compared.append(worth)
        if worth >= least:
            return Pick(index, tuple(range(index)))
    best = compared.index(max(compared))
    return Pick(best, tuple(index for index in range(len(compared)) if index != best))


def check_pool(pool: float) -> None:
    """Refuse a pool that is smaller than the batch."""
    at_least("pool", pool, 1)


def by_weight(logarithm: float, *key: int | str) -> float:
    """A worth that picks whoever has weight exp(logarithm) with that weight, by hash.

    The least of exponentials of rate w is the i-th with probability w_i / sum w.
    """
    return logarithm - math.log(exponential(*key))


@part("allocation", "difficulty-targeted")
@dataclass(frozen=True, slots=True)
class DifficultyTargeted:
    """Stand-in: prompts drawn with weight exp(-|p - target| / temperature), p estimated from their own past.

    Systems list entry 307 estimates p of all questions by attention over the rollouts of a small reference set; texts
    are not simulated, so a prompt that was never sampled is taken for one of even odds. Replay is another part.
    """

    target_success: float = 0.5
    """Success probability that is aimed at."""
    temperature: float = 0.1
    """Distance from it at which the weight has fallen to 1 / e."""
    kept_per_version: float = 0.98
    """Of what was seen of a prompt."""
    pool: float = 2.0
    """Prompts drawn from, as a multiple of ``prompts_per_step``; the rest is passed over until the next epoch."""

    def start(self, shape: RunSizes) -> _Targeted:
        """Refuse a temperature of 0, and groups of one."""
        several("difficulty-targeted", shape)
        fraction("target_success", self.target_success)
        if not self.temperature > 0:
            raise ParameterError("temperature", self.temperature, "above 0")
        fraction("kept_per_version", self.kept_per_version)
        check_pool(self.pool)
        return _Targeted(self, shape)


class _Targeted(BestOfPool):
    def __init__(self, part: DifficultyTargeted, shape: RunSizes) -> None:
        super().__init__(shape, part.pool, Beliefs(1.0, part.kept_per_version))
        self._part, self._seed = part, shape.seed

    def worth(self, view: View, offer: Offer) -> float:
        distance = abs(self._beliefs.of(offer.prompt, view.version).mean - self._part.target_success)
        return by_weight(-distance / self._part.temperature, self._seed, "difficulty-targeted", offer.draw)


@part("allocation", "hive")
@dataclass(frozen=True, slots=True)
class Hive:
    """Stand-in: the prompts with the largest p (1 - p) by history; a group is given up if its entropy is low when read.

    HIVE (systems list entry 141): reward history, then prompt entropy as a check at the time. Ours reads ``entropy`` on
    the first sample's first tokens, for want of a pass that only prefills; what the group made until then is its cost.
    """

    check_tokens: int = 16
    """Tokens of the first sample at which entropy is read; a response that is shorter is not checked."""
    least_entropy: float = 0.2
    """Reading below which the group is given up and another prompt sampled; 4 p (1 - p) and noise in the simulator."""
    kept_per_version: float = 0.98
    """Of what was seen of a prompt."""
    pool: float = 2.0
    """Prompts compared, as a multiple of ``prompts_per_step``; the rest is passed over until the next epoch."""

    def start(self, shape: RunSizes) -> _Checking:
        """Refuse a check before there is anything to read, and groups of one."""
        several("hive", shape)
        at_least("check_tokens", self.check_tokens, 2)
        fraction("kept_per_version", self.kept_per_version)
        check_pool(self.pool)
        return _Checking(self, shape)


class _Checking(BestOfPool):
    signals: ClassVar[tuple[str, ...]] = ("entropy",)

    def __init__(self, part: Hive, shape: RunSizes) -> None:
        super().__init__(shape, part.pool, Beliefs(1.0, part.kept_per_version))
        self._part = part

    def worth(self, view: View, offer: Offer) -> float:
        success = self._beliefs.of(offer.prompt, view.version).mean
        return success * (1 - success)

    def watch(self, view: View, sample: Sample) -> Watch | None:
        before = sample.turn == 0 and sample.made_tokens < self._part.check_tokens
        return Watch("entropy", (self._part.check_tokens,)) if before and sample.member == 0 else None

    def on_watch(self, view: View, sample: Sample, tokens: int, value: float) -> Verdict:
        members = sample.group.members
        fresh = all(member.state != "ended" for member in members)
        return Verdict(pruned=tuple(members)) if fresh and value < self._part.least_entropy else Verdict()


@part("allocation", "gdro-prompt")
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

    def start(self, shape: RunSizes) -> _LevelWeighted:
        """Refuse levels and averages that are none."""
        several("gdro-prompt", shape)
        at_least("levels", self.levels, 1)
        fraction("smoothing", self.smoothing)
        if self.smoothing == 1:
            raise ParameterError("smoothing", 1, "below 1: nothing would be learnt")
        check_pool(self.pool)
        return _LevelWeighted(self, shape)


class _LevelWeighted(BestOfPool):
    def __init__(self, part: GdroPrompt, shape: RunSizes) -> None:
        self._levels = Levels(part.levels)
        super().__init__(shape, part.pool, self._levels.beliefs)
        self._part, self._seed = part, shape.seed
        self._averages = [0.0] * (part.levels + 1)
        self._weights = [0.0] * (part.levels + 1)
        """Of the averages: 1 - smoothing^n, which takes their start at 0 out."""

    def signal(self, level: int) -> float:
        """In [0, 1]; the largest possible for a level that was never met."""
        return self._averages[level] / self._weights[level] if self._weights[level] else 1.0

    def worth(self, view: View, offer: Offer) -> float:
        logarithm = self._part.eta * self.signal(self._levels.of(offer.prompt))
        return by_weight(logarithm, self._seed, "gdro-prompt", offer.draw)

    def observe(self, view: View, group: Group) -> None:
        level, kept = self._levels.of(group.prompt), self._part.smoothing
        signal = variance(group.rewards) / LARGEST_VARIANCE
        self._averages[level] = kept * self._averages[level] + (1 - kept) * signal
        self._weights[level] = kept * self._weights[level] + 1 - kept
        self._levels.tell(group)


OWN_COUNTS_FROM = 4
"""Right responses of a prompt that weigh as much as all others' together in its predicted length."""


@part("allocation", "masa")
@dataclass(frozen=True, slots=True)
class MetaPredictions:
    """Stand-in: prompts whose groups will agree are passed over; responses much longer than right ones are ended.

    MASA, systems list entry 219 (its abstract: the model predicts a prompt's pass rate and length itself, from its
    meta-awareness). Ours: both are predicted from the run's history, so that a prompt's first visit is never filtered;
    a response that is ended earns nothing. Numbers are ours.
    """

    least_useful: float = 0.3
    """Expected probability of two rewards in a group below which a prompt is passed over until the next epoch."""
    candidates: int = 16
    """Prompts looked at for one that is sampled; if none is useful, the most useful one is sampled."""
    slack: float = 2.0
    """Length at which a response is ended, as a multiple of the predicted length of a right one."""
    least_seen: int = 32
    """Right responses before any is ended."""
    kept_per_version: float = 0.98
    """Of what was seen of a prompt."""

    def start(self, shape: RunSizes) -> _Predicting:
        """Refuse groups of one, and lengths below what is right."""
        several("masa", shape)
        at_least("candidates", self.candidates, 1)
        at_least("slack", self.slack, 1)
        at_least("least_seen", self.least_seen, 1)
        fraction("least_useful", self.least_useful)
        fraction("kept_per_version", self.kept_per_version)
        return _Predicting(self)


class _Predicting(WholeGroups):
    def __init__(self, spec: MetaPredictions) -> None:
        self._spec, self.candidates = spec, spec.candidates
        self._beliefs = Beliefs(1.0, spec.kept_per_version)
        self._right = RunningMean()
        self._right_of: defaultdict[int, RunningMean] = defaultdict(RunningMean)
        """Lengths of right responses, of all prompts and by prompt."""

    def pick(self, view: View, offers: Sequence[Offer]) -> Pick:
        """The first that is useful; those before it are passed over."""
        beliefs = (self._beliefs.of(offer.prompt, view.version) for offer in offers)
        return first_useful((belief.useful(view.shape.group_size) for belief in beliefs), self._spec.least_useful)

    def cap_tokens(self, view: View, sample: Sample) -> int:
        """Beyond it a response is unlikely to be right."""
        if self._right.count < self._spec.least_seen:
            return 0
        own = self._right_of.get(sample.group.prompt, RunningMean())
        total = self._right.mean * OWN_COUNTS_FROM + own.mean * own.count
        return math.ceil(self._spec.slack * total / (OWN_COUNTS_FROM + own.count))

    def observe(self, view: View, group: Group) -> None:
        """Learn the success and the length of right responses."""
        self._beliefs.tell(group.prompt, view.version, group.rewards)
        for member in group.members:
            if solved(member.reward or 0.0) == 1.0:
                self._right.add(member.response_tokens)
                self._right_of[group.prompt].add(member.response_tokens)


@part("allocation", "vade")
@dataclass(frozen=True, slots=True)
class Vade:
    """Stand-in: prompts with the largest p (1 - p), p drawn from a Beta posterior that fades by visit and by version.

    VADE, systems list entry 98: Beta posterior, Thompson sampling, a prior decay on two scales; the pool and the rates
    are ours. No samples beyond those of the batch.
    """

    kept_per_visit: float = 0.7
    """Of what was seen of a prompt before, when it is sampled again."""
    kept_per_version: float = 0.98
    """Of what was seen, when weights change."""
    pool: float = 2.0
    """Prompts compared, as a multiple of ``prompts_per_step``; the rest is passed over until the next epoch."""

    def start(self, shape: RunSizes) -> _Thompson:
        """Refuse groups of one."""
        several("vade", shape)
        fraction("kept_per_visit", self.kept_per_visit)
        fraction("kept_per_version", self.kept_per_version)
        check_pool(self.pool)
        return _Thompson(self, shape)


class _Thompson(BestOfPool):
    def __init__(self, part: Vade, shape: RunSizes) -> None:
        super().__init__(shape, part.pool, Beliefs(part.kept_per_visit, part.kept_per_version))
        self._seed = shape.seed

    def worth(self, view: View, offer: Offer) -> float:
        success = self._beliefs.of(offer.prompt, view.version).drawn(self._seed, "vade", offer.draw)
        return success * (1 - success)
