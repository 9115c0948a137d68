"""Ordering that ends calls early, so that any replica may continue them from KV that all reach.

Divided rollout in chunks, ranked by what group mates made (Seer), and a call's prefill as a leg of its own (prefill
and decode apart).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.checks import at_least
from rlsim.core.view import Pool, RunSizes, Sample, View
from rlsim.policies.ordering.predictors import Siblings
from rlsim.policies.registry import part

PROBE = -(1 << 40)
"""Priority of a probe that has made nothing: before any length."""


@dataclass(frozen=True, slots=True)
class _Divided:
    chunk: int
    siblings: Siblings
    shares_kv: ClassVar[bool] = True
    oracle: ClassVar[bool] = False
    ranks: ClassVar[bool] = True

    def priority(self, view: View, sample: Sample) -> int:
        if sample.member == 0:
            return PROBE + sample.response_tokens
        return -max(1, round(self.siblings(view, sample)))

    def chunk_tokens(self, view: View, sample: Sample) -> int:
        return self.chunk


@part("ordering", "divided")
@dataclass(frozen=True, slots=True)
class Divided:
    """Chunks with their KV in a shared pool; one probe a group first, then longest first by the siblings (Seer).

    The probe is the group's first member; the probe with the fewest tokens goes first, so that every group soon
    has an estimate. That is the longest mate that has ended; a group without one counts as ``prior_tokens`` long
    (our reading of arXiv 2511.14617).
    """

    chunk_tokens: int = 2048
    """Tokens after which a call is ended, ranked anew and placed anew."""
    prior_tokens: int = 65_536
    """Expected of a sample whose group has no ended mate: the cap of a response."""

    def start(self, shape: RunSizes) -> _Divided:
        """Refuse chunks of nothing."""
        at_least("chunk_tokens", self.chunk_tokens, 1)
        at_least("prior_tokens", self.prior_tokens, 1)
        return _Divided(self.chunk_tokens, Siblings(self.prior_tokens, longest=True))


class Legged:
    """First come, first served; on the prefill pool calls end after one token."""

    part_name: ClassVar[str] = "prefill-leg"
    shares_kv: ClassVar[bool] = True
    oracle: ClassVar[bool] = False
    ranks: ClassVar[bool] = False

    def __init__(self, pool: Pool) -> None:
        self.prefills_on, self._replicas = pool, pool.replicas

    def priority(self, view: View, sample: Sample) -> int:
        """All alike."""
        return 0

    def chunk_tokens(self, view: View, sample: Sample) -> int:
        """One token on the prefill pool, no limit elsewhere."""
        return 1 if sample.replica in self._replicas else 0

    def fetches_kv(self, view: View, sample: Sample) -> bool:
        """What goes on elsewhere finds its KV where the prefill leg made it; a prefill leg computes."""
        return sample.replica not in self._replicas


@part("ordering", "prefill-leg")
@dataclass(frozen=True, slots=True)
class PrefillLeg:
    """On the prefill pool calls end after one token and go on elsewhere with their KV; with dispatch prefill-decode."""

    prefill_pool: str = "prefill"
    """As the dispatch's."""

    def start(self, shape: RunSizes) -> Legged:
        """Refuse a pool that does not exist."""
        return Legged(shape.pool(self.prefill_pool, "prefill_pool"))
