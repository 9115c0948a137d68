"""Everything that began too many steps ago is given up, complete or not: ROLL's garbage collection."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rlsim.core.view import Shape
from rlsim.policies.bounds import at_least
from rlsim.policies.leftovers.fates import DropOld


@dataclass(frozen=True, slots=True)
class RatioAge:
    """When weights change, groups that began more than ``ceil(async_generation_ratio)`` steps ago are dropped.

    Those under way are aborted (ROLL ``gc``, ``generate_scheduler.py``).
    """

    async_generation_ratio: float = 0.0

    def start(self, shape: Shape) -> DropOld:
        """Refuse a negative ratio."""
        at_least("async_generation_ratio", self.async_generation_ratio, 0)
        age = math.ceil(self.async_generation_ratio)
        return DropOld(max_age_versions=age, max_open_age_versions=age)
