"""Checks of part parameters, with the field named."""

from __future__ import annotations

from rlsim.core.errors import ParameterError


def at_least(field: str, found: float, least: float) -> None:
    """Refuse a number below ``least`` (and NaN)."""
    if not found >= least:
        raise ParameterError(field, found, f"at least {least}")
