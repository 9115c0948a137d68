"""Sections of a scenario: closed mappings whose values are checked as they are read.

The room that uses a section declares it; the scenario composes them, so that a parameter is declared once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rlsim.core.errors import ContradictionError, ParameterError

Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(gt=0, le=1)]
Name = Annotated[str, Field(min_length=1)]


class Section(BaseModel):
    """A mapping of the scenario: closed to unknown keys, finite numbers, no silent conversion."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    def replace(self, **changes: Any) -> Self:
        """A copy with these values, checked as any other."""
        return type(self)(**{**dict(self), **changes})

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        errors = list(self.contradictions())
        if errors:
            raise ContradictionError(errors)
        return self

    def contradictions(self) -> Iterable[ParameterError]:
        """Fields that do not go together, with paths inside this section."""
        return ()
