"""Groups that a round does not wait for are begun again later, together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.view import Shape, View
from rlsim.policies.admission.tail_batching import long_round


@dataclass(frozen=True, slots=True)
class PutOff:
    """A batch ends the round; the prompts of all other groups wait for a round of their own, from the beginning.

    RollPacker's long-prompt queue (arXiv 2509.21009): what ends a short round last is likely long.
    """

    ends_round: ClassVar[bool] = True
    keeps_unfinished: ClassVar[bool] = False
    keeps_surplus: ClassVar[bool] = False
    recycles: ClassVar[bool] = True

    def start(self, shape: Shape) -> PutOff:
        """Nothing to check."""
        return self

    def expired(self, view: View) -> Sequence[int]:
        """Nothing expires."""
        return ()

    def abandoned(self, view: View) -> Sequence[int]:
        """Nothing is given up but by the end of a round."""
        return ()

    def redraws(self, view: View) -> bool:
        """In long rounds only."""
        return long_round(view)
