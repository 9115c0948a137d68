"""Filtering: groups, samples or prompts that teach nothing are left out, and others take their place.

Complete groups whose rewards agree are thrown away, one by one or round by round (DAPO); prompts that taught nothing
of late are skipped before they are sampled (DEPO, GRESO); of a group, the samples with the most varied rewards are
trained on (D3S), or all but the median (MC-GRPO).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from rlsim.core.checks import at_least, fraction, several
from rlsim.core.hashing import uniform
from rlsim.core.view import Group, RunSizes, Sample, View
from rlsim.policies.allocation.estimators import Beliefs, agree, mean, usual, variance
from rlsim.policies.allocation.prompt_selection import first_useful
from rlsim.policies.hooks import Offer, Pick, Size
from rlsim.policies.registry import part


@part("allocation", "dapo")
@dataclass(frozen=True, slots=True)
class DynamicSampling:
    """Train on groups whose rewards are not all the same; sample further prompts until there are enough.

    DAPO, arXiv 2503.14476 section 3.2 (there: accuracy neither 0 nor 1).
    """

    redundancy: int = 0
    """Samples of a prompt beyond ``group_size``; the first to end count."""
    aborts_surplus: ClassVar[bool] = True

    def start(self, shape: RunSizes) -> DynamicSampling:
        """Refuse a group that cannot have two rewards."""
        at_least("redundancy", self.redundancy, 0)
        several("dapo", shape)
        return self

    def members(self, view: View, group: Group) -> Size:
        """The same for every prompt."""
        return Size(view.shape.group_size + self.redundancy, view.shape.group_size)

    def observe(self, view: View, group: Group) -> None:
        """Nothing is remembered."""

    def rejects(self, view: View, group: Group) -> bool:
        """Whether all its rewards are the same."""
        return agree(group.rewards)


@part("allocation", "d3s")
@dataclass(frozen=True, slots=True)
class D3S:
    """Stand-in: the part of a group with the largest reward variance; its share grows from ``first_share`` on.

    D^3S, systems list entry 197: maximal advantage variance and a ratio that relaxes; the schedule is ours, and subsets
    are taken group by group. Its selection of tokens is not simulated.
    """

    first_share: float = 0.5
    """Of a group, trained on at first; rounded up, at least 2 samples."""
    last_share: float = 1.0
    """In the end."""
    relaxing_steps: int = 200
    """Training steps from the one to the other, in a straight line."""
    aborts_surplus: ClassVar[bool] = True

    def start(self, shape: RunSizes) -> D3S:
        """Refuse shares that are none, and groups of one."""
        several("d3s", shape)
        for name in ("first_share", "last_share"):
            fraction(name, getattr(self, name))
        at_least("relaxing_steps", self.relaxing_steps, 1)
        return self

    def members(self, view: View, group: Group) -> Size:
        """The same for every prompt."""
        return usual(view)

    def observe(self, view: View, group: Group) -> None:
        """Nothing is remembered."""

    def share(self, step: int) -> float:
        """Trained on in a step."""
        return self.first_share + (self.last_share - self.first_share) * min(1.0, step / self.relaxing_steps)

    def unselected(self, view: View, group: Group) -> Sequence[Sample]:
        """All but the most different ones."""
        count = max(2, math.ceil(self.share(view.steps_begun) * len(group.members)))
        return most_alike(group.members, count) if count < len(group.members) else ()


def most_alike(members: Sequence[Sample], count: int) -> Sequence[Sample]:
    """What is left without the ``count`` members of largest reward variance, some of the lowest and of the highest."""
    ranked = sorted(members, key=lambda sample: sample.reward or 0.0)
    spare = len(ranked) - count

    def kept_variance(low: int) -> float:
        return variance([sample.reward or 0.0 for sample in ranked[:low] + ranked[low + spare :]])

    low = max(range(count + 1), key=lambda low: (round(kept_variance(low), 12), -abs(2 * low - count)))
    return ranked[low : low + spare]


@part("allocation", "dapo-rounds")
@dataclass(frozen=True, slots=True)
class RoundwiseSampling:
    """As ``dapo``, but groups are judged when all that is under way has ended, and not one by one.

    verl's DAPO recipe (``recipe/dapo/dapo_ray_trainer.py``), MiMo's naive dynamic sampling; with admission ``rounds``.
    """

    aborts_surplus: ClassVar[bool] = True
    judges_rounds: ClassVar[bool] = True

    def start(self, shape: RunSizes) -> RoundwiseSampling:
        """Refuse a group that cannot have two rewards."""
        several("dapo-rounds", shape)
        return self

    def members(self, view: View, group: Group) -> Size:
        """The same for every prompt."""
        return Size(view.shape.group_size, view.shape.group_size)

    def extend(self, view: View) -> Sequence[tuple[int, int]]:
        """All groups that wait are complete, with the last of the round."""
        return () if view.running_samples else [(number, 0) for number in view.waiting_for_wave]

    def observe(self, view: View, group: Group) -> None:
        """Nothing is remembered."""

    def rejects(self, view: View, group: Group) -> bool:
        """Whether all its rewards are the same."""
        return agree(group.rewards)


@part("allocation", "depo")
@dataclass(frozen=True, slots=True)
class Depo:
    """Stand-in: skip prompts whose group would have two rewards with a posterior probability below ``least_useful``.

    DEPO (systems list entry 129) removes prompts by an online difficulty estimate before any rollout; the estimator is
    not given in the abstract. Ours is a Beta posterior of the prompt's past, which fades as weights change: prompts
    return.
    """

    least_useful: float = 0.3
    """1 - E[p^n] - E[(1 - p)^n] below which a prompt is skipped."""
    kept_per_version: float = 0.98
    """Of what was seen of a prompt."""
    candidates: int = 32
    """Prompts looked at for one that is sampled; if all are to be skipped, the most useful one is sampled."""

    def start(self, shape: RunSizes) -> _Removing:
        """Refuse groups of one."""
        several("depo", shape)
        fraction("least_useful", self.least_useful)
        fraction("kept_per_version", self.kept_per_version)
        at_least("candidates", self.candidates, 1)
        return _Removing(self)


class _Removing:
    aborts_surplus = True

    def __init__(self, part: Depo) -> None:
        self._part, self.candidates = part, part.candidates
        self._beliefs = Beliefs(1.0, part.kept_per_version)

    def members(self, view: View, group: Group) -> Size:
        return usual(view)

    def pick(self, view: View, offers: Sequence[Offer]) -> Pick:
        beliefs = (self._beliefs.of(offer.prompt, view.version) for offer in offers)
        return first_useful((belief.useful(view.shape.group_size) for belief in beliefs), self._part.least_useful)

    def observe(self, view: View, group: Group) -> None:
        self._beliefs.tell(group.prompt, view.version, group.rewards)


Kind = Literal["easy", "hard"]


@part("allocation", "greso")
@dataclass(frozen=True, slots=True)
class Greso:
    """Skip a prompt with probability 1 - p^z after z groups in a row without variance; reject and refill those made.

    GRESO, arXiv 2506.02177 (probabilistic pre-rollout filtering, self-adjusting exploration). Ours: rejected groups are
    refilled one by one and not in adaptive batches, and a streak counts easy and hard groups alike.
    """

    exploration: float = 0.5
    """p of easy (every reward high) and of hard prompts at first."""
    exploration_step: float = 0.01
    """By which p falls after a step with more groups of that kind than its share, and rises after one with fewer."""
    easy_share: float = 0.083
    """Groups without variance that are let through, of those made: solved ones."""
    hard_share: float = 0.167
    """Failed ones."""
    candidates: int = 32
    """Prompts looked at for one that is sampled; if all are to be skipped, the last is sampled."""

    def start(self, shape: RunSizes) -> _Skipping:
        """Refuse probabilities that are none, and groups of one."""
        for name in ("exploration", "exploration_step", "easy_share", "hard_share"):
            fraction(name, getattr(self, name))
        at_least("candidates", self.candidates, 1)
        several("greso", shape)
        return _Skipping(self, shape)


class _Skipping:
    aborts_surplus = True

    def __init__(self, part: Greso, shape: RunSizes) -> None:
        self._part, self._seed, self.candidates = part, shape.seed, part.candidates
        self._explored: dict[Kind, float] = {"easy": part.exploration, "hard": part.exploration}
        self._streaks: dict[int, tuple[int, Kind]] = {}
        self._made: Counter[str] = Counter()
        self._step = 0

    def members(self, view: View, group: Group) -> Size:
        return usual(view)

    def pick(self, view: View, offers: Sequence[Offer]) -> Pick:
        kept = (place for place, offer in enumerate(offers) if not self._skips(offer))
        taken = next(kept, len(offers) - 1)
        return Pick(taken, tuple(range(taken)))

    def _skips(self, offer: Offer) -> bool:
        """The same answer for a prompt as long as it is on offer and nothing is learnt."""
        if offer.prompt not in self._streaks:
            return False
        streak, kind = self._streaks[offer.prompt]
        return uniform(self._seed, "greso", offer.draw) > self._explored[kind] ** streak

    def observe(self, view: View, group: Group) -> None:
        if view.steps_begun > self._step:
            # Explore less of what came too often.
            shares: dict[Kind, float] = {"easy": self._part.easy_share, "hard": self._part.hard_share}
            for often, allowed in shares.items():
                step = self._part.exploration_step
                change = -step if self._made[often] >= allowed * self._made["all"] else step
                self._explored[often] = min(1.0, max(step, self._explored[often] + change))
            self._made.clear()
            self._step = view.steps_begun
        self._made["all"] += 1
        if not agree(group.rewards):
            self._streaks.pop(group.prompt, None)
            return
        kind: Kind = "easy" if mean(group.rewards) > 0.5 else "hard"
        self._made[kind] += 1
        streak, _ = self._streaks.get(group.prompt, (0, kind))
        self._streaks[group.prompt] = (streak + 1, kind)

    def rejects(self, view: View, group: Group) -> bool:
        return agree(group.rewards)


@part("allocation", "mc-grpo")
@dataclass(frozen=True, slots=True)
class McGrpo:
    """``group_size`` + 1 samples; the one with the median reward is the baseline and is not trained on.

    MC-GRPO, systems list entry 126. Of several with that reward the first is left out; where ``group_size`` is odd, the
    upper of the two in the middle.
    """

    aborts_surplus: ClassVar[bool] = True
    resizes: ClassVar[bool] = True

    def start(self, shape: RunSizes) -> McGrpo:
        """Refuse groups of one."""
        several("mc-grpo", shape)
        return self

    def members(self, view: View, group: Group) -> Size:
        """One more."""
        return Size(view.shape.group_size + 1, view.shape.group_size + 1)

    def observe(self, view: View, group: Group) -> None:
        """Nothing is remembered."""

    def unselected(self, view: View, group: Group) -> Sequence[Sample]:
        """The pivot."""
        if len(group.members) < 2:
            return ()
        median = sorted(group.rewards)[len(group.members) // 2]
        return [next(sample for sample in group.members if (sample.reward or 0.0) == median)]
