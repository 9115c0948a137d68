"""Reuse: what has been trained on is trained on again, or drafts the next responses to its prompt.

Whole groups are replayed for a share of the batch (replay buffers) or in place of groups that teach nothing (POPO);
the last response is verified as a draft and continued where the new weights reject it (SPEC-RL).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from rlsim.core.checks import at_least
from rlsim.core.errors import ParameterError
from rlsim.core.view import Group, RunSizes, Sample, View
from rlsim.policies.allocation.estimators import agree, usual, variance
from rlsim.policies.hooks import Size
from rlsim.policies.registry import part

Choice = Literal["variance", "newest", "oldest"]


@part("allocation", "replay")
@dataclass(frozen=True, slots=True)
class Replay:
    """Stand-in: a share of the groups opened are ones trained on before, the best of a buffer with an age limit.

    Difficulty-targeted selection with rollout replay (systems list 307) re-uses recent rollouts: ``order: newest``.
    SAPO (117) mixes own rollouts with its peers', of which older own ones are all that one run has: ``share: 0.5``.
    R-OPD (65) stops sampling after a while and replays its first trajectories: ``share: 1``, ``order: oldest``,
    ``after_steps: 40``, with an age and a number of uses that allow it; its trigger, gradient noise, is not seen here.
    """

    share: float = 0.5
    """Of the groups opened, those that are trained on again; fewer as long as the buffer has none. 1: no new prompt."""
    after_steps: int = 0
    """Training steps before anything is trained on again."""
    max_age_versions: int = 8
    """Weights versions since a group was admitted, beyond which it is forgotten."""
    max_uses: int = 1
    """Times that a group is trained on again."""
    order: Choice = "variance"
    """Which goes first: that with the largest variance of rewards (then the newest), the newest or the oldest."""
    redundancy: int = 0
    """Samples of a prompt beyond ``group_size``; the first to end count."""
    aborts_surplus: ClassVar[bool] = True

    def start(self, shape: RunSizes) -> Buffer:
        """Refuse what is no share, and limits below what they mean."""
        if not 0 <= self.share <= 1:
            raise ParameterError("share", self.share, "from 0 to 1")
        at_least("after_steps", self.after_steps, 0)
        at_least("max_age_versions", self.max_age_versions, 0)
        at_least("max_uses", self.max_uses, 1)
        at_least("redundancy", self.redundancy, 0)
        return Buffer(self)


@dataclass(slots=True)
class Buffer:
    """What has been opened, and what of it was there before."""

    spec: Replay
    aborts_surplus: bool = True
    _opened: int = field(default=0)
    _again: int = field(default=0)

    def members(self, view: View, group: Group) -> Size:
        """The same for every prompt."""
        self._opened += view.steps_done >= self.spec.after_steps
        return Size(view.shape.group_size + self.spec.redundancy, view.shape.group_size)

    def observe(self, view: View, group: Group) -> None:
        """Nothing is remembered but what is trained on."""

    def trained(self, view: View, group: Group) -> Sequence[int]:
        """Forget what is too old, has been used often enough, or has nothing to teach."""
        return [number for number, kept in view.kept.items() if not usable(view, kept, self.spec)]

    def again(self, view: View) -> int | None:
        """The best of the buffer, when its share is due."""
        if view.steps_done < self.spec.after_steps:
            return None
        if self._again + 1 > self.spec.share * (self._opened + self._again + 1):
            return None
        group = best(view, self.spec.order, self.spec.max_age_versions)
        if group is not None:
            self._again += 1
        return group


@part("allocation", "popo")
@dataclass(frozen=True, slots=True)
class Popo:
    """Stand-in: a group whose rewards are all the same is not trained on; one of the buffer takes its place.

    POPO (systems list 240) weighs quality and off-policiness of what it replays; here the variance of its rewards
    counts, down by half every ``half_life_versions``. A new prompt is sampled only where the buffer has nothing.
    """

    half_life_versions: float = 4.0
    max_age_versions: int = 16
    max_uses: int = 4
    aborts_surplus: ClassVar[bool] = True

    def start(self, shape: RunSizes) -> Replacements:
        """Refuse limits below what they mean."""
        if self.half_life_versions <= 0:
            raise ParameterError("half_life_versions", self.half_life_versions, "above 0")
        at_least("max_age_versions", self.max_age_versions, 0)
        at_least("max_uses", self.max_uses, 1)
        return Replacements(self)


@dataclass(slots=True)
class Replacements:
    """How many groups taught nothing and have not been replaced."""

    spec: Popo
    aborts_surplus: bool = True
    _missing: int = field(default=0)

    def members(self, view: View, group: Group) -> Size:
        """The same for every prompt; it takes the place of a missing group, if there is one."""
        self._missing = max(0, self._missing - 1)
        return usual(view)

    def observe(self, view: View, group: Group) -> None:
        """Nothing: ``rejects`` is asked next."""

    def rejects(self, view: View, group: Group) -> bool:
        """Whether all its rewards are the same."""
        ineffective = agree(group.rewards)
        self._missing += ineffective
        return ineffective

    def trained(self, view: View, group: Group) -> Sequence[int]:
        """Forget what is too old or has been used often enough."""
        return [number for number, kept in view.kept.items() if not usable(view, kept, self.spec)]

    def again(self, view: View) -> int | None:
        """The effective group that counts most, while one is missing."""
        if not self._missing:
            return None
        young = [kept for kept in view.kept.values() if age(view, kept) <= self.spec.max_age_versions]
        group = max(young, key=lambda kept: (self._worth(view, kept), kept.group), default=None)
        if group is None:
            return None
        self._missing -= 1
        return group.group

    def _worth(self, view: View, group: Group) -> float:
        return float(variance(group.rewards) * 0.5 ** (age(view, group) / self.spec.half_life_versions))


def age(view: View, group: Group) -> int:
    """Weights versions since a group was admitted."""
    return view.version - group.version


def usable(view: View, group: Group, spec: Replay | Popo) -> bool:
    """Whether a group that was trained on may be trained on again."""
    young = age(view, group) <= spec.max_age_versions
    return young and group.replays < spec.max_uses and variance(group.rewards) > 0


def best(view: View, order: Choice, max_age_versions: int) -> int | None:
    """The kept group that goes first; None where none is young enough."""
    young = [group for group in view.kept.values() if age(view, group) <= max_age_versions]
    if not young:
        return None
    if order == "variance":
        return max(young, key=lambda group: (variance(group.rewards), group.group)).group
    choose = max if order == "newest" else min
    return choose(young, key=lambda group: group.group).group


@part("allocation", "spec-rl")
@dataclass(frozen=True, slots=True)
class SpecRl:
    """The last response to the same prompt is checked as a draft, member by member, and continued where it is rejected.

    SPEC-RL, arXiv 2509.23232: the draft is the sample of the previous epoch. Its lenience is not a parameter here: what
    share of a draft is accepted is the world's, ``learning.rejections_per_update``.
    """

    max_age_versions: int | None = None
    """Drafts trained on longer ago are not checked; None: however old they are. Not SPEC-RL's."""
    aborts_surplus: ClassVar[bool] = True

    def start(self, shape: RunSizes) -> Drafts:
        """Begin without drafts."""
        at_least("max_age_versions", self.max_age_versions or 0, 0)
        return Drafts(self)


@dataclass(slots=True)
class Drafts:
    """The last group of each prompt."""

    spec: SpecRl
    aborts_surplus: bool = True
    _last: dict[int, int] = field(default_factory=dict)
    """Group by prompt."""

    def members(self, view: View, group: Group) -> Size:
        """The same for every prompt."""
        return usual(view)

    def trained(self, view: View, group: Group) -> Sequence[int]:
        """Its members are the drafts of its prompt from now on."""
        before = self._last.get(group.prompt)
        self._last[group.prompt] = group.group
        return () if before is None else (before,)

    def draft(self, view: View, sample: Sample) -> Sample | None:
        """The member in the same place of the last group of the prompt."""
        group = view.kept.get(self._last.get(sample.group.prompt, -1))
        oldest = self.spec.max_age_versions
        if group is None or (oldest is not None and age(view, group) > oldest):
            return None
        return next((member for member in group.members if member.member == sample.member), None)
