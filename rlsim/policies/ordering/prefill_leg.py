"""A call's prefill as a leg of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.view import Pool, Sample, Shape, View


class Legged:
    """First come, first served; on the prefill pool calls end after one token."""

    shares_kv: ClassVar[bool] = True
    oracle: ClassVar[bool] = False
    ranks: ClassVar[bool] = False

    def __init__(self, pool: Pool) -> None:
        self.pool, self._replicas = pool, pool.replicas

    def priority(self, view: View, sample: Sample) -> int:
        """All alike."""
        return 0

    def chunk_tokens(self, view: View, sample: Sample) -> int:
        """One token on the prefill pool, no limit elsewhere."""
        return 1 if sample.replica in self._replicas else 0

    def fetches_kv(self, view: View, sample: Sample) -> bool:
        """What goes on elsewhere finds its KV where the prefill leg made it; a prefill leg computes."""
        return sample.replica not in self._replicas


@dataclass(frozen=True, slots=True)
class PrefillLeg:
    """On the prefill pool calls end after one token and go on elsewhere with their KV; with dispatch prefill-decode."""

    prefill_pool: str = "prefill"
    """As the dispatch's."""

    def start(self, shape: Shape) -> Legged:
        """Refuse a pool that does not exist."""
        return Legged(shape.pool(self.prefill_pool, "prefill_pool"))
