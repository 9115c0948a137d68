"""A completion in each slot, and a bounded buffer: TRL's asynchronous GRPO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.errors import ParameterError
from rlsim.core.view import Shape, View
from rlsim.policies.bounds import at_least
from rlsim.policies.protocols import Unit


class Slots:
    """The slots of one run; none is filled while the buffer is full and the trainer takes nothing from it."""

    unit: ClassVar[Unit] = "sample"

    def __init__(self, slots: int, queue_maxsize: int) -> None:
        self.slots, self._queue_maxsize = slots, queue_maxsize

    def room(self, view: View) -> tuple[int, str]:
        """Free slots."""
        full = len(view.ready) * view.shape.group_size >= self._queue_maxsize
        if full and not view.trainer_waits:
            return 0, "buffer"
        return self.slots - view.running_samples, "concurrency"


@dataclass(frozen=True, slots=True)
class SampleSlots:
    """Every free slot begins one completion (TRL ``experimental/async_grpo``).

    A sample that is being scored keeps its slot, and a batch being collected does not fill the buffer.
    """

    max_inflight_tasks: int = -1
    """Slots; -1 for ``max_staleness`` times the samples of a step."""
    max_staleness: int = 4
    """In weights versions."""
    queue_maxsize: int = 1024
    """Samples that wait for the trainer."""

    def start(self, shape: Shape) -> Slots:
        """Refuse what comes to no slots: nothing would ever be generated (TRL pull request 5650)."""
        at_least("max_staleness", self.max_staleness, 0)
        at_least("queue_maxsize", self.queue_maxsize, 1)
        if self.max_inflight_tasks != -1:
            at_least("max_inflight_tasks", self.max_inflight_tasks, 1)
            return Slots(self.max_inflight_tasks, self.queue_maxsize)
        slots = self.max_staleness * shape.prompts_per_step * shape.group_size
        if not slots:
            allowed = "at least 1: with max_inflight_tasks -1 it is multiplied by the batch, which gives 0 slots"
            raise ParameterError("max_staleness", self.max_staleness, allowed)
        return Slots(slots, self.queue_maxsize)
