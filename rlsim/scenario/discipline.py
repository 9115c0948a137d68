"""The section ``rollout.discipline``: rules of an engine's scheduler that replace vLLM's own, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from rlsim.core.errors import ParameterError
from rlsim.core.section import Count, Fraction, Positive, Seconds, Section

Reserve = Annotated[float, Field(ge=0, lt=1)]


class DisciplineConfig(Section):
    """Nothing set: vLLM's scheduler. The formulas are in docs/concepts/engine-model.md."""

    admission: Literal["aggressive", "conservative", "past_future"] = Field(
        default="aggressive", description="What must fit for a call to enter: prompt, longest outputs, predicted peak"
    )
    reserved_fraction: Reserve | None = Field(
        default=None, description="Share of the KV blocks left out of the test; None: 0.05 with past_future, else 0"
    )
    quantile: Fraction | None = Field(
        default=None, description="past_future: at which outputs are predicted; None: a hash of seed and sample"
    )
    history_calls: Count | None = Field(
        default=None, description="past_future: finished calls that are remembered; None: 200"
    )
    initial_calls: int | None = Field(
        default=None, ge=0, description="past_future: calls of the longest output to begin with; None: half the history"
    )
    target_step_seconds: Positive | None = Field(
        default=None, description="Chunks as long as the predicted step time allows; None: max_num_batched_tokens alone"
    )
    min_chunk_tokens: Count | None = Field(
        default=None, description="Prefill tokens a step may take whatever the target; needed with target_step_seconds"
    )
    predicted_scale: Positive | None = Field(default=None, description="Predicted over true step time; None: 1")
    max_concurrent_prefills: Count | None = Field(default=None, description="Prefill chunks in a step; None: no limit")
    order: Literal["ageing"] | None = Field(default=None, description="Of the waiting queue; None: scheduling_policy")
    waiting_weight: Seconds | None = Field(default=None, description="ageing: of a second waited")
    prefill_weight: Seconds | None = Field(default=None, description="ageing: of a token of prefill left")

    def contradictions(self) -> Iterator[ParameterError]:
        """Parameters of rules that are not chosen, and rules without theirs."""
        yield from self._strays(self.admission == "past_future", "admission: past_future", *PAST_FUTURE)
        tested = self.admission != "aggressive"
        yield from self._strays(tested, "admission: conservative or past_future", "reserved_fraction")
        paced = self.target_step_seconds is not None
        yield from self._strays(paced, "target_step_seconds", "min_chunk_tokens", "predicted_scale")
        if paced and self.min_chunk_tokens is None:
            yield ParameterError("min_chunk_tokens", None, "a whole number, at least 1, with target_step_seconds")
        yield from self._strays(self.order == "ageing", "order: ageing", *AGEING)
        if self.order == "ageing":
            for key in AGEING:
                if getattr(self, key) is None:
                    yield ParameterError(key, None, "a number, at least 0, with order: ageing")
            if self.waiting_weight == 0 and self.prefill_weight == 0:
                yield ParameterError("waiting_weight", 0.0, "above 0, or prefill_weight above 0")
        history = self.history_calls or HISTORY_CALLS
        if (self.initial_calls or 0) > history:
            yield ParameterError("initial_calls", self.initial_calls, f"at most history_calls ({history})")

    def disagreements(
        self, scheduling_policy: str, enable_chunked_prefill: bool, max_num_batched_tokens: int
    ) -> Iterator[ParameterError]:
        """What does not go together with the rest of the rollout section."""
        if self.order is not None and scheduling_policy == "priority":
            yield ParameterError("discipline.order", self.order, "nothing with scheduling_policy: priority")
        if self.target_step_seconds is not None and not enable_chunked_prefill:
            target = self.target_step_seconds
            yield ParameterError("discipline.target_step_seconds", target, "nothing with enable_chunked_prefill: false")
        if self.min_chunk_tokens is not None and self.min_chunk_tokens > max_num_batched_tokens:
            allowed = f"at most max_num_batched_tokens ({max_num_batched_tokens})"
            yield ParameterError("discipline.min_chunk_tokens", self.min_chunk_tokens, allowed)

    def _strays(self, chosen: bool, rule: str, *keys: str) -> Iterator[ParameterError]:
        for key in keys:
            if not chosen and getattr(self, key) is not None:
                yield ParameterError(key, getattr(self, key), f"nothing without {rule}")


HISTORY_CALLS = 200
"""LightLLM's window (router/req_queue/chunked_prefill/impl_for_past_future.py)."""
PAST_FUTURE = ("quantile", "history_calls", "initial_calls")
AGEING = ("waiting_weight", "prefill_weight")
