"""Prompts on a ring of replicas."""

from __future__ import annotations

import math
from bisect import bisect
from dataclasses import dataclass

from rlsim.core.view import Sample, Shape, View
from rlsim.policies.bounds import at_least
from rlsim.policies.hashed import hashed


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


@dataclass(frozen=True, slots=True)
class ConsistentHash:
    """The first replica after the prompt's hash on a ring that has room: the same one for a group, at every visit.

    Room is ``max_load_ratio`` times the mean load (consistent hashing with bounded loads, arXiv 1608.01350).
    """

    virtual_nodes: int = 64
    """Places of a replica on the ring."""
    max_load_ratio: float = 1.25

    def start(self, shape: Shape) -> _Ring:
        """Refuse a ring without places or without room."""
        at_least("virtual_nodes", self.virtual_nodes, 1)
        at_least("max_load_ratio", self.max_load_ratio, 1)
        places = ((replica, node) for replica in range(shape.replicas) for node in range(self.virtual_nodes))
        points = sorted((hashed("replica", replica, node), replica) for replica, node in places)
        return _Ring(points, self.max_load_ratio)
