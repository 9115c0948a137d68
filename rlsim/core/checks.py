"""Checks of the numbers of a law; the path is the field, and whoever knows more prefixes it.

Checks of part parameters, with the field named.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from rlsim.core.errors import ParameterError
from rlsim.core.view import RunSizes

LARGEST_CAP_TOKENS = 2**22
"""A cap beyond this is a typing error; means are sums over every length up to the cap."""


def number(path: str, value: object, allowed: str) -> float:
    """``value`` if it is a finite number (not a bool, not a string)."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ParameterError(path, value, allowed)
    return float(value)


def above(path: str, value: object, low: float = 0.0) -> float:
    """``value`` if it is finite and greater than ``low``."""
    allowed = f"a number greater than {low:g}"
    if number(path, value, allowed) <= low:
        raise ParameterError(path, value, allowed)
    return float(value)  # type: ignore[arg-type]


def within(path: str, value: object, low: float, high: float, *, open_above: bool = False) -> float:
    """``value`` if it is finite and in [low, high], or in [low, high) with ``open_above``."""
    allowed = f"a number in [{low:g}, {high:g}{')' if open_above else ']'}"
    numeric = number(path, value, allowed)
    if not low <= numeric <= high or (open_above and numeric == high):
        raise ParameterError(path, value, allowed)
    return numeric


def whole(path: str, value: object, low: int = 1, high: int = LARGEST_CAP_TOKENS) -> int:
    """``value`` as an integer, if it is one (4096.0 is) and in [low, high]."""
    allowed = f"a whole number in [{low}, {high}]"
    numeric = number(path, value, allowed)
    if not numeric.is_integer() or not low <= numeric <= high:
        raise ParameterError(path, value, allowed)
    return int(numeric)


@contextmanager
def inside(path: str) -> Iterator[None]:
    """Prefix the path of a ParameterError raised in the block."""
    try:
        yield
    except ParameterError as error:
        raise ParameterError(f"{path}.{error.path}", error.found, error.allowed) from None


def at_least(field: str, value: float, least: float) -> None:
    """Refuse a number below ``least`` (and NaN)."""
    if not value >= least:
        raise ParameterError(field, value, f"at least {least}")


def fraction(field: str, value: float) -> None:
    """Refuse what is no part of a whole (and NaN)."""
    if not 0 <= value <= 1:
        raise ParameterError(field, value, "between 0 and 1")


def several(use: str, shape: RunSizes) -> None:
    """Refuse groups of one, whose rewards are always the same."""
    if shape.group_size < 2:
        raise ParameterError("use", use, f"workload.group_size: at least 2 with it, not {shape.group_size}")


def divides(field: str, value: int, whole: int) -> None:
    """Refuse parts that do not cut ``whole`` groups evenly."""
    if whole % value:
        raise ParameterError(field, value, f"a divisor of {whole}, the groups that it cuts")
