"""Prompts that taught nothing of late are skipped, most of the time: GRESO."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rlsim.core.view import Group, Shape, View
from rlsim.policies.allocation.outcomes import agree, mean, usual
from rlsim.policies.bounds import at_least, fraction, several
from rlsim.policies.hashed import uniform
from rlsim.policies.hooks import Offer, Pick, Size

Kind = Literal["easy", "hard"]


@dataclass(frozen=True, slots=True)
class Greso:
    """Skip a prompt with probability 1 - p^z after z groups in a row without variance; reject and refill those made.

    GRESO, arXiv 2506.02177 (probabilistic pre-rollout filtering, self-adjusting exploration). Ours: rejected groups are
    refilled one by one and not in adaptive batches, and a streak counts easy and hard groups alike.
    """

    exploration: float = 0.5
    """p of easy (every reward high) and of hard prompts at first."""
    exploration_step: float = 0.01
    """By which p falls after a step with more groups of that kind than its share, and rises after one with fewer."""
    easy_share: float = 0.083
    """Groups without variance that are let through, of those made: solved ones."""
    hard_share: float = 0.167
    """Failed ones."""
    candidates: int = 32
    """Prompts looked at for one that is sampled; if all are to be skipped, the last is sampled."""

    def start(self, shape: Shape) -> _Skipping:
        """Refuse probabilities that are none, and groups of one."""
        for name in ("exploration", "exploration_step", "easy_share", "hard_share"):
            fraction(name, getattr(self, name))
        at_least("candidates", self.candidates, 1)
        several("greso", shape)
        return _Skipping(self, shape)


class _Skipping:
    aborts_surplus = True

    def __init__(self, part: Greso, shape: Shape) -> None:
        self._part, self._seed, self.candidates = part, shape.seed, part.candidates
        self._explored: dict[Kind, float] = {"easy": part.exploration, "hard": part.exploration}
        self._streaks: dict[int, tuple[int, Kind]] = {}
        self._made: Counter[str] = Counter()
        self._step = 0

    def members(self, view: View, group: Group) -> Size:
        return usual(view)

    def pick(self, view: View, offers: Sequence[Offer]) -> Pick:
        kept = (place for place, offer in enumerate(offers) if not self._skips(offer))
        taken = next(kept, len(offers) - 1)
        return Pick(taken, tuple(range(taken)))

    def _skips(self, offer: Offer) -> bool:
        """The same answer for a prompt as long as it is on offer and nothing is learnt."""
        if offer.prompt not in self._streaks:
            return False
        streak, kind = self._streaks[offer.prompt]
        return uniform(self._seed, "greso", offer.draw) > self._explored[kind] ** streak

    def observe(self, view: View, group: Group) -> None:
        if view.steps_begun > self._step:
            self._adjust()
            self._step = view.steps_begun
        self._made["all"] += 1
        if not agree(group.rewards):
            self._streaks.pop(group.prompt, None)
            return
        kind: Kind = "easy" if mean(group.rewards) > 0.5 else "hard"
        self._made[kind] += 1
        streak, _ = self._streaks.get(group.prompt, (0, kind))
        self._streaks[group.prompt] = (streak + 1, kind)

    def _adjust(self) -> None:
        """Explore less of what came too often."""
        shares: dict[Kind, float] = {"easy": self._part.easy_share, "hard": self._part.hard_share}
        for kind, allowed in shares.items():
            step = self._part.exploration_step
            change = -step if self._made[kind] >= allowed * self._made["all"] else step
            self._explored[kind] = min(1.0, max(step, self._explored[kind] + change))
        self._made.clear()

    def rejects(self, view: View, group: Group) -> bool:
        return agree(group.rewards)
