"""Routers."""

from __future__ import annotations

from dataclasses import dataclass

from rlsim.core.view import Sample, Shape, View


@dataclass(frozen=True, slots=True)
class LeastInFlight:
    """The replica with the fewest calls in flight, every call anew."""

    def start(self, shape: Shape) -> LeastInFlight:
        """Nothing to check."""
        return self

    def replica(self, view: View, sample: Sample) -> int:
        """The least loaded."""
        return view.loads.least()


@dataclass(frozen=True, slots=True)
class Sticky:
    """Later turns and resumed calls of a sample return to its replica, if open; new samples go to the least loaded."""

    def start(self, shape: Shape) -> Sticky:
        """Nothing to check."""
        return self

    def replica(self, view: View, sample: Sample) -> int:
        """Where it was, or the least loaded."""
        held, loads = sample.replica, view.loads
        return held if held >= 0 and loads.is_open(held) else loads.least()


@dataclass(frozen=True, slots=True)
class GroupAffinity:
    """All samples of a group on one replica, so that they share the cached prompt."""

    def start(self, shape: Shape) -> GroupAffinity:
        """Nothing to check."""
        return self

    def replica(self, view: View, sample: Sample) -> int:
        """Where the group's first sample went."""
        first = sample.group.members[0].replica
        return first if first >= 0 and view.loads.is_open(first) else view.loads.least()


class _Turn:
    def __init__(self, replicas: int) -> None:
        self._replicas, self._next = replicas, -1

    def replica(self, view: View, sample: Sample) -> int:
        for _ in range(self._replicas):
            self._next = (self._next + 1) % self._replicas
            if view.loads.is_open(self._next):
                return self._next
        return view.loads.least()


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """Each call to the next replica in turn."""

    def start(self, shape: Shape) -> _Turn:
        """Begin at the first replica."""
        return _Turn(shape.replicas)
