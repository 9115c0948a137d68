"""A batch in generation at a time, and slots for those that wait: OpenRLHF's asynchronous generator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.view import Shape, View
from rlsim.policies.bounds import at_least
from rlsim.policies.protocols import Unit


@dataclass(frozen=True, slots=True)
class QueueSlots:
    """Begin a batch when the one before is complete and a slot is free.

    A batch takes a slot before it is generated; the slot is returned when the trainer takes the batch (OpenRLHF
    ``ppo_trainer_async.py``).
    """

    async_queue_size: int = 1
    """Slots."""
    unit: ClassVar[Unit] = "group"

    def start(self, shape: Shape) -> QueueSlots:
        """Refuse a queue without slots."""
        at_least("async_queue_size", self.async_queue_size, 1)
        return self

    def room(self, view: View) -> tuple[int, str]:
        """One batch, or nothing."""
        if view.open_groups:
            return 0, "barrier"
        batch = view.shape.prompts_per_step
        free = (view.steps_begun + self.async_queue_size) * batch - (view.started_groups - view.dropped_groups)
        return min(batch, free), "staleness"
