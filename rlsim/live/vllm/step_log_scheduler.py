"""vLLM's V1 schedulers, noting every engine step and the end of every call.

Given to vLLM by name (``scheduler_cls``), so that they run inside EngineCore, where a step begins and ends and where
it is known what each call really got. This module imports vllm; nothing but vLLM imports it.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from rlsim.core.child_processes import end_with_parent
from rlsim.live.vllm.batch import Batch, Composer
from rlsim.live.vllm.step_log import EndNote, EngineFiles, NoteWriter, StepNote


class NotingScheduler(Scheduler):  # type: ignore[misc]
    """For synchronous scheduling."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        end_with_parent()
        self.files: EngineFiles = self.vllm_config.additional_config
        self.notes = NoteWriter(self.files)
        self._composer = Composer()
        self._open: dict[int, tuple[int, Batch]] = {}
        self._thrown: Counter[str] = Counter()
        self._last_end_ns = 0

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """Decide a step, and note what it holds."""
        began = time.monotonic_ns()
        plan = super().schedule(*args, **kwargs)
        if plan.total_num_scheduled_tokens:
            self._open[id(plan)] = began, self._composer.batch(plan, self.requests)
        return plan

    def update_from_output(self, plan: Any, output: Any) -> Any:
        """Take the step's tokens, and note its end."""
        opened = self._open.pop(id(plan), None)
        if opened is None:
            return super().update_from_output(plan, output)
        began, batch = opened
        self._count_stale(batch)
        outputs = super().update_from_output(plan, output)
        self.note_step(began, batch)
        return outputs

    def note_step(self, began_ns: int, batch: Batch) -> None:
        """A step lasts until its tokens are taken, from its plan or the end of the step before if that is later."""
        end = time.monotonic_ns()
        self.write_step(max(began_ns, self._last_end_ns), end, batch)

    def write_step(self, start_ns: int, end_ns: int, batch: Batch, law_ticks: int = 0, late_ticks: int = 0) -> None:
        """Write the step down."""
        self._last_end_ns = end_ns
        held = (batch.decodes, batch.kv_tokens, batch.chunks, batch.prefill_tokens)
        self.notes.step(StepNote(start_ns, end_ns, *held, len(batch.samplers), batch.preempted, law_ticks, late_ticks))

    def _count_stale(self, batch: Batch) -> None:
        """Tokens of requests that were preempted since: vLLM drops them and samples them again."""
        for name in batch.samplers:
            request = self.requests.get(name)
            if request is not None and request.num_stale_output_tokens > 0 and request.drop_stale_output:
                self._thrown[name] += 1

    def _free_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Every request that ends comes by here."""
        name = request.request_id
        under_way = sum(name in batch.samplers for _, batch in self._open.values())
        note = EndNote(request.num_output_tokens, self._thrown.pop(name, 0) + under_way)
        self.notes.end(name.partition("-")[0], note)
        return super()._free_request(request, *args, **kwargs)


class AsyncNotingScheduler(NotingScheduler, AsyncScheduler):  # type: ignore[misc]
    """For asynchronous scheduling: vLLM turns it off for a scheduler that is no ``AsyncScheduler``.

    In the order of resolution the notes come first, then ``AsyncScheduler``, then what both derive from.
    """
