"""Prompts of a difficulty that is aimed at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlsim.core.errors import ParameterError
from rlsim.core.view import Group, Shape, View
from rlsim.policies.allocation.beliefs import Beliefs
from rlsim.policies.allocation.outcomes import usual
from rlsim.policies.allocation.pool import Pool, by_weight, check_pool
from rlsim.policies.bounds import fraction, several
from rlsim.policies.hooks import Offer, Pick, Size


@dataclass(frozen=True, slots=True)
class DifficultyTargeted:
    """Stand-in: prompts drawn with weight exp(-|p - target| / temperature), p estimated from their own past.

    Systems list entry 307 estimates p of all questions by attention over the rollouts of a small reference set; texts
    are not simulated, so a prompt that was never sampled is taken for one of even odds. Replay is another part.
    """

    target_success: float = 0.5
    """Success probability that is aimed at."""
    temperature: float = 0.1
    """Distance from it at which the weight has fallen to 1 / e."""
    kept_per_version: float = 0.98
    """Of what was seen of a prompt."""
    pool: float = 2.0
    """Prompts drawn from, as a multiple of ``prompts_per_step``; the rest is passed over until the next epoch."""

    def start(self, shape: Shape) -> _Targeted:
        """Refuse a temperature of 0, and groups of one."""
        several("difficulty-targeted", shape)
        fraction("target_success", self.target_success)
        if not self.temperature > 0:
            raise ParameterError("temperature", self.temperature, "above 0")
        fraction("kept_per_version", self.kept_per_version)
        check_pool(self.pool)
        return _Targeted(self, shape)


class _Targeted:
    aborts_surplus = True

    def __init__(self, part: DifficultyTargeted, shape: Shape) -> None:
        self._part, self._seed = part, shape.seed
        self._beliefs = Beliefs(1.0, part.kept_per_version)
        self._pool = Pool(shape, part.pool, self._worth)
        self.candidates = self._pool.candidates

    def members(self, view: View, group: Group) -> Size:
        return usual(view)

    def pick(self, view: View, offers: Sequence[Offer]) -> Pick:
        return self._pool.pick(view, offers)

    def _worth(self, view: View, offer: Offer) -> float:
        distance = abs(self._beliefs.of(offer.prompt, view.version).mean - self._part.target_success)
        return by_weight(-distance / self._part.temperature, self._seed, "difficulty-targeted", offer.draw)

    def observe(self, view: View, group: Group) -> None:
        self._beliefs.tell(group.prompt, view.version, group.rewards)
