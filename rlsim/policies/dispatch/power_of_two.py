"""The better of two replicas at random."""

from __future__ import annotations

from dataclasses import dataclass

from rlsim.core.view import Sample, Shape, View
from rlsim.policies.hashed import hashed


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


@dataclass(frozen=True, slots=True)
class PowerOfTwo:
    """Two different replicas by hash of the decision's number, then the one with fewer calls in flight.

    One that is closed loses; when both are, the least loaded one serves.

    Mitzenmacher, "The power of two choices in randomized load balancing", 2001.
    """

    seed: int = 0

    def start(self, shape: Shape) -> _Choices:
        """Begin at the first decision."""
        return _Choices(self.seed, shape.replicas)
