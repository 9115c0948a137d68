"""Whether a value may stand at a key of a scenario, by the schema, before the rest of the scenario is known."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from rlsim.core.section import Count


def why_not(path: str, value: Any) -> str | None:
    """What the schema has against the value at the key ``path``; None where nothing."""
    adapter = _adapter(path)
    if adapter is None:
        return None
    try:
        adapter.validate_python(value)
    except ValidationError as error:
        return error.errors(include_url=False)[0]["msg"]
    return None


@cache
def _adapter(path: str) -> TypeAdapter[Any] | None:
    """The check of one number, text or flag; None for what the schema leaves open, as parameters of a policy."""
    from rlsim.scenario.schema import Scenario

    strict = ConfigDict(strict=True, allow_inf_nan=False)
    if path.endswith(".cap_tokens"):
        return TypeAdapter(Count, config=strict)
    model: type[BaseModel] = Scenario
    *sections, last = path.split(".")
    for section in sections:
        below = model.model_fields[section].annotation if section in model.model_fields else None
        if not (isinstance(below, type) and issubclass(below, BaseModel)):
            return None
        model = below
    field = model.model_fields.get(last)
    if field is None:
        return None
    annotation: Any = Annotated[field.annotation, field]
    return TypeAdapter(annotation, config=strict)
