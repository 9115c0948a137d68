"""More samples than needed where a round is to be short."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.view import Group, Shape, View
from rlsim.policies.bounds import at_least
from rlsim.policies.hooks import Size


@dataclass(frozen=True, slots=True)
class ShortRounds:
    """``eta_r`` times ``group_size`` samples of a new prompt, the first to end count; no more of one put off before.

    arXiv 2509.21009: over-issue is for short rounds only.
    """

    eta_r: float = 1.25
    """Samples launched for a new prompt, as a multiple of ``group_size``."""
    aborts_surplus: ClassVar[bool] = True

    def start(self, shape: Shape) -> ShortRounds:
        """Refuse a group smaller than needed."""
        at_least("eta_r", self.eta_r, 1)
        return self

    def members(self, view: View, group: Group) -> Size:
        """More than needed of a new prompt."""
        size = view.shape.group_size
        return Size(size if group.recycle else math.ceil(self.eta_r * size), size)
