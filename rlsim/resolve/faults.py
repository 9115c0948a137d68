"""Faults of independent sections, reported at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from rlsim.core.errors import ParameterError

T = TypeVar("T")


class Faults:
    """Collects the faults of independent sections."""

    def __init__(self) -> None:
        self.errors: list[ParameterError] = []

    def catch(self, make: Callable[[], T]) -> T | None:
        """The value made, or None with its fault kept."""
        try:
            return make()
        except ParameterError as error:
            self.errors.append(error)
            return None


class ResolveError(ParameterError):
    """All faults of a scenario that can only be seen when its names are resolved."""

    def __init__(self, errors: list[ParameterError]) -> None:
        super().__init__(errors[0].path, errors[0].found, errors[0].allowed)
        self.errors = errors

    def __reduce__(self) -> tuple[type[ResolveError], tuple[list[ParameterError]]]:
        """Workers send it back by its one argument."""
        return type(self), (self.errors,)
