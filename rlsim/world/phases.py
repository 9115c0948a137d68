"""The phases of a training step, or of the part of it that has come."""

from __future__ import annotations

from collections.abc import Sequence

from rlsim.core.commands import Train
from rlsim.world.world import Training

Timed = list[tuple[str, float]]


class Phases:
    """What each training command takes, step after step, by the cost model."""

    def __init__(self, training: Training) -> None:
        self._cost = training
        self._streaming = False

    def of(self, command: Train, samples: Sequence[tuple[int, int]]) -> Timed:
        """(phase, seconds) in order, for (context tokens, response tokens) of the samples."""
        phases = self._cost.phases(samples, command.updates, command.last)
        if command.updates is not None or (command.last and not self._streaming):
            return phases
        self._streaming = not command.last
        return self._part(phases, command.last, samples)

    def _part(self, phases: Timed, last: bool, samples: Sequence[tuple[int, int]]) -> Timed:
        """The phases of some samples of a step; the optimizer step comes with the last."""
        update = self._cost.micro_batch_seconds(samples) + (self._cost.optimizer_seconds() if last else 0.0)
        return [(name, update if name.startswith("update_") else seconds) for name, seconds in phases]
