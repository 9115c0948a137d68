"""Which steps an engine ran and how long each took, from the plans of its scheduler and their ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from calibration.measure.points import TimedStep
from rlsim.live.vllm.batch import Batch, Composer


class StepLog:
    """Turns plans and their ends into timed steps.

    A step lasts from its scheduling to the end of its update, or from the end of the step before if that is later:
    with asynchronous scheduling step N+1 is scheduled while N runs.
    """

    def __init__(
        self, clock: Callable[[], float] = time.perf_counter, cpu_clock: Callable[[], float] = time.process_time
    ) -> None:
        self.steps: list[TimedStep] = []
        self._clock, self._cpu_clock = clock, cpu_clock
        self._composer = Composer()
        self._open: dict[int, tuple[float, float, Batch]] = {}
        self._last_end = self._last_cpu = float("-inf")

    def now(self) -> tuple[float, float]:
        """Wall-clock and CPU seconds."""
        return self._clock(), self._cpu_clock()

    def begin(self, plan: Any, began: tuple[float, float], requests: Mapping[str, Any]) -> None:
        """Note what ``plan``, decided since ``began``, holds; ``requests`` have already been advanced by it."""
        if plan.total_num_scheduled_tokens:
            self._open[id(plan)] = *began, self._composer.batch(plan, requests)

    def end(self, plan: Any) -> None:
        """Note how long it took."""
        opened = self._open.pop(id(plan), None)
        if opened is None:
            return
        began, cpu, batch = opened
        now, cpu_now = self._clock(), self._cpu_clock()
        seconds = now - max(began, self._last_end)
        self.steps.append(_timed(seconds, cpu_now - max(cpu, self._last_cpu), batch))
        self._last_end, self._last_cpu = now, cpu_now


def _timed(seconds: float, cpu_seconds: float, batch: Batch) -> TimedStep:
    held = (batch.decodes, batch.kv_tokens, batch.chunks, batch.prefill_tokens, batch.pairs)
    return TimedStep(seconds, *held, cpu_seconds=cpu_seconds, preempted=batch.preempted)
