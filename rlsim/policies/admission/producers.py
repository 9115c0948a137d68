"""Producers that wait for nothing but a full buffer: the fully asynchronous rollouts of slime and miles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.view import Shape, View
from rlsim.policies.bounds import at_least
from rlsim.policies.protocols import Unit


@dataclass(frozen=True, slots=True)
class EngineQueue:
    """Groups in flight and complete groups queued both stay below ``concurrency_per_engine`` times the engines.

    The batch that is being collected is not in the queue any more (slime ``fully_async_rollout.py``: a thread submits
    while both are below the product). No bound on staleness.
    """

    concurrency_per_engine: int = 512
    """slime's ``sglang_server_concurrency``."""
    unit: ClassVar[Unit] = "group"

    def start(self, shape: Shape) -> EngineQueue:
        """Refuse a queue without places."""
        at_least("concurrency_per_engine", self.concurrency_per_engine, 1)
        return self

    def room(self, view: View) -> tuple[int, str]:
        """Free places in flight, unless the queue is full."""
        limit = self.concurrency_per_engine * view.shape.replicas
        if len(view.ready) - view.shape.prompts_per_step >= limit:
            return 0, "buffer"
        return limit - view.open_groups, "concurrency"


class Producers:
    """Places for groups or samples, and a bounded buffer."""

    def __init__(self, unit: Unit, places: int, buffer_groups: int | None) -> None:
        self.unit, self._places, self._buffer_groups = unit, places, buffer_groups

    def room(self, view: View) -> tuple[int, str]:
        """Free places, unless the buffer is full."""
        if self._buffer_groups is not None and len(view.ready) >= self._buffer_groups:
            return 0, "buffer"
        taken = view.open_groups if self.unit == "group" else view.running_samples
        return self._places - taken, "concurrency"


@dataclass(frozen=True, slots=True)
class BoundedBuffer:
    """Keep ``max_concurrent_samples`` in flight until the buffer holds ``capacity_factor`` batches of complete groups.

    By the group, a place is free when the last sibling has ended; by the sample, each sample that ends makes room for
    the next (miles ``--rollout-submission-granularity``). No bound on staleness.
    """

    max_concurrent_samples: int | None = None
    """None for one training batch."""
    granularity: Unit = "sample"
    """What is submitted: whole groups, or samples one by one."""
    capacity_factor: float | None = 2.0
    """Batches in the buffer at which producers wait; None for no limit."""

    def start(self, shape: Shape) -> Producers:
        """Refuse fewer places than one group needs, and a buffer smaller than a batch."""
        samples = self.max_concurrent_samples
        if samples is None:
            samples = shape.prompts_per_step * shape.group_size
        by_group = self.granularity == "group"
        at_least("max_concurrent_samples", samples, shape.group_size if by_group else 1)
        places = samples // shape.group_size if by_group else samples
        if self.capacity_factor is None:
            return Producers(self.granularity, places, None)
        at_least("capacity_factor", self.capacity_factor, 1)
        return Producers(self.granularity, places, int(self.capacity_factor * shape.prompts_per_step))
