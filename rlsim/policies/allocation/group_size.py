"""Group size: how many samples a prompt gets, decided when its group is opened or after a first wave of its own.

The same for all, with some to spare (RollPacker's short rounds) or one by one (SAO); larger as training goes on
(Aryabhata 2); by the difficulty that earlier visits showed (sGPO, GDRO); or a second wave where the first one was
hard (DARS) or contradicts a prior (V0.5).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.checks import at_least, fraction, several
from rlsim.core.errors import ParameterError
from rlsim.core.group_statistics import inverse_success_group
from rlsim.core.hashing import uniform
from rlsim.core.view import Group, RunSizes, View
from rlsim.policies.allocation.estimators import (
    LARGEST_VARIANCE,
    Beliefs,
    Levels,
    first_wave,
    mean,
    solved,
    usual,
    variance,
)
from rlsim.policies.hooks import Offer, Pick, Size
from rlsim.policies.registry import part


@part("allocation", "uniform")
@dataclass(frozen=True, slots=True)
class UniformGroups:
    """``group_size`` samples and ``redundancy`` more; a group is complete with the first ``group_size`` that end."""

    redundancy: int = 0
    aborts_surplus: bool = True
    """Whether what a complete group no longer needs is aborted, or runs on to be thrown away."""
    samples: int | None = None
    """Of a group, instead of ``workload.group_size``; None for that."""

    def start(self, shape: RunSizes) -> UniformGroups:
        """Refuse a negative redundancy, and a group without samples."""
        at_least("redundancy", self.redundancy, 0)
        if self.samples is not None:
            at_least("samples", self.samples, 1)
        return self

    @property
    def resizes(self) -> bool:
        """Whether groups have a size of their own."""
        return self.samples is not None

    @property
    def spares(self) -> bool:
        """With a redundancy."""
        return self.redundancy > 0

    def members(self, view: View, group: Group) -> Size:
        """The same for every prompt."""
        needed = self.samples or view.shape.group_size
        return Size(needed + self.redundancy, needed)


@part("allocation", "dars")
@dataclass(frozen=True, slots=True)
class Dars:
    """Stand-in: a second wave for prompts solved less than half of the time, up to n 2 sqrt(p (1 - p)) = group_size.

    DARS (systems list entry 149) gives hard problems more rollouts in stages; the measure, a group's sum of normalised
    absolute advantages, is ours. DARS-B is the same with a large ``prompts_per_step`` and full-batch updates over
    epochs.
    """

    most_extra_ratio: float = 2.0
    """Further samples of one prompt, as a multiple of ``group_size``: also what a prompt gets that nobody solved."""

    def start(self, shape: RunSizes) -> _Deeper:
        """Refuse groups of one."""
        several("dars", shape)
        at_least("most_extra_ratio", self.most_extra_ratio, 0)
        return _Deeper(self, shape)


class _Deeper:
    aborts_surplus = True

    def __init__(self, part: Dars, shape: RunSizes) -> None:
        self._size = shape.group_size
        self._most = math.floor(part.most_extra_ratio * shape.group_size)

    def members(self, view: View, group: Group) -> Size:
        return usual(view)

    def extend(self, view: View) -> Sequence[tuple[int, int]]:
        return [
            (number, self.extra(mean([solved(reward) for reward in group.rewards])) if self._begun(group) else 0)
            for number, group in view.waiting_for_wave.items()
        ]

    def _begun(self, group: Group) -> bool:
        return first_wave(group, self._size)

    def extra(self, success: float) -> int:
        """Further samples at this share of successes."""
        if success >= 0.5:
            return 0
        weight = 2 * math.sqrt(success * (1 - success))
        return min(self._most, math.ceil(self._size * (1 / weight - 1))) if weight else self._most

    def observe(self, view: View, group: Group) -> None:
        """Nothing is remembered."""


@part("allocation", "group-schedule")
@dataclass(frozen=True, slots=True)
class GroupSchedule:
    """Stand-in: ``first_samples`` a group at first, ``growth`` times as many each ``stage_steps``, to ``group_size``.

    Aryabhata 2, systems list entry 289: progressively larger groups; sizes and stages are ours.
    """

    first_samples: int = 4
    """Of a group in the first stage."""
    growth: float = 2.0
    """Of the group size, from stage to stage; rounded down."""
    stage_steps: int = 100
    """Training steps of a stage; a group counts for the step that it is generated for."""
    aborts_surplus: ClassVar[bool] = True
    resizes: ClassVar[bool] = True

    def start(self, shape: RunSizes) -> GroupSchedule:
        """Refuse a schedule that shrinks."""
        if not 1 <= self.first_samples <= shape.group_size:
            raise ParameterError("first_samples", self.first_samples, f"1 to group_size = {shape.group_size}")
        at_least("growth", self.growth, 1)
        at_least("stage_steps", self.stage_steps, 1)
        return self

    def members(self, view: View, group: Group) -> Size:
        """Size of the stage."""
        size, most = float(self.first_samples), view.shape.group_size
        for _ in range(group.target // self.stage_steps):
            if size >= most or self.growth == 1:
                break
            size *= self.growth
        whole = min(most, int(size))
        return Size(whole, whole)


@part("allocation", "v0.5")
@dataclass(frozen=True, slots=True)
class PriorTested:
    """Stand-in: half a group; the other half where its mean is ``critical`` standard errors from a prior.

    V0.5 (systems list entry 25) takes the prior from a pre-trained value model, which is not simulated: ours is a Beta
    posterior of the prompt's past. The fused baseline is the learning model's (``effect.baseline``).
    """

    first_share: float = 0.5
    """Of ``group_size``, launched at once; rounded up, at least 2."""
    critical: float = 1.64
    """Two-sided test at a level of one in ten."""
    kept_per_version: float = 0.98
    """Of what was seen of a prompt."""

    def start(self, shape: RunSizes) -> _Testing:
        """Refuse groups of one."""
        several("v0.5", shape)
        fraction("first_share", self.first_share)
        at_least("critical", self.critical, 0)
        fraction("kept_per_version", self.kept_per_version)
        return _Testing(self, shape)


class _Testing:
    aborts_surplus = True

    def __init__(self, part: PriorTested, shape: RunSizes) -> None:
        self._critical = part.critical
        self._first = max(2, math.ceil(part.first_share * shape.group_size))
        self._second = shape.group_size - self._first
        self._beliefs = Beliefs(1.0, part.kept_per_version)

    def members(self, view: View, group: Group) -> Size:
        return Size(self._first, self._first)

    def extend(self, view: View) -> Sequence[tuple[int, int]]:
        return [
            (number, self._second if first_wave(group, self._first) and self._surprised(view, group) else 0)
            for number, group in view.waiting_for_wave.items()
        ]

    def _surprised(self, view: View, group: Group) -> bool:
        """Whether the prior is not trusted: its own variance and the sampling error do not explain the mean."""
        prior, rewards = self._beliefs.of(group.prompt, view.version), group.rewards
        if not rewards:
            return False
        error = math.sqrt(prior.variance + prior.mean * (1 - prior.mean) / len(rewards))
        return abs(mean([solved(reward) for reward in rewards]) - prior.mean) > self._critical * error

    def observe(self, view: View, group: Group) -> None:
        self._beliefs.tell(group.prompt, view.version, group.rewards)


@part("allocation", "sgpo")
@dataclass(frozen=True, slots=True)
class Sgpo:
    """Stand-in: ceil(1 / p) samples, p of the first visit; solved prompts dropped, hopeless ones seldom, easy first.

    sGPO, systems list entry 85; bounds and sub-sampling are ours. The profile is not a pass before training: the first
    visit of a prompt, with ``group_size`` samples, is its profile and is trained on, so its cost is in the run.
    """

    most_ratio: float = 4.0
    """Samples of a group, as a multiple of ``group_size``; the least is 2."""
    hopeless_kept: float = 0.25
    """Visits of prompts without a success in their profile, with ``group_size`` samples; the others are skipped."""
    candidates: int = 64
    """Prompts that are sorted at a time."""

    def start(self, shape: RunSizes) -> _Sorted:
        """Refuse bounds that leave no group, and groups of one."""
        several("sgpo", shape)
        at_least("most_ratio", self.most_ratio, 1)
        fraction("hopeless_kept", self.hopeless_kept)
        at_least("candidates", self.candidates, 1)
        return _Sorted(self, shape)


class _Sorted:
    aborts_surplus = True
    resizes = True

    def __init__(self, part: Sgpo, shape: RunSizes) -> None:
        self._part, self._seed, self.candidates = part, shape.seed, part.candidates
        self._most = math.floor(part.most_ratio * shape.group_size)
        self._profile: dict[int, float] = {}
        self._window: set[int] = set()
        """Draws that are being gone through, from easy to hard."""

    def members(self, view: View, group: Group) -> Size:
        success = self._profile.get(group.prompt, 0.0)
        if success == 0:
            return usual(view)
        size = min(self._most, max(2, math.ceil(inverse_success_group(success))))
        return Size(size, size)

    def pick(self, view: View, offers: Sequence[Offer]) -> Pick:
        dropped = {place for place, offer in enumerate(offers) if self._drops(offer)}
        left = [place for place in range(len(offers)) if place not in dropped]
        if not left:
            return Pick(len(offers) - 1, tuple(range(len(offers) - 1)))
        self._window &= {offers[place].draw for place in left}
        if not self._window:
            self._window = {offers[place].draw for place in left}
        within = [place for place in left if offers[place].draw in self._window]
        # Easy ones first, and those without a profile before them.
        taken = max(within, key=lambda place: self._profile.get(offers[place].prompt, math.inf))
        self._window.discard(offers[taken].draw)
        return Pick(taken, tuple(sorted(dropped)))

    def _drops(self, offer: Offer) -> bool:
        success = self._profile.get(offer.prompt)
        hopeless = success == 0 and uniform(self._seed, "sgpo", offer.draw) > self._part.hopeless_kept
        return success == 1 or hopeless

    def observe(self, view: View, group: Group) -> None:
        """Only the first visit counts."""
        self._profile.setdefault(group.prompt, mean([solved(reward) for reward in group.rewards]))


@part("allocation", "gdro-rollout")
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


@part("allocation", "short-rounds")
@dataclass(frozen=True, slots=True)
class ShortRounds:
    """``eta_r`` times ``group_size`` samples of a new prompt, the first to end count; no more of one put off before.

    arXiv 2509.21009: over-issue is for short rounds only.
    """

    eta_r: float = 1.25
    """Samples launched for a new prompt, as a multiple of ``group_size``."""
    aborts_surplus: ClassVar[bool] = True

    @property
    def spares(self) -> bool:
        """With a ratio above 1."""
        return self.eta_r > 1

    def start(self, shape: RunSizes) -> ShortRounds:
        """Refuse a group smaller than needed."""
        at_least("eta_r", self.eta_r, 1)
        return self

    def members(self, view: View, group: Group) -> Size:
        """More than needed of a new prompt."""
        size = view.shape.group_size
        return Size(size if group.recycle else math.ceil(self.eta_r * size), size)


@part("allocation", "single")
@dataclass(frozen=True, slots=True)
class Single:
    """Groups of one, so that a finished sample waits for no sibling."""

    aborts_surplus: ClassVar[bool] = True

    def start(self, shape: RunSizes) -> Single:
        """Refuse larger groups."""
        if shape.group_size != 1:
            raise ParameterError("use", "single", f"workload.group_size: 1 with it, not {shape.group_size}")
        return self

    def members(self, view: View, group: Group) -> Size:
        """One."""
        return Size(1, 1)
