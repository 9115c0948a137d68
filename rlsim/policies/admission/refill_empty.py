"""A replica gets a batch of samples when it is empty, and nothing until it is empty again: Laminar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.view import Shape, View
from rlsim.policies.bounds import at_least
from rlsim.policies.protocols import Unit


class EmptyReplicas:
    """Whole batches for empty replicas."""

    unit: ClassVar[Unit] = "sample"

    def __init__(self, batch: int, buffer_groups: int | None) -> None:
        self._batch, self.buffer_groups = batch, buffer_groups

    def room(self, view: View) -> tuple[int, str]:
        """One batch, if a replica is empty."""
        if self.buffer_groups is not None and len(view.ready) >= self.buffer_groups:
            return 0, "buffer"
        empty = view.loads.any_open() and not view.loads.in_flight[view.loads.least()]
        return self._batch if empty else 0, "barrier"


@dataclass(frozen=True, slots=True)
class RefillEmpty:
    """Submit ``replica_batch`` samples for every replica without a call; goes with dispatch ``fill-empty``.

    So every replica drains by itself and can take new weights (update mode ``pull``) without cutting a trajectory
    (Laminar, arXiv 2510.12633). A replica whose trajectories are all in tools counts as empty.
    """

    replica_batch: int | None = None
    """Samples; None for the seats of a replica (``max_num_seqs``)."""
    buffer_groups: int | None = None
    """Complete groups at which nothing more is submitted; None for no limit."""

    def start(self, shape: Shape) -> EmptyReplicas:
        """Refuse an empty batch, and a buffer that never holds a training batch."""
        batch = shape.max_num_seqs if self.replica_batch is None else self.replica_batch
        at_least("replica_batch", batch, 1)
        if self.buffer_groups is not None:
            at_least("buffer_groups", self.buffer_groups, shape.prompts_per_step)
        return EmptyReplicas(batch, self.buffer_groups)
