"""The section ``search``: what a plan may choose from, what it is to minimise and what it must keep to.

The section ``run.budget``: what a run may use up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from rlsim.core.errors import ParameterError
from rlsim.core.section import Count, Fraction, Name, Positive, Seconds, Section

Objective = Literal[
    "step_seconds",
    "seconds_per_million_trained_tokens",
    "usd_per_million_trained_tokens",
    "seconds_to_target",
    "usd_to_target",
]


class Limits(Section):
    """What a choice must keep to."""

    max_gpus: Count | None = Field(default=None, description="GPUs in use; None: no limit")
    max_usd_per_hour: Positive | None = Field(default=None, description="Of all GPUs in use; None: no limit")
    max_start_lag: Seconds | None = Field(
        default=None,
        description="Weights versions between the first token of the oldest trained sample and its training",
    )
    max_step_seconds: Positive | None = Field(default=None, description="Step time; None: no limit")
    max_usd_per_million_trained_tokens: Positive | None = Field(default=None, description="None: no limit")
    target_success: Fraction | None = Field(
        default=None, description="Success rate to reach within the run's steps; needs a learning section; an estimate"
    )


class Search(Section):
    """A space of choices over the scenario around it."""

    axes: dict[Name, Any] = Field(
        default={},
        description="Key path (or some joined by colons; or arm, split): a list, or {from, to, step or factor}",
    )
    objective: Objective = Field(default="step_seconds", description="What to minimise")
    limits: Limits = Field(default=Limits(), description="What a choice must keep to")
    evaluations: Count = Field(
        default=200, description="Choices simulated at most; a larger space is searched, not tried out"
    )
    uncertain: dict[Name, Any] = Field(
        default={}, description="Inputs that are not known, and the values they may have: the choice must do under all"
    )
    robust: Literal["regret", "mean"] = Field(
        default="regret", description="Under uncertain inputs: least worst regret, or least mean"
    )
    sensitivity: dict[Name, Any] = Field(
        default={},
        description="Inputs and their lowest and highest value (or -20%, +20%): what would change the choice",
    )

    def contradictions(self) -> Iterator[ParameterError]:
        """Inputs that are chosen and uncertain at once, and a way to a target that is not said."""
        if self.objective.endswith("_to_target") and self.limits.target_success is None:
            yield ParameterError("limits.target_success", None, f"a success rate, with objective: {self.objective}")
        for name in ("uncertain", "sensitivity"):
            for key in getattr(self, name):
                if key in self.axes:
                    yield ParameterError(f"{name}.{key}", key, "an input that is no axis: what is chosen is known")


class SearchBudget(Section):
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
