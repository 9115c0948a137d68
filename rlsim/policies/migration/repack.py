"""Replicas with few calls left are merged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlsim.core.errors import ParameterError
from rlsim.core.ticks import Ticks, to_ticks
from rlsim.core.view import Sample, Shape, View
from rlsim.policies.bounds import at_least
from rlsim.policies.migration.moves import movable


def best_fit(calls: dict[int, int], capacity: int) -> dict[int, int]:
    """Source to destination: the emptiest replica goes whole where the least room is left that still takes it.

    ``calls`` by replica; none ends above ``capacity``, and none gives away what it was given.
    """
    room = {replica: capacity - held for replica, held in calls.items()}
    merged: dict[int, int] = {}
    for source in sorted(calls, key=lambda replica: (calls[replica], replica)):
        if source in merged.values():
            continue
        fits = [other for other in calls if other not in merged and other != source and room[other] >= calls[source]]
        if fits:
            merged[source] = min(fits, key=lambda other: (room[other], other))
            room[merged[source]] -= calls[source]
    return merged


class _Repack:
    """When it looked last."""

    def __init__(self, part: Repack) -> None:
        self._below, self._capacity, self.transfers_kv = part.below_calls, part.capacity_calls, part.transfers_kv
        self._period: Ticks = to_ticks(part.every_seconds)
        self._next: Ticks = 0
        self._version = 0
        self._moving: list[Sample] = []

    def wake_at(self, view: View) -> Ticks | None:
        """The next look, while there is something to merge."""
        return self._next if self._period and len(view.generating_samples) > 1 else None

    def moves(self, view: View) -> Sequence[tuple[Sample, int]]:
        early = view.now < self._next and view.version == self._version
        if early or any(sample.aborting for sample in self._moving):
            return ()
        self._next, self._version = view.now + self._period, view.version
        loads = view.loads
        few = {
            number for number, calls in enumerate(loads.in_flight) if 0 < calls < self._below and loads.is_open(number)
        }
        if len(few) < 2:
            return ()
        found = {replica: calls for replica, calls in movable(view, few).items() if calls}
        by_version: dict[int, dict[int, int]] = {}
        for replica, calls in found.items():
            version = view.replica_versions.get(replica, -1)
            by_version.setdefault(version, {})[replica] = len(calls)
        merged = [best_fit(calls, self._capacity) for calls in by_version.values()]
        moves = [(call, to) for one in merged for source, to in one.items() for call in found[source]]
        self._moving = [sample for sample, _ in moves]
        return moves


@dataclass(frozen=True, slots=True)
class Repack:
    """Merge replicas with fewer than ``below_calls`` calls, best fit, so that some are empty and can go on.

    Looked at every ``every_seconds`` and after each update (where that is 0, whenever a sample ends), as Laminar does
    (arXiv 2510.12633; it judges by KV in use and a roofline batch, here both are numbers of calls). Only replicas that
    serve one version are merged, as far as their ended calls tell; one that drains while a move is under way may have
    a newer one.
    """

    below_calls: int = 8
    """A replica with fewer calls in flight is a candidate."""
    capacity_calls: int = 32
    """Calls that a replica may hold after a merger."""
    every_seconds: float = 5.0
    transfers_kv: bool = True
    """Whether the KV moves along; otherwise it is computed again."""

    def start(self, shape: Shape) -> _Repack:
        """Refuse a capacity below what a candidate may hold."""
        at_least("below_calls", self.below_calls, 2)
        at_least("every_seconds", self.every_seconds, 0)
        if self.capacity_calls < self.below_calls:
            raise ParameterError("capacity_calls", self.capacity_calls, f"at least below_calls = {self.below_calls}")
        return _Repack(self)
