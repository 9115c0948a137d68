"""Migration of running calls between replicas.

None; from the most to the least loaded replica; or whole replicas with few calls left are merged, so that others can
take new weights (Laminar's repack).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.checks import at_least
from rlsim.core.errors import ParameterError
from rlsim.core.ticks import Ticks, to_ticks
from rlsim.core.view import RunSizes, Sample, View
from rlsim.policies.registry import part


def movable(view: View, replicas: set[int]) -> dict[int, list[Sample]]:
    """Calls of some replicas that are wanted and not being cut, by replica, oldest first."""
    calls: dict[int, list[Sample]] = {replica: [] for replica in replicas}
    for sample in view.generating_samples.values():
        if sample.replica in calls and not (sample.aborting or sample.cancelled):
            calls[sample.replica].append(sample)
    return calls


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
        candidates = {replica: calls for replica, calls in movable(view, few).items() if calls}
        by_version: dict[int, dict[int, int]] = {}
        for replica, calls in candidates.items():
            version = view.replica_versions.get(replica, -1)
            by_version.setdefault(version, {})[replica] = len(calls)
        merged = [best_fit(calls, self._capacity) for calls in by_version.values()]
        moves = [(call, to) for one in merged for source, to in one.items() for call in candidates[source]]
        self._moving = [sample for sample, _ in moves]
        return moves


@part("migration", "repack")
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

    def start(self, shape: RunSizes) -> _Repack:
        """Refuse a capacity below what a candidate may hold."""
        at_least("below_calls", self.below_calls, 2)
        at_least("every_seconds", self.every_seconds, 0)
        if self.capacity_calls < self.below_calls:
            raise ParameterError("capacity_calls", self.capacity_calls, f"at least below_calls = {self.below_calls}")
        return _Repack(self)


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


@part("migration", "balance")
@dataclass(frozen=True, slots=True)
class Balance:
    """When loads differ by more than ``max_gap_calls``, half the difference moves, the calls begun last.

    One move at a time; those begun last have the least to carry, or still wait for a seat.
    """

    max_gap_calls: int = 4
    """Difference in calls in flight between the most and the least loaded replica that is left alone."""
    transfers_kv: bool = True
    """Whether the KV moves along; otherwise it is computed again."""

    def start(self, shape: RunSizes) -> _Balance:
        """Refuse a gap that a move of one call would not narrow."""
        at_least("max_gap_calls", self.max_gap_calls, 1)
        return _Balance(self.max_gap_calls, self.transfers_kv)


@part("migration", "stay")
@dataclass(frozen=True, slots=True)
class Stay:
    """A call ends where it began."""

    transfers_kv: ClassVar[bool] = False
    moves_calls: ClassVar[bool] = False

    def start(self, shape: RunSizes) -> Stay:
        """Nothing to check."""
        return self

    def moves(self, view: View) -> Sequence[tuple[Sample, int]]:
        """None."""
        return ()
