"""More samples of hard prompts, so that they weigh as much as those solved half of the time: DARS."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlsim.core.view import Group, Shape, View
from rlsim.policies.allocation.outcomes import first_wave, mean, solved, usual
from rlsim.policies.bounds import at_least, several
from rlsim.policies.hooks import Size


@dataclass(frozen=True, slots=True)
class Dars:
    """Stand-in: a second wave for prompts solved less than half of the time, up to n 2 sqrt(p (1 - p)) = group_size.

    DARS (systems list entry 149) gives hard problems more rollouts in stages; the measure, a group's sum of normalised
    absolute advantages, is ours. DARS-B is the same with a large ``prompts_per_step`` and full-batch updates over
    epochs.
    """

    most_extra_ratio: float = 2.0
    """Further samples of one prompt, as a multiple of ``group_size``: also what a prompt gets that nobody solved."""

    def start(self, shape: Shape) -> _Deeper:
        """Refuse groups of one."""
        several("dars", shape)
        at_least("most_extra_ratio", self.most_extra_ratio, 0)
        return _Deeper(self, shape)


class _Deeper:
    aborts_surplus = True

    def __init__(self, part: Dars, shape: Shape) -> None:
        self._size = shape.group_size
        self._most = math.floor(part.most_extra_ratio * shape.group_size)

    def members(self, view: View, group: Group) -> Size:
        return usual(view)

    def extend(self, view: View) -> Sequence[tuple[int, int]]:
        return [
            (number, self.extra(mean([solved(reward) for reward in group.rewards])) if self._begun(group) else 0)
            for number, group in view.resting.items()
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
