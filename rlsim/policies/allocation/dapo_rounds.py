"""Dynamic sampling round by round, as it was first built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.view import Group, Shape, View
from rlsim.policies.bounds import several
from rlsim.policies.hooks import Size


@dataclass(frozen=True, slots=True)
class RoundwiseSampling:
    """As ``dapo``, but groups are judged when all that is under way has ended, and not one by one.

    verl's DAPO recipe (``recipe/dapo/dapo_ray_trainer.py``), MiMo's naive dynamic sampling; with admission ``rounds``.
    """

    aborts_surplus: ClassVar[bool] = True

    def start(self, shape: Shape) -> RoundwiseSampling:
        """Refuse a group that cannot have two rewards."""
        several("dapo-rounds", shape)
        return self

    def members(self, view: View, group: Group) -> Size:
        """The same for every prompt."""
        return Size(view.shape.group_size, view.shape.group_size)

    def extend(self, view: View) -> Sequence[tuple[int, int]]:
        """All groups that rest are complete, with the last of the round."""
        return () if view.running_samples else [(number, 0) for number in view.resting]

    def observe(self, view: View, group: Group) -> None:
        """Nothing is remembered."""

    def rejects(self, view: View, group: Group) -> bool:
        """Whether all its rewards are the same."""
        return len(set(group.rewards)) < 2
