"""Placements that never change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.view import Shape


@dataclass(frozen=True, slots=True)
class Colocated:
    """Rollout and training take turns on the same GPUs; the engines sleep while the trainer works."""

    shared: ClassVar[bool] = True

    def start(self, shape: Shape) -> Colocated:
        """Nothing to check."""
        return self


@dataclass(frozen=True, slots=True)
class Disaggregated:
    """Rollout and training each have GPUs of their own."""

    shared: ClassVar[bool] = False

    def start(self, shape: Shape) -> Disaggregated:
        """Nothing to check."""
        return self
