"""Larger groups as training goes on: Aryabhata 2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.errors import ParameterError
from rlsim.core.view import Group, Shape, View
from rlsim.policies.bounds import at_least
from rlsim.policies.hooks import Size


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

    def start(self, shape: Shape) -> GroupSchedule:
        """Refuse a schedule that shrinks."""
        if not 1 <= self.first_samples <= shape.group_size:
            raise ParameterError("first_samples", self.first_samples, f"1 to group_size = {shape.group_size}")
        at_least("growth", self.growth, 1)
        at_least("stage_steps", self.stage_steps, 1)
        return self

    def members(self, view: View, group: Group) -> Size:
        """Of the stage."""
        size, most = float(self.first_samples), view.shape.group_size
        for _ in range(group.target // self.stage_steps):
            if size >= most or self.growth == 1:
                break
            size *= self.growth
        whole = min(most, int(size))
        return Size(whole, whole)
