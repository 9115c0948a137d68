"""Bounded staleness by counting: AReaL's and SkyRL's capacity rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.view import Shape, View
from rlsim.policies.bounds import at_least
from rlsim.policies.protocols import Unit


@dataclass(frozen=True, slots=True)
class CumulativeCapacity:
    """``min(C - running, (eta + version + 1) * B - (accepted + running))`` groups (arXiv 2505.24298, eq. 3).

    Dropped groups give their slot back; nothing is dropped by the rule itself.
    """

    max_staleness: int
    """eta, in weights versions."""
    max_open_groups: int | None = None
    """C; None for one training batch."""
    unit: ClassVar[Unit] = "group"

    def start(self, shape: Shape) -> CumulativeCapacity:
        """Refuse a concurrency or bound that admits nothing."""
        at_least("max_staleness", self.max_staleness, 0)
        if self.max_open_groups is not None:
            at_least("max_open_groups", self.max_open_groups, 1)
        return self

    def room(self, view: View) -> tuple[int, str]:
        """The tighter of concurrency and staleness."""
        batch = view.shape.prompts_per_step
        concurrency = (self.max_open_groups or batch) - view.open_groups
        staleness = (self.max_staleness + view.version + 1) * batch - (view.started_groups - view.dropped_groups)
        return (staleness, "staleness") if staleness <= concurrency else (concurrency, "concurrency")
