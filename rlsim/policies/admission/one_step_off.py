"""One batch ahead: generation of the next batch starts with the training of the current one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.view import Shape, View
from rlsim.policies.protocols import Unit


@dataclass(frozen=True, slots=True)
class OneStepOff:
    """Admit batch k+1 when training on batch k begins (verl ``one_step_off_policy``, reference P1).

    Dropped groups are replaced.
    """

    unit: ClassVar[Unit] = "group"

    def start(self, shape: Shape) -> OneStepOff:
        """Nothing to check."""
        return self

    def room(self, view: View) -> tuple[int, str]:
        """(steps begun + 1) batches in all."""
        admitted = view.started_groups - view.dropped_groups
        return (view.steps_begun + 1) * view.shape.prompts_per_step - admitted, "barrier"
