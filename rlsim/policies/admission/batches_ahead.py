"""One batch submitted at the beginning of each step, and some before the first: verl's V1 trainer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.view import Shape, View
from rlsim.policies.bounds import at_least
from rlsim.policies.protocols import Unit


@dataclass(frozen=True, slots=True)
class BatchesAhead:
    """``(version + 1 + num_warmup_batches) x B`` groups in all: that many batches in flight or buffered.

    Dropped groups are replaced (verl ``trainer/ppo/v1``).
    """

    num_warmup_batches: int = 1
    """Batches submitted before the first step."""
    unit: ClassVar[Unit] = "group"

    def start(self, shape: Shape) -> BatchesAhead:
        """Refuse a negative number."""
        at_least("num_warmup_batches", self.num_warmup_batches, 0)
        return self

    def room(self, view: View) -> tuple[int, str]:
        """What is missing from the batches of this step and the warm-up."""
        batches = view.version + 1 + self.num_warmup_batches
        room = batches * view.shape.prompts_per_step - (view.started_groups - view.dropped_groups)
        return room, "staleness" if self.num_warmup_batches else "barrier"
