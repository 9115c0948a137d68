"""Short rounds without a tail, and a long one when enough prompts have been put off: RollPacker."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.view import Shape, View
from rlsim.policies.bounds import at_least
from rlsim.policies.protocols import Unit


def long_round(view: View) -> bool:
    """Whether the round that is being begun, or was last begun, is made of prompts that were put off."""
    if view.round_groups <= 1:  # The first group is not there yet.
        return len(view.recycled) >= view.shape.prompts_per_step
    newest = next(reversed(view.open.values()), None)
    return newest is not None and newest.recycle > 0


@dataclass(frozen=True, slots=True)
class TailBatching:
    """Launch ``eta_p`` batches of new prompts a round, or exactly one of prompts that earlier rounds put off.

    A long round is due as soon as a batch of prompts has been put off (arXiv 2509.21009). One round a version.
    """

    eta_p: float = 1.25
    """Groups launched in a short round, as a multiple of ``prompts_per_step``."""
    unit: ClassVar[Unit] = "group"

    def start(self, shape: Shape) -> TailBatching:
        """Refuse a round smaller than the batch."""
        at_least("eta_p", self.eta_p, 1)
        return self

    def room(self, view: View) -> tuple[int, str]:
        """A whole round, once the weights of the last one are served; during it, what its batch has lost."""
        if view.steps_begun > view.version:
            return 0, "barrier"
        batch = view.shape.prompts_per_step
        if view.round_groups:
            return batch - view.open_groups - len(view.ready), "barrier"
        return batch if long_round(view) else math.ceil(self.eta_p * batch), "barrier"
