"""vLLM's V1 schedulers, noting what every engine step held and how long it took.

Given to vLLM by name (``scheduler_cls``), so that they run inside EngineCore, where a step begins and ends: vLLM's own
``iteration_details`` time the sampling only with the single-process executor. This module imports vllm; nothing but
vLLM imports it.
"""

from __future__ import annotations

from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from calibration.vllm.step_log import StepLog


class StepLogScheduler(Scheduler):  # type: ignore[misc]
    """For synchronous scheduling."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.step_log = StepLog()

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """Decide a step, and note it."""
        began = self.step_log.now()
        plan = super().schedule(*args, **kwargs)
        self.step_log.begin(plan, began, self.requests)
        return plan

    def update_from_output(self, plan: Any, output: Any) -> Any:
        """Take the step's tokens, and note its end."""
        outputs = super().update_from_output(plan, output)
        self.step_log.end(plan)
        return outputs


class AsyncStepLogScheduler(StepLogScheduler, AsyncScheduler):  # type: ignore[misc]
    """For asynchronous scheduling: vLLM turns it off for a scheduler that is no ``AsyncScheduler``.

    In the order of resolution the notes come first, then ``AsyncScheduler``, then what both derive from.
    """
