"""Measured numbers beside predictions, and what an entry of the validation says of itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from rlsim.core.errors import ParameterError
from rlsim.core.section import Count, Name, Positive, Section

Quantity = Literal[
    "step_seconds",
    "generation_seconds",
    "tail_seconds",
    "wait_seconds",
    "old_log_prob_seconds",
    "update_seconds",
    "train_seconds",
    "sync_seconds",
    "engine_step_seconds",
    "samples_per_second",
    "tokens_per_second",
    "response_tokens_per_second",
    "tokens_per_second_per_gpu",
    "generated_tokens_per_second_per_gpu",
    "trained_tokens_per_second",
    "trainer_idle_share",
    "rollout_idle_share",
    "preemptions_per_step",
    "start_lag_mean",
    "end_lag_mean",
]
"""What a number is of; formulas in docs/evidence/index.md."""


class Published(Section):
    """A measured number shown beside the prediction: ``step_seconds``, or any quantity and its value."""

    step_seconds: Positive | None = Field(default=None, description="Measured step time")
    quantity: Quantity | None = Field(default=None, description="What value is of, where it is no step time")
    value: Positive | None = Field(default=None, description="Measured number, in the unit of its quantity's name")
    over: Name | None = Field(
        default=None, description="Arm that this one is better than by value, a factor; above 1 is better"
    )
    family: Name | None = Field(
        default=None, description="Rows of one family are alternatives for one workload, the first the baseline"
    )
    decodes: Count | None = Field(default=None, description="Sequences of an engine step")
    context_tokens: Count | None = Field(default=None, description="KV tokens of each of them")
    source: Name = Field(description="Citation")
    grade: Name = Field(description="How complete the source is, or how the number was read")
    calibrated: bool = Field(default=False, description="Whether this row was used to fit something")
    fitted: tuple[Name, ...] = Field(default=(), strict=False, description="Parameters that were fitted, by key path")
    mismatches: tuple[Name, ...] = Field(default=(), strict=False, description="What differs from the source's set-up")
    notes: str = Field(default="", description="Anything else the reader must know")

    def contradictions(self) -> Iterator[ParameterError]:
        """Two numbers or none; a batch without an engine step, or the other way round."""
        if (self.step_seconds is None) == (self.value is None):
            yield ParameterError("value", self.value, "either step_seconds, or quantity and value")
        elif (self.quantity is None) != (self.value is None):
            yield ParameterError("quantity", self.quantity, "what value is of, and nothing beside step_seconds")
        batch = self.decodes is not None and self.context_tokens is not None
        if batch != (self.quantity == "engine_step_seconds"):
            yield ParameterError("decodes", self.decodes, "with context_tokens, for engine_step_seconds alone")

    @property
    def of(self) -> Quantity:
        """What the number is of."""
        return self.quantity or "step_seconds"

    @property
    def measured(self) -> float:
        """The number, in the unit of its quantity; a factor with ``over``."""
        number = self.step_seconds if self.value is None else self.value
        assert number is not None, "checked above"
        return number

    @property
    def is_step_time(self) -> bool:
        """Whether it may stand beside a predicted step time."""
        return self.of == "step_seconds" and self.over is None


class LeftOut(Section):
    """A published number that no scenario can express yet."""

    what: Name = Field(description="The number")
    reason: Name = Field(description="What would have to be modelled or known")


class PublishedEntry(Section):
    """What a published source says, what was assumed beside it, and what it leaves unexpressed."""

    id: Name = Field(description="Short label, such as A1")
    title: Name = Field(description="What was measured")
    source: Name = Field(description="Citation")
    assumptions: tuple[Name, ...] = Field(strict=False, description="What the source leaves open, and the choice made")
    left_out: tuple[LeftOut, ...] = Field(default=(), strict=False, description="Its numbers that are no rows yet")
    misses: str = Field(default="", description="Why predictions are off, as far as is known, and what would settle it")
