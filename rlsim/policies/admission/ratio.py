"""A batch for each step and a ratio of one ahead: ROLL's replay buffer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.view import Shape, View
from rlsim.policies.bounds import at_least
from rlsim.policies.protocols import Unit


@dataclass(frozen=True, slots=True)
class Ratio:
    """``ceil(ratio * B) + (version + 1) * B`` groups in all (ROLL ``generate_scheduler.py``); 0 is synchronous.

    Dropped groups give their place back. Additional prompts enter whenever fewer than so many groups are running,
    whatever the count says.
    """

    async_generation_ratio: float = 0.0
    """Batches that may be generated ahead."""
    max_additional_running_prompts: int = 0
    """Groups kept running by additional prompts; 0 for none."""
    unit: ClassVar[Unit] = "group"

    def start(self, shape: Shape) -> Ratio:
        """Refuse negative numbers."""
        at_least("async_generation_ratio", self.async_generation_ratio, 0)
        at_least("max_additional_running_prompts", self.max_additional_running_prompts, 0)
        return self

    def room(self, view: View) -> tuple[int, str]:
        """Places in the count, else those of additional prompts."""
        batch = view.shape.prompts_per_step
        ahead = math.ceil(self.async_generation_ratio * batch)
        room = ahead + (view.version + 1) * batch - (view.started_groups - view.dropped_groups)
        if room <= 0 and self.max_additional_running_prompts:
            return self.max_additional_running_prompts - view.open_groups, "concurrency"
        return room, "staleness" if ahead else "barrier"
