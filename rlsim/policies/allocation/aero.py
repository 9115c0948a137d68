"""Half a group first, more until somebody succeeds, and a balanced part to train on: AERO."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlsim.core.view import Group, Sample, Shape, View
from rlsim.policies.allocation.outcomes import agree, solved
from rlsim.policies.bounds import at_least, fraction, several
from rlsim.policies.hooks import Size


@dataclass(frozen=True, slots=True)
class Aero:
    """Stand-in: groups that all fail get a few samples more, until one succeeds or they are as large as others.

    AERO, arXiv 2602.14338, after its abstract and published summaries: exploration, iterated rescue within the rollouts
    of uniform groups, failures thinned out by the successes. Ours are the numbers, that no group has more than
    ``group_size``, and that successes are thinned out where they prevail. Its posterior, which gives groups that agree
    an advantage, is not simulated: such a group keeps one sample, which teaches nothing.
    """

    first_share: float = 0.5
    """Of ``group_size``, launched at once; rounded up, at least 2."""
    rescue_samples: int = 2
    """Launched at a time where all have failed so far."""
    most_ratio: float = 3.0
    """Samples trained on of the more frequent outcome, for each of the other."""

    def start(self, shape: Shape) -> _Rescuing:
        """Refuse waves without samples, and groups of one."""
        several("aero", shape)
        fraction("first_share", self.first_share)
        at_least("rescue_samples", self.rescue_samples, 1)
        at_least("most_ratio", self.most_ratio, 1)
        return _Rescuing(self, shape)


class _Rescuing:
    aborts_surplus = True

    def __init__(self, part: Aero, shape: Shape) -> None:
        self._part, self._most = part, shape.group_size
        self._first = max(2, math.ceil(part.first_share * shape.group_size))

    def members(self, view: View, group: Group) -> Size:
        return Size(self._first, self._first)

    def extend(self, view: View) -> Sequence[tuple[int, int]]:
        return [(number, self._further(group)) for number, group in view.resting.items()]

    def _further(self, group: Group) -> int:
        if any(solved(reward) >= 0.5 for reward in group.rewards):
            return 0
        return max(0, min(self._part.rescue_samples, self._most - group.launched))

    def observe(self, view: View, group: Group) -> None:
        """Nothing is remembered."""

    def unselected(self, view: View, group: Group) -> Sequence[Sample]:
        if agree(group.rewards):
            return group.members[1:]
        won = [sample for sample in group.members if solved(sample.reward or 0.0) >= 0.5]
        lost = [sample for sample in group.members if sample not in won]
        fewer, more = sorted((won, lost), key=len)
        return more[max(1, math.floor(self._part.most_ratio * len(fewer))) :] if fewer else ()
