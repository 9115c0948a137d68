"""A user's question as a scenario: what was observed, and what of a run answers it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from rlsim.core.errors import ParameterError
from rlsim.core.section import Name, Positive, Section
from rlsim.scenario.published import Quantity

Measure = (
    Quantity
    | Literal[
        "idle_tools_share",
        "idle_reward_share",
        "gpu_hours_per_step",
        "response_tokens_mean",
        "start_lag_max",
        "intra_batch_lag_mean",
        "truncated_share",
        "generated_over_trained",
        "stuck",
    ]
)
"""What is measured: a published quantity, or one of these. ``stuck`` is 1 for a run that cannot end, otherwise 0."""
NEAR = 0.1
"""Relative distance up to which a number is about another; absolute from 0."""


class Case(Section):
    """An observation, and the number of a run, or ratio of two arms, that is to explain it."""

    id: Name = Field(description="Short label, such as U15")
    question: Name = Field(description="What the user asked, paraphrased")
    source: Name = Field(description="Citation")
    observed: Name = Field(description="What the user saw")
    measure: Measure = Field(description="What is measured")
    arm: Name = Field(description="Arm that it is measured in")
    over: Name | None = Field(default=None, description="Arm whose number it is divided by; None: it stands alone")
    direction: Literal["above", "below", "about"] = Field(
        description="Side of ``than`` that was seen; about: within 10 %"
    )
    than: float = Field(default=1.0, ge=0, description="What the number is held against")
    size: Positive | None = Field(default=None, description="The number that was seen, where the source gives one")
    assumptions: tuple[Name, ...] = Field(
        min_length=1, strict=False, description="What the source leaves open, and the choice made before looking"
    )
    reading: str = Field(default="", description="What the figure teaches; where it misses, why, as far as is known")

    def contradictions(self) -> Iterator[ParameterError]:
        """A size on the other side, an arm over itself, a ratio of what may be 0."""
        if self.size is not None and not self.is_seen(self.size):
            yield ParameterError("size", self.size, f"a number {self.direction} {self.than:g}, as direction says")
        if self.over == self.arm:
            yield ParameterError("over", self.over, f"another arm than {self.arm}")
        if self.over is not None and self.measure == "stuck":
            yield ParameterError("over", self.over, "nothing: stuck is no ratio")

    def is_seen(self, value: float) -> bool:
        """Whether a number is on the side that was seen."""
        if self.direction == "about":
            return abs(value - self.than) <= NEAR * (self.than or 1.0)
        return value > self.than if self.direction == "above" else value < self.than
