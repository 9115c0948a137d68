"""vLLM's scheduler at the speed of a step law: real scheduling, KV blocks and API, with another machine's step times.

Every step of a tiny model is padded to what the law of the scenario's pool says of its composition. Steps that took
longer are counted; the run catches up. Synchronous scheduling only. This module imports vllm; nothing but vLLM
imports it.
"""

from __future__ import annotations

import time
from typing import Any

from rlsim.core.ticks import TICKS_PER_SECOND
from rlsim.live.vllm.pace import StepPace, lateness, read_law
from rlsim.live.vllm.step_log import TICKS_PER_NANOSECOND, OpenStep
from rlsim.live.vllm.step_log_scheduler import StepLogScheduler


def _now() -> int:
    return time.monotonic_ns() * TICKS_PER_NANOSECOND


class PacedScheduler(StepLogScheduler):
    """Pads before the step's tokens are taken, so that what arrives meanwhile waits for the step's end."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pace = StepPace(read_law(self.vllm_config.additional_config.law))
        self._span = (0, 0)
        self._ready = 0

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """Decide a step."""
        self._pace.begin(_now())
        return super().schedule(*args, **kwargs)

    def update_from_output(self, plan: Any, output: Any) -> Any:
        """Wait until the step is due, and take its tokens."""
        step = self.step_log.open_steps.get(id(plan))
        if step is not None:
            self._span = self._pace.due(step.batch)
            time.sleep(max(0, self._span[1] - _now()) / TICKS_PER_SECOND)
            self._ready = _now()
        outputs = super().update_from_output(plan, output)
        self._pause_if_idle()
        return outputs

    def end_step(self, step: OpenStep) -> None:
        """Write the law's times, unless the step came late."""
        start, due = self._span
        late = lateness(self._ready - due)
        begin_ns, end_ns = start // TICKS_PER_NANOSECOND, (due + late) // TICKS_PER_NANOSECOND
        self.step_log.write(step, begin_ns, end_ns, law_ticks=due - start, late_ticks=late)

    def finish_requests(self, *args: Any, **kwargs: Any) -> Any:
        """Abort calls."""
        ended = super().finish_requests(*args, **kwargs)
        self._pause_if_idle()
        return ended

    def set_pause_state(self, pause_state: Any) -> None:
        """No step may begin, or one may again."""
        super().set_pause_state(pause_state)
        self._pace.idle()

    def _pause_if_idle(self) -> None:
        if not (self.step_log.open_steps or any(self.get_request_counts())):
            self._pace.idle()
