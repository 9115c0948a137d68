"""No migration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.view import Sample, Shape, View


@dataclass(frozen=True, slots=True)
class Stay:
    """A call ends where it began."""

    transfers_kv: ClassVar[bool] = False

    def start(self, shape: Shape) -> Stay:
        """Nothing to check."""
        return self

    def moves(self, view: View) -> Sequence[tuple[Sample, int]]:
        """None."""
        return ()
