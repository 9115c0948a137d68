"""How frozen values are pickled: as they were made. A compiled build cannot write their fields one by one."""

from __future__ import annotations

from dataclasses import fields
from typing import Any


def as_made(value: Any) -> tuple[type, tuple[object, ...]]:
    """For ``__reduce__`` of a frozen dataclass: its type, and the fields that it takes."""
    return type(value), tuple(getattr(value, field.name) for field in fields(value) if field.init)
