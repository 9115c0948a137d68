"""Generators that never wait: a fixed number of samples in flight on every replica."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.view import Shape, View
from rlsim.policies.bounds import at_least
from rlsim.policies.protocols import Unit


@dataclass(frozen=True, slots=True)
class FreeRunning:
    """Keep ``llm_max_rollouts`` samples in flight per replica (PipelineRL, arXiv 2509.19128).

    ``max_lag_samples`` bounds the samples begun by those trained on; None leaves staleness to chance.
    """

    llm_max_rollouts: int = 64
    max_lag_samples: int | None = None
    unit: ClassVar[Unit] = "sample"

    def start(self, shape: Shape) -> FreeRunning:
        """Refuse a lag that can never fill a batch."""
        at_least("llm_max_rollouts", self.llm_max_rollouts, 1)
        if self.max_lag_samples is not None:
            at_least("max_lag_samples", self.max_lag_samples, 0)
        return self

    def room(self, view: View) -> tuple[int, str]:
        """The tighter of seats and lag."""
        shape = view.shape
        seats = self.llm_max_rollouts * shape.replicas - view.running_samples
        if self.max_lag_samples is None:
            return seats, "concurrency"
        ahead = (view.version + 1) * shape.prompts_per_step * shape.group_size + self.max_lag_samples
        lag = ahead - (view.started_groups - view.dropped_groups) * shape.group_size
        return (lag, "staleness") if lag <= seats else (seats, "concurrency")
