"""A pool for every class of prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlsim.core.errors import ParameterError
from rlsim.core.view import Sample, Shape, View


class OwnPools:
    """The replicas of each class, in the order of the classes."""

    def __init__(self, replicas: Sequence[range]) -> None:
        self._replicas = replicas

    def replica(self, view: View, sample: Sample) -> int:
        """The least loaded of the class's own pool; of all while that is closed."""
        own = self._replicas[sample.group.request_class]
        return view.loads.least(own if view.loads.any_open(own) else None)


@dataclass(frozen=True, slots=True)
class ByClass:
    """Prompts of a class go to the pool of its name, however busy that is; there the fewest calls.

    GPUs bound to agents, tenants or tasks in advance: what systems that share them are compared with.
    """

    def start(self, shape: Shape) -> OwnPools:
        """Refuse a shape without pools, and a class without a pool."""
        if not shape.pools:
            raise ParameterError("use", "by-class", "another part: this one needs rollout.pools")
        pools = {pool.name: pool.replicas for pool in shape.pools}
        for kind in shape.classes:
            if kind.name not in pools:
                allowed = f"another part, or a pool of the name of every class of prompts: {kind.name} has none"
                raise ParameterError("use", "by-class", allowed)
        return OwnPools([pools[kind.name] for kind in shape.classes])
