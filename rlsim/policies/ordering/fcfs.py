"""First come, first served."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.view import Sample, Shape, View


@dataclass(frozen=True, slots=True)
class Fcfs:
    """Calls run in the order in which they reach a replica, to their end."""

    shares_kv: ClassVar[bool] = False
    oracle: ClassVar[bool] = False
    ranks: ClassVar[bool] = False

    def start(self, shape: Shape) -> Fcfs:
        """Nothing to check."""
        return self

    def priority(self, view: View, sample: Sample) -> int:
        """All alike."""
        return 0

    def chunk_tokens(self, view: View, sample: Sample) -> int:
        """No limit."""
        return 0
