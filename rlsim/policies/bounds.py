"""Checks of part parameters, with the field named."""

from __future__ import annotations

from rlsim.core.errors import ParameterError
from rlsim.core.view import Shape


def at_least(field: str, found: float, least: float) -> None:
    """Refuse a number below ``least`` (and NaN)."""
    if not found >= least:
        raise ParameterError(field, found, f"at least {least}")


def fraction(field: str, found: float) -> None:
    """Refuse what is no part of a whole (and NaN)."""
    if not 0 <= found <= 1:
        raise ParameterError(field, found, "between 0 and 1")


def several(use: str, shape: Shape) -> None:
    """Refuse groups of one, whose rewards are always the same."""
    if shape.group_size < 2:
        raise ParameterError("use", use, f"workload.group_size: at least 2 with it, not {shape.group_size}")


def divides(field: str, found: int, whole: int) -> None:
    """Refuse parts that do not cut ``whole`` groups evenly."""
    if whole % found:
        raise ParameterError(field, found, f"a divisor of {whole}, the groups that it cuts")
