"""What every section of a scenario is, and the cost of an engine step, which several sections have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rlsim.core.errors import ParameterError
from rlsim.scenario.errors import ContradictionError

Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(gt=0, le=1)]
Name = Annotated[str, Field(min_length=1)]


class Section(BaseModel):
    """A mapping of the scenario: closed to unknown keys, finite numbers, no silent conversion."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        errors = list(self.contradictions())
        if errors:
            raise ContradictionError(errors)
        return self

    def contradictions(self) -> Iterable[ParameterError]:
        """Fields that do not go together, with paths inside this section."""
        return ()


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
            yield from self._stray_coefficients()

    def _stray_coefficients(self) -> Iterator[ParameterError]:
        names = ("base", "per_sequence", "per_kv_token", "per_prefill_token", "per_pair")
        for name in (f"{name}_seconds" for name in names):
            if getattr(self, name):
                yield ParameterError(name, getattr(self, name), f"0 with source: {self.source}")
