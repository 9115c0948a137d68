"""Rounds of generation, one after the other, until a batch is complete: dynamic sampling as it was first built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.view import Shape, View
from rlsim.policies.bounds import at_least
from rlsim.policies.protocols import Unit


@dataclass(frozen=True, slots=True)
class Rounds:
    """``gen_batch_size`` groups at once; again when all of them have ended and fewer than a batch is complete.

    verl's DAPO recipe (``recipe/dapo/dapo_ray_trainer.py``: ``gen_batch_size``, ``filter_groups``), MiMo's naive
    dynamic sampling: the last response of every round is waited for.
    """

    gen_batch_size: int | None = None
    """Groups of a round; None for ``prompts_per_step``."""
    unit: ClassVar[Unit] = "group"

    def start(self, shape: Shape) -> Rounds:
        """Refuse an empty round."""
        if self.gen_batch_size is not None:
            at_least("gen_batch_size", self.gen_batch_size, 1)
        return self

    def room(self, view: View) -> tuple[int, str]:
        """A whole round, or nothing."""
        waits = view.trainer == "idle" and len(view.ready) < view.shape.prompts_per_step
        if view.running_samples or not waits:
            return 0, "barrier"
        return self.gen_batch_size or view.shape.prompts_per_step, "barrier"
