"""Where the prefix is cached, unless too much waits there."""

from __future__ import annotations

from dataclasses import dataclass

from rlsim.core.view import Sample, Shape, View
from rlsim.policies.bounds import at_least


@dataclass(frozen=True, slots=True)
class PrefixAware:
    """The replica that served the sample, or else a group mate, last; the least loaded one if that is overloaded."""

    max_extra_calls: int = 8
    """Calls in flight that it may have beyond the least loaded replica."""

    def start(self, shape: Shape) -> PrefixAware:
        """Refuse a negative bound."""
        at_least("max_extra_calls", self.max_extra_calls, 0)
        return self

    def replica(self, view: View, sample: Sample) -> int:
        """The cache, within the bound."""
        loads = view.loads
        least, in_flight = loads.least(), loads.in_flight
        holders = [sample.replica, *(mate.replica for mate in sample.group.members)]
        most = in_flight[least] + self.max_extra_calls
        within = (held for held in holders if held >= 0 and loads.is_open(held) and in_flight[held] <= most)
        return next(within, least)
