"""Calls move from the most to the least loaded replica."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlsim.core.view import Sample, Shape, View
from rlsim.policies.bounds import at_least
from rlsim.policies.migration.moves import movable


class _Balance:
    def __init__(self, max_gap_calls: int, transfers_kv: bool) -> None:
        self._max_gap, self.transfers_kv = max_gap_calls, transfers_kv
        self._moving: list[Sample] = []

    def moves(self, view: View) -> Sequence[tuple[Sample, int]]:
        in_flight = view.loads.in_flight
        if not view.loads.any_open():
            return ()
        least = view.loads.least()
        high = max(in_flight)
        if high - in_flight[least] <= self._max_gap or any(sample.aborting for sample in self._moving):
            return ()
        most = in_flight.index(high)
        self._moving = movable(view, {most})[most][-((high - in_flight[least]) // 2) :]
        return [(sample, least) for sample in self._moving]


@dataclass(frozen=True, slots=True)
class Balance:
    """When loads differ by more than ``max_gap_calls``, half the difference moves, the calls begun last.

    One move at a time; those begun last have the least to carry, or still wait for a seat.
    """

    max_gap_calls: int = 4
    """Difference in calls in flight between the most and the least loaded replica that is left alone."""
    transfers_kv: bool = True
    """Whether the KV moves along; otherwise it is computed again."""

    def start(self, shape: Shape) -> _Balance:
        """Refuse a gap that a move of one call would not narrow."""
        at_least("max_gap_calls", self.max_gap_calls, 1)
        return _Balance(self.max_gap_calls, self.transfers_kv)
