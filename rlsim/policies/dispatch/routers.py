"""Routers among like replicas: which one serves the next call of a sample.

By load, counted in calls or in tokens of context, of all replicas or of two drawn at random; by a key, so that a
sample, a group or a prompt meets its cached prefix again (sticky, consistent hashing with bounded loads, prefix-
aware); or one replica filled with a batch before the next (Laminar).
"""

from __future__ import annotations

import math
from bisect import bisect
from dataclasses import dataclass

from rlsim.core.checks import at_least
from rlsim.core.hashing import hashed
from rlsim.core.view import RunSizes, Sample, View
from rlsim.policies.registry import part


@part("dispatch", "least-in-flight")
@dataclass(frozen=True, slots=True)
class LeastInFlight:
    """The replica with the fewest calls in flight, every call anew."""

    def start(self, shape: RunSizes) -> LeastInFlight:
        """Nothing to check."""
        return self

    def replica(self, view: View, sample: Sample) -> int:
        """The least loaded."""
        return view.loads.least()


@part("dispatch", "sticky")
@dataclass(frozen=True, slots=True)
class Sticky:
    """Later turns and resumed calls of a sample return to its replica, if open; new samples go to the least loaded."""

    def start(self, shape: RunSizes) -> Sticky:
        """Nothing to check."""
        return self

    def replica(self, view: View, sample: Sample) -> int:
        """Where it was, or the least loaded."""
        held, loads = sample.replica, view.loads
        return held if held >= 0 and loads.is_open(held) else loads.least()


@part("dispatch", "group-affinity")
@dataclass(frozen=True, slots=True)
class GroupAffinity:
    """All samples of a group on one replica, so that they share the cached prompt."""

    def start(self, shape: RunSizes) -> GroupAffinity:
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


@part("dispatch", "round-robin")
@dataclass(frozen=True, slots=True)
class RoundRobin:
    """Each call to the next replica in turn."""

    def start(self, shape: RunSizes) -> _Turn:
        """Begin at the first replica."""
        return _Turn(shape.replicas)


class _Ring:
    def __init__(self, points: list[tuple[int, int]], max_load_ratio: float) -> None:
        self._points, self._ratio = points, max_load_ratio

    def replica(self, view: View, sample: Sample) -> int:
        loads, in_flight = view.loads, view.loads.in_flight
        allowed = math.ceil(self._ratio * (len(view.generating_samples) + 1) / max(1, loads.open_count))
        place = bisect(self._points, (hashed("prompt", sample.group.draw), 0))
        for step in range(len(self._points)):
            replica = self._points[(place + step) % len(self._points)][1]
            if in_flight[replica] < allowed and loads.is_open(replica):
                return replica
        return loads.least()


@part("dispatch", "consistent-hash")
@dataclass(frozen=True, slots=True)
class ConsistentHash:
    """The first replica after the prompt's hash on a ring that has room: the same one for a group, at every visit.

    Room is ``max_load_ratio`` times the mean load (consistent hashing with bounded loads, arXiv 1608.01350).
    """

    virtual_nodes: int = 64
    """Places of a replica on the ring."""
    max_load_ratio: float = 1.25

    def start(self, shape: RunSizes) -> _Ring:
        """Refuse a ring without places or without room."""
        at_least("virtual_nodes", self.virtual_nodes, 1)
        at_least("max_load_ratio", self.max_load_ratio, 1)
        places = ((replica, node) for replica in range(shape.replicas) for node in range(self.virtual_nodes))
        points = sorted((hashed("replica", replica, node), replica) for replica, node in places)
        return _Ring(points, self.max_load_ratio)


class _Filling:
    def __init__(self, batch: int) -> None:
        self._batch, self._left, self._replica = batch, 0, 0

    def replica(self, view: View, sample: Sample) -> int:
        if sample.replica >= 0 and view.loads.is_open(sample.replica):
            return sample.replica
        if not (self._left and view.loads.is_open(self._replica)):
            self._left, self._replica = self._batch, view.loads.least()
        self._left -= 1
        return self._replica


@part("dispatch", "fill-empty")
@dataclass(frozen=True, slots=True)
class FillEmpty:
    """``replica_batch`` new samples to the least loaded replica, then as many to the next; later turns stay."""

    replica_batch: int | None = None
    """As the admission's (``refill-empty``); None for the seats of a replica (``max_num_seqs``)."""

    def start(self, shape: RunSizes) -> _Filling:
        """Refuse an empty batch."""
        batch = shape.max_num_seqs if self.replica_batch is None else self.replica_batch
        at_least("replica_batch", batch, 1)
        return _Filling(batch)


@part("dispatch", "least-tokens")
@dataclass(frozen=True, slots=True)
class LeastTokens:
    """The replica whose calls in flight began with the fewest tokens of context: near its KV load and prefill work."""

    def start(self, shape: RunSizes) -> LeastTokens:
        """Nothing to check."""
        return self

    def replica(self, view: View, sample: Sample) -> int:
        """The least loaded in tokens."""
        return view.loads.least_tokens()


class _Choices:
    def __init__(self, seed: int, replicas: int) -> None:
        self._seed, self._replicas, self._decision = seed, replicas, 0

    def replica(self, view: View, sample: Sample) -> int:
        self._decision += 1
        drawn = hashed("power of two", self._seed, self._decision)
        first = drawn % self._replicas
        second = (first + 1 + (drawn >> 32) % max(1, self._replicas - 1)) % self._replicas
        loads, in_flight = view.loads, view.loads.in_flight
        drawn_open = [replica for replica in (first, second) if loads.is_open(replica)]
        return min(drawn_open, key=in_flight.__getitem__) if drawn_open else loads.least()


@part("dispatch", "power-of-two")
@dataclass(frozen=True, slots=True)
class PowerOfTwo:
    """Two different replicas by hash of the decision's number, then the one with fewer calls in flight.

    One that is closed loses; when both are, the least loaded one serves.

    Mitzenmacher, "The power of two choices in randomized load balancing", 2001.
    """

    seed: int = 0

    def start(self, shape: RunSizes) -> _Choices:
        """Begin at the first decision."""
        return _Choices(self.seed, shape.replicas)


@part("dispatch", "prefix-aware")
@dataclass(frozen=True, slots=True)
class PrefixAware:
    """The replica that served the sample, or else a group mate, last; the least loaded one if that is overloaded."""

    max_extra_calls: int = 8
    """Calls in flight that it may have beyond the least loaded replica."""

    def start(self, shape: RunSizes) -> PrefixAware:
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
