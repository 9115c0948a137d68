"""Dispatch among pools of different hardware."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlsim.core.errors import ParameterError, unknown
from rlsim.core.view import Pool, Sample, Shape, View
from rlsim.policies.bounds import at_least


class _Weighted:
    def __init__(self, pools: Sequence[tuple[Pool, float]]) -> None:
        self._pools = pools

    def replica(self, view: View, sample: Sample) -> int:
        loads = view.loads
        least = [(loads.least(pool.replicas), weight) for pool, weight in self._pools if loads.any_open(pool.replicas)]
        if not least:
            return loads.least()
        return min(least, key=lambda found: ((loads.in_flight[found[0]] + 1) / found[1], found[0]))[0]


@dataclass(frozen=True, slots=True)
class ByWeight:
    """The least loaded replica of every pool, then that with the fewest calls for its weight, this call included.

    For replicas of different speed: with weights like their rates, all of them are as full as they are fast.
    """

    weights: dict[str, float] | None = None
    """By pool, of one replica; None for its seats."""

    def start(self, shape: Shape) -> _Weighted:
        """Refuse a shape without pools, and weights for other pools than it has."""
        if not shape.pools:
            raise ParameterError("use", "by-weight", "another part: this one needs rollout.pools")
        weights = {pool.name: float(pool.seats) for pool in shape.pools} if self.weights is None else self.weights
        for name, weight in weights.items():
            shape.pool(name, f"weights.{name}")
            if not weight > 0:
                raise ParameterError(f"weights.{name}", weight, "above 0")
        for pool in shape.pools:
            if pool.name not in weights:
                raise unknown("weights", pool.name, weights)
        return _Weighted([(pool, weights[pool.name]) for pool in shape.pools])


class Lengths:
    """Two pools and the tokens that decide between them."""

    def __init__(self, tokens: int, short: Pool, long: Pool) -> None:
        self._tokens, self._short, self._long = tokens, short, long

    def replica(self, view: View, sample: Sample) -> int:
        """The least loaded of the pool for the call's context; of all while that is closed."""
        pool = self._long if sample.context_tokens >= self._tokens else self._short
        return view.loads.least(pool.replicas if view.loads.any_open(pool.replicas) else None)


@dataclass(frozen=True, slots=True)
class ByContext:
    """Calls that start from at least ``context_tokens`` go to one pool, the others to another; there the fewest calls.

    Calls with much context to prefill go to GPUs that compute, calls that mostly decode to GPUs that read fast
    (RollArt, arXiv 2512.22560, maps whole tasks; the bound on tokens is ours).
    """

    context_tokens: int
    """Prompt, earlier turns and tool outputs from which a call counts as long."""
    short_pool: str | None = None
    """None for the first pool."""
    long_pool: str | None = None
    """None for the last pool."""

    def start(self, shape: Shape) -> Lengths:
        """Refuse a shape without pools, and pools that it does not have."""
        at_least("context_tokens", self.context_tokens, 1)
        if not shape.pools:
            raise ParameterError("use", "by-context", "another part: this one needs rollout.pools")
        short = shape.pools[0] if self.short_pool is None else shape.pool(self.short_pool, "short_pool")
        long = shape.pools[-1] if self.long_pool is None else shape.pool(self.long_pool, "long_pool")
        return Lengths(self.context_tokens, short, long)
