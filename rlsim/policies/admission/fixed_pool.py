"""A pool of trajectories that is always full: CoPRIS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.view import Shape, View
from rlsim.policies.bounds import at_least
from rlsim.policies.protocols import Unit


@dataclass(frozen=True, slots=True)
class FixedPool:
    """Keep ``partial_rollout_pool_size`` samples in flight, unfinished ones first."""

    partial_rollout_pool_size: int
    unit: ClassVar[Unit] = "sample"

    def start(self, shape: Shape) -> FixedPool:
        """Refuse an empty pool."""
        at_least("partial_rollout_pool_size", self.partial_rollout_pool_size, 1)
        return self

    def room(self, view: View) -> tuple[int, str]:
        """Free places in the pool."""
        return self.partial_rollout_pool_size - view.running_samples, "concurrency"
