"""One sample more than is trained on, so that the median is one of them: MC-GRPO."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.view import Group, Sample, Shape, View
from rlsim.policies.bounds import several
from rlsim.policies.hooks import Size


@dataclass(frozen=True, slots=True)
class McGrpo:
    """``group_size`` + 1 samples; the one with the median reward is the baseline and is not trained on.

    MC-GRPO, systems list entry 126. Of several with that reward the first is left out; where ``group_size`` is odd, the
    upper of the two in the middle.
    """

    aborts_surplus: ClassVar[bool] = True
    resizes: ClassVar[bool] = True

    def start(self, shape: Shape) -> McGrpo:
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
