"""vLLM's V1 schedulers with a step log: every engine step, and the end of every call.

Given to vLLM by name (``scheduler_cls``), so that they run inside EngineCore, where a step begins and ends and where
it is known what each call really got: vLLM's own ``iteration_details`` time the sampling only with the single-process
executor. This module imports vllm; nothing but vLLM imports it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from rlsim.live.child_processes import end_with_parent
from rlsim.live.vllm.step_log import CallEnd, OpenStep, StepLog, StepSink


class StepLogScheduler(Scheduler):  # type: ignore[misc]
    """Synchronous scheduling; vLLM's ``additional_config`` opens the sink of the rows."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        end_with_parent()
        self.sink: StepSink = self.vllm_config.additional_config.open()
        self.step_log = StepLog(self.sink.step)
        self._thrown: Counter[str] = Counter()

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """Decide a step, and open it in the log."""
        began = self.step_log.now()
        plan = super().schedule(*args, **kwargs)
        self.step_log.begin(plan, began, self.requests)
        return plan

    def update_from_output(self, plan: Any, output: Any) -> Any:
        """Take the step's tokens, and write its end.

        Tokens of requests that were preempted since are counted before: vLLM drops them and samples them again.
        """
        step = self.step_log.take(plan)
        for name in () if step is None else step.batch.samplers:
            request = self.requests.get(name)
            if request is not None and request.num_stale_output_tokens > 0 and request.drop_stale_output:
                self._thrown[name] += 1
        outputs = super().update_from_output(plan, output)
        if step is not None:
            self.end_step(step)
        return outputs

    def end_step(self, step: OpenStep) -> None:
        """Write a step whose tokens have been taken."""
        self.step_log.end(step)

    def _free_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Every request that ends comes by here."""
        name = request.request_id
        under_way = sum(name in step.batch.samplers for step in self.step_log.open_steps.values())
        end = CallEnd(request.num_output_tokens, self._thrown.pop(name, 0) + under_way)
        self.sink.end(name.partition("-")[0], end)
        return super()._free_request(request, *args, **kwargs)


class AsyncStepLogScheduler(StepLogScheduler, AsyncScheduler):  # type: ignore[misc]
    """Asynchronous scheduling: vLLM turns it off for a scheduler that is no ``AsyncScheduler``.

    In the order of resolution the log comes first, then ``AsyncScheduler``, then what both derive from.
    """
