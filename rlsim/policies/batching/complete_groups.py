"""A full batch of complete groups."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Literal

from rlsim.core.errors import ParameterError
from rlsim.core.view import Shape, View
from rlsim.policies.bounds import at_least
from rlsim.policies.protocols import Batch


@dataclass(frozen=True, slots=True)
class CompleteGroups:
    """Start when ``prompts_per_step`` groups are complete, on the first finished or the oldest admitted ones."""

    order: Literal["first_finished", "oldest"] = "first_finished"
    updates: int | None = None
    """Optimizer updates made on a batch; None for the trainer's ``updates_per_step``."""
    poll_seconds: float = 0.0
    """Interval at which the trainer looks for complete groups; 0: it is told."""

    def start(self, shape: Shape) -> CompleteGroups:
        """Refuse an unknown order."""
        if self.order not in ("first_finished", "oldest"):
            raise ParameterError("order", self.order, "first_finished, oldest")
        at_least("poll_seconds", self.poll_seconds, 0)
        samples = shape.prompts_per_step * shape.group_size
        if self.updates is not None and not 1 <= self.updates <= samples:
            raise ParameterError("updates", self.updates, f"1 to {samples}, the samples of a step")
        return self

    def select(self, view: View) -> Batch | None:
        """The batch in order of admission, once there are enough groups."""
        size = view.shape.prompts_per_step
        if len(view.ready) < size:
            return None
        if self.order == "oldest":
            return Batch(tuple(sorted(view.ready)[:size]), updates=self.updates)
        return Batch(tuple(sorted(islice(view.ready, size))), updates=self.updates)
