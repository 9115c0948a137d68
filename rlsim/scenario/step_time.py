"""The section ``step_time``: what an engine step costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from rlsim.core.errors import ParameterError
from rlsim.core.section import Name, Positive, Seconds, Section

COEFFICIENTS = (
    "base_seconds",
    "per_sequence_seconds",
    "per_kv_token_seconds",
    "per_prefill_token_seconds",
    "per_pair_seconds",
)
"""Keys of a step that is affine in what it computes."""


class StepTimeSource(Section):
    """Where the time of an engine step comes from, and how it is corrected."""

    source: Literal["profile", "roofline", "coefficients"] = Field(description="Kind of cost model")
    profile: Name | None = Field(default=None, description="Profile by name or path; needs source: profile")
    scale: Positive = Field(default=1.0, description="Factor on every step time")
    offset_seconds: Seconds = Field(default=0.0, description="Framework overhead added to every step")
    offset_seconds_per_layer: Seconds = Field(
        default=0.0, description="The same a layer of the model: what the host launches layer by layer"
    )
    base_seconds: Seconds = Field(default=0.0, description="Coefficient: an empty step")
    per_sequence_seconds: Seconds = Field(default=0.0, description="Coefficient: a sequence that decodes")
    per_kv_token_seconds: Seconds = Field(default=0.0, description="Coefficient: a KV token read")
    per_prefill_token_seconds: Seconds = Field(default=0.0, description="Coefficient: a prompt token computed")
    per_pair_seconds: Seconds = Field(default=0.0, description="Coefficient: a (query, key) pair of prefill attention")
    noise_cv: Seconds = Field(default=0.0, description="Coefficient of variation of one step; 0: deterministic")

    def contradictions(self) -> Iterator[ParameterError]:
        """A profile without its source, a source without its profile, and coefficients likewise."""
        if (self.profile is None) == (self.source == "profile"):
            allowed = "a name or path" if self.profile is None else f"nothing with source: {self.source}"
            yield ParameterError("profile", self.profile, allowed)
        if self.source == "coefficients" and self.base_seconds == 0:
            yield ParameterError("base_seconds", 0.0, "a number, above 0, with source: coefficients")
        if self.source != "coefficients":
            for name in COEFFICIENTS:
                if getattr(self, name):
                    yield ParameterError(name, getattr(self, name), f"0 with source: {self.source}")
