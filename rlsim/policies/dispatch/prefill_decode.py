"""Prefill on the replicas of one pool, decode on those of another."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from rlsim.core.errors import ParameterError
from rlsim.core.view import Pool, Sample, Shape, View
from rlsim.policies.dispatch.within_pool import Route, Router, router


class Legs:
    """A call's first leg makes its KV and one token, the second one goes on from both."""

    def __init__(self, prefill: Pool, decode: Pool, to_prefill: Router, to_decode: Router) -> None:
        self.prefill, self.decode = prefill, decode
        self._prefill_replicas = prefill.replicas
        self.needs = (prefill.replicas, decode.replicas)
        """Both legs of a call need a replica."""
        self._to_prefill, self._to_decode = to_prefill, to_decode

    def replica(self, view: View, sample: Sample) -> int:
        """A decode replica right after a prefill leg; else a prefill replica, as the KV is nowhere (any more)."""
        if sample.state == "running" and sample.replica in self._prefill_replicas:
            return self._to_decode(view, sample)
        return self._to_prefill(view, sample)


@dataclass(frozen=True, slots=True)
class PrefillDecode:
    """Every turn begins on the prefill pool and decodes on the decode pool after one token; with ordering prefill-leg.

    What was cut and is resumed begins again with a prefill leg, as its KV is gone. Both pools have a replica that is
    open at any time: compositions that would close all of one are refused.
    """

    prefill_pool: str = "prefill"
    decode_pool: str = "decode"
    prefill_route: Route = "least-in-flight"
    """Within the pool; ``by-prompt`` finds the prompt of the group and earlier turns in the cache."""
    decode_route: Literal["least-in-flight", "least-tokens", "same-gpus"] = "least-in-flight"
    """``same-gpus``: the replica that shares the GPUs of the one that prefilled, where the KV is already."""

    def start(self, shape: Shape) -> Legs:
        """Refuse pools that do not exist, are one, or do not share GPUs as the route needs."""
        prefill, decode = shape.pool(self.prefill_pool, "prefill_pool"), shape.pool(self.decode_pool, "decode_pool")
        if prefill == decode:
            raise ParameterError("decode_pool", self.decode_pool, "another pool than prefill_pool")
        to_prefill = router(self.prefill_route, prefill)
        if self.decode_route != "same-gpus":
            return Legs(prefill, decode, to_prefill, router(self.decode_route, decode))
        if not _share_gpus(prefill, decode):
            allowed = "least-in-flight, least-tokens: these pools do not share GPUs (rollout.pools[].shares_gpus_with)"
            raise ParameterError("decode_route", "same-gpus", allowed)
        return Legs(prefill, decode, to_prefill, partial(_partner, prefill, decode))


def _partner(prefill: Pool, decode: Pool, view: View, sample: Sample) -> int:
    replica = sample.replica - prefill.first + decode.first
    return replica if view.loads.is_open(replica) else view.loads.least(decode.replicas)


def _share_gpus(one: Pool, other: Pool) -> bool:
    return (one.shares_gpus_with or one.name) == (other.shares_gpus_with or other.name)
