"""Thompson sampling of prompts whose outcome is most open: VADE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlsim.core.view import Group, Shape, View
from rlsim.policies.allocation.beliefs import Beliefs
from rlsim.policies.allocation.outcomes import usual
from rlsim.policies.allocation.pool import Pool, check_pool
from rlsim.policies.bounds import fraction, several
from rlsim.policies.hooks import Offer, Pick, Size


@dataclass(frozen=True, slots=True)
class Vade:
    """Stand-in: prompts with the largest p (1 - p), p drawn from a Beta posterior that fades by visit and by version.

    VADE, systems list entry 98: Beta posterior, Thompson sampling, a prior decay on two scales; the pool and the rates
    are ours. No samples beyond those of the batch.
    """

    kept_per_visit: float = 0.7
    """Of what was seen of a prompt before, when it is sampled again."""
    kept_per_version: float = 0.98
    """Of what was seen, when weights change."""
    pool: float = 2.0
    """Prompts compared, as a multiple of ``prompts_per_step``; the rest is passed over until the next epoch."""

    def start(self, shape: Shape) -> _Thompson:
        """Refuse groups of one."""
        several("vade", shape)
        fraction("kept_per_visit", self.kept_per_visit)
        fraction("kept_per_version", self.kept_per_version)
        check_pool(self.pool)
        return _Thompson(self, shape)


class _Thompson:
    aborts_surplus = True

    def __init__(self, part: Vade, shape: Shape) -> None:
        self._seed = shape.seed
        self._beliefs = Beliefs(part.kept_per_visit, part.kept_per_version)
        self._pool = Pool(shape, part.pool, self._worth)
        self.candidates = self._pool.candidates

    def members(self, view: View, group: Group) -> Size:
        return usual(view)

    def pick(self, view: View, offers: Sequence[Offer]) -> Pick:
        return self._pool.pick(view, offers)

    def _worth(self, view: View, offer: Offer) -> float:
        success = self._beliefs.of(offer.prompt, view.version).drawn(self._seed, "vade", offer.draw)
        return success * (1 - success)

    def observe(self, view: View, group: Group) -> None:
        self._beliefs.tell(group.prompt, view.version, group.rewards)
