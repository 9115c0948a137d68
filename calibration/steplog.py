"""Which steps an engine ran and how long each took, from the plans of its scheduler and their ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from calibration.steps import TimedStep
from rlsim.core.steptime import attention_pairs


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
        self._open: dict[int, tuple[float, float, dict[str, int]]] = {}
        self._last_end = self._last_cpu = float("-inf")

    def now(self) -> tuple[float, float]:
        """Wall-clock and CPU seconds."""
        return self._clock(), self._cpu_clock()

    def begin(self, plan: Any, began: tuple[float, float], requests: Mapping[str, Any]) -> None:
        """Note what ``plan``, decided since ``began``, holds; ``requests`` have already been advanced by it."""
        if plan.total_num_scheduled_tokens:
            self._open[id(plan)] = *began, contents(plan, requests)

    def end(self, plan: Any) -> None:
        """Note how long it took."""
        opened = self._open.pop(id(plan), None)
        if opened is None:
            return
        began, cpu, held = opened
        now, cpu_now = self._clock(), self._cpu_clock()
        seconds = now - max(began, self._last_end)
        self.steps.append(TimedStep(seconds, cpu_now - max(cpu, self._last_cpu), **held))
        self._last_end, self._last_cpu = now, cpu_now


def contents(plan: Any, requests: Mapping[str, Any]) -> dict[str, int]:
    """Decodes, their KV tokens, chunks, their tokens and pairs, and preemptions of a plan."""
    entered = {new.req_id for new in plan.scheduled_new_reqs} | set(plan.scheduled_cached_reqs.resumed_req_ids)
    held = dict.fromkeys(("decodes", "kv_tokens", "chunks", "prefill_tokens", "pairs"), 0)
    for name, tokens in plan.num_scheduled_tokens.items():
        request = requests[name]
        before = request.num_computed_tokens - tokens
        if tokens > 1 or name in entered or before < request.num_prompt_tokens:
            held["chunks"] += 1
            held["prefill_tokens"] += tokens
            held["pairs"] += attention_pairs(tokens, before)
        else:
            held["decodes"] += 1
            held["kv_tokens"] += before + 1
    return {**held, "preempted": len(plan.preempted_req_ids or ())}
