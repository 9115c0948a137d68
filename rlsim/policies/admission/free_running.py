"""Generators that never wait: a fixed number of samples in flight on every replica."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.view import Shape, View
from rlsim.policies.bounds import at_least
from rlsim.policies.protocols import Unit


class Seats:
    """Places in flight, without a bound on lag."""

    unit: ClassVar[Unit] = "sample"

    def __init__(self, seats: int) -> None:
        self._seats = seats

    def room(self, view: View) -> tuple[int, str]:
        """Free seats."""
        return self._seats - view.running_samples, "concurrency"


class LaggedSeats:
    """Places in flight, as long as the samples begun stay ``ahead_groups`` ahead at most.

    It counts samples, not groups: a group that waits half begun for a seat keeps its claim to one.
    """

    unit: ClassVar[Unit] = "sample"

    def __init__(self, seats: int, ahead_groups: int, groups_per_version: int) -> None:
        self._seats, self._begun = seats, 0
        self.ahead_groups, self.groups_per_version = ahead_groups, groups_per_version

    def room(self, view: View) -> tuple[int, str]:
        """The tighter of seats and lag."""
        groups = self.ahead_groups + (view.version + 1) * self.groups_per_version + view.dropped_groups
        lag = groups * view.shape.group_size - self._begun
        seats = self._seats - view.running_samples
        self._begun += max(0, min(lag, seats))
        return (lag, "staleness") if lag <= seats else (seats, "concurrency")


@dataclass(frozen=True, slots=True)
class FreeRunning:
    """Keep ``llm_max_rollouts`` samples in flight per replica (PipelineRL, arXiv 2509.19128).

    ``max_lag_samples`` bounds the samples begun by those of the versions served, rounded up to whole groups as
    PipelineRL's ``actor.py`` does; None leaves staleness to chance.
    """

    llm_max_rollouts: int = 64
    max_lag_samples: int | None = None
    steps_per_version: int = 1
    """Training steps between publications: a version makes room for as many batches."""
    samples_per_version: int | None = None
    """Samples trained on between publications, rounded up to whole steps; None to count steps."""

    def start(self, shape: Shape) -> Seats | LaggedSeats:
        """Refuse numbers that admit nothing."""
        at_least("llm_max_rollouts", self.llm_max_rollouts, 1)
        at_least("steps_per_version", self.steps_per_version, 1)
        seats = self.llm_max_rollouts * shape.replicas
        if self.max_lag_samples is None:
            return Seats(seats)
        at_least("max_lag_samples", self.max_lag_samples, 0)
        ahead = -(-self.max_lag_samples // shape.group_size)
        return LaggedSeats(seats, ahead, self._steps(shape) * shape.prompts_per_step)

    def _steps(self, shape: Shape) -> int:
        if self.samples_per_version is None:
            return self.steps_per_version
        at_least("samples_per_version", self.samples_per_version, 1)
        return -(-self.samples_per_version // (shape.prompts_per_step * shape.group_size))
