"""Every group is generated for one training step: NeMo-RL's reservation of targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.view import Shape, View
from rlsim.policies.bounds import at_least
from rlsim.policies.protocols import Unit


@dataclass(frozen=True, slots=True)
class TargetReservation:
    """At version v the targets v+1 .. v+A (0 .. A at the start) may be generated for, a full batch each.

    The lowest unreserved target comes first, so group number k has target ``k // B`` (NeMo-RL ``async_utils``).
    """

    max_trajectory_age_steps: int = 1
    """A, in training steps."""
    unit: ClassVar[Unit] = "group"

    def start(self, shape: Shape) -> TargetReservation:
        """Refuse an age that reserves nothing ahead."""
        at_least("max_trajectory_age_steps", self.max_trajectory_age_steps, 1)
        return self

    def room(self, view: View) -> tuple[int, str]:
        """Batches up to target version + A."""
        reserved = (view.version + self.max_trajectory_age_steps + 1) * view.shape.prompts_per_step
        return reserved - (view.started_groups - view.dropped_groups), "staleness"
