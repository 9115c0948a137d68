"""The section ``run.budget``: what a run may use up."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from rlsim.core.errors import ParameterError
from rlsim.scenario.section import Count, Positive, Section


class Budget(Section):
    """What a run may use up: it ends with the training step in which the first of these is reached."""

    rollouts: Count | None = Field(default=None, description="Samples that were begun")
    response_tokens: Count | None = Field(default=None, description="Response tokens of calls that have ended")
    trained_tokens: Count | None = Field(default=None, description="Response tokens of samples trained on, each once")
    gpu_seconds: Positive | None = Field(default=None, description="Time of all GPUs in use, idle or not")
    usd: Positive | None = Field(default=None, description="Price of that time")

    def contradictions(self) -> Iterator[ParameterError]:
        """A budget without a limit."""
        if all(getattr(self, name) is None for name in type(self).model_fields):
            yield ParameterError("rollouts", None, f"at least one of {', '.join(type(self).model_fields)}")
