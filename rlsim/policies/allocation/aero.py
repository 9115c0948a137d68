"""Half a group first, the rest where it may help, and a balanced part to train on: AERO."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlsim.core.group_laws import all_succeed
from rlsim.core.view import Group, Sample, Shape, View
from rlsim.policies.allocation.beliefs import Beliefs
from rlsim.policies.allocation.outcomes import agree, first_wave, solved
from rlsim.policies.bounds import at_least, fraction, several
from rlsim.policies.hooks import Size


@dataclass(frozen=True, slots=True)
class Aero:
    """Stand-in: a second wave where rewards agree and a posterior gives it a chance; the larger side is thinned out.

    AERO (systems list entry 43) has adaptive counts, selective rejection and a Bayesian posterior; the rules are ours.
    A group that agrees to its end keeps one sample, which teaches nothing.
    """

    first_share: float = 0.5
    """Of ``group_size``, launched at once; rounded up, at least 2."""
    second_share: float = 1.0
    """Of ``group_size``, launched where all rewards of the first wave agree; rounded up."""
    least_chance: float = 0.2
    """Posterior probability that the second wave brings another reward, below which there is none."""
    most_ratio: float = 3.0
    """Samples trained on of the more frequent outcome, for each of the other."""
    kept_per_version: float = 0.98
    """Of what was seen of a prompt."""

    def start(self, shape: Shape) -> _Adaptive:
        """Refuse waves without samples, and groups of one."""
        several("aero", shape)
        for name in ("first_share", "least_chance", "kept_per_version"):
            fraction(name, getattr(self, name))
        at_least("second_share", self.second_share, 0)
        at_least("most_ratio", self.most_ratio, 1)
        return _Adaptive(self, shape)


class _Adaptive:
    aborts_surplus = True

    def __init__(self, part: Aero, shape: Shape) -> None:
        self._part = part
        self._first = max(2, math.ceil(part.first_share * shape.group_size))
        self._second = math.ceil(part.second_share * shape.group_size)
        self._beliefs = Beliefs(1.0, part.kept_per_version)

    def members(self, view: View, group: Group) -> Size:
        return Size(self._first, self._first)

    def extend(self, view: View) -> Sequence[tuple[int, int]]:
        return [(number, self._further(view, group)) for number, group in view.resting.items()]

    def _further(self, view: View, group: Group) -> int:
        if not first_wave(group, self._first) or not agree(group.rewards):
            return 0
        return self._second if self._chance(view, group) >= self._part.least_chance else 0

    def _chance(self, view: View, group: Group) -> float:
        """That not all of the second wave come out like the first one."""
        belief = self._beliefs.of(group.prompt, view.version).told(group.rewards)
        successes, failures = belief.successes, belief.failures
        if group.rewards and solved(group.rewards[0]) < 0.5:
            successes, failures = failures, successes
        return 1 - all_succeed(successes, failures, self._second)

    def observe(self, view: View, group: Group) -> None:
        self._beliefs.tell(group.prompt, view.version, group.rewards)

    def unselected(self, view: View, group: Group) -> Sequence[Sample]:
        if agree(group.rewards):
            return group.members[1:]
        won = [sample for sample in group.members if solved(sample.reward or 0.0) >= 0.5]
        lost = [sample for sample in group.members if sample not in won]
        fewer, more = sorted((won, lost), key=len)
        return more[max(1, math.floor(self._part.most_ratio * len(fewer))) :] if fewer else ()
