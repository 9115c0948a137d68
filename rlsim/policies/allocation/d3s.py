"""The part of a group whose rewards differ most is trained on: D3S."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.view import Group, Sample, Shape, View
from rlsim.policies.allocation.outcomes import usual, variance
from rlsim.policies.bounds import at_least, fraction, several
from rlsim.policies.hooks import Size


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

    def start(self, shape: Shape) -> D3S:
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
