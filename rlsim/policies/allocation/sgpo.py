"""Group size 1 / p from one profile, and prompts from easy to hard: sGPO."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlsim.core.group_laws import inverse_success_group
from rlsim.core.view import Group, Shape, View
from rlsim.policies.allocation.outcomes import mean, solved, usual
from rlsim.policies.bounds import at_least, fraction, several
from rlsim.policies.hashed import uniform
from rlsim.policies.hooks import Offer, Pick, Size


@dataclass(frozen=True, slots=True)
class Sgpo:
    """Stand-in: ceil(1 / p) samples, p of the first visit; solved prompts dropped, hopeless ones seldom, easy first.

    sGPO, systems list entry 85; bounds and sub-sampling are ours. The profile is not a pass before training: the first
    visit of a prompt, with ``group_size`` samples, is its profile and is trained on, so its cost is in the run.
    """

    most_ratio: float = 4.0
    """Samples of a group, as a multiple of ``group_size``; the least is 2."""
    hopeless_kept: float = 0.25
    """Visits of prompts without a success in their profile, with ``group_size`` samples; the others are skipped."""
    candidates: int = 64
    """Prompts that are sorted at a time."""

    def start(self, shape: Shape) -> _Sorted:
        """Refuse bounds that leave no group, and groups of one."""
        several("sgpo", shape)
        at_least("most_ratio", self.most_ratio, 1)
        fraction("hopeless_kept", self.hopeless_kept)
        at_least("candidates", self.candidates, 1)
        return _Sorted(self, shape)


class _Sorted:
    aborts_surplus = True
    resizes = True

    def __init__(self, part: Sgpo, shape: Shape) -> None:
        self._part, self._seed, self.candidates = part, shape.seed, part.candidates
        self._most = math.floor(part.most_ratio * shape.group_size)
        self._profile: dict[int, float] = {}
        self._window: set[int] = set()
        """Draws that are being gone through, from easy to hard."""

    def members(self, view: View, group: Group) -> Size:
        success = self._profile.get(group.prompt, 0.0)
        if success == 0:
            return usual(view)
        size = min(self._most, max(2, math.ceil(inverse_success_group(success))))
        return Size(size, size)

    def pick(self, view: View, offers: Sequence[Offer]) -> Pick:
        dropped = {place for place, offer in enumerate(offers) if self._drops(offer)}
        left = [place for place in range(len(offers)) if place not in dropped]
        if not left:
            return Pick(len(offers) - 1, tuple(range(len(offers) - 1)))
        self._window &= {offers[place].draw for place in left}
        if not self._window:
            self._window = {offers[place].draw for place in left}
        within = [place for place in left if offers[place].draw in self._window]
        taken = max(within, key=lambda place: self._ease(offers[place]))
        self._window.discard(offers[taken].draw)
        return Pick(taken, tuple(sorted(dropped)))

    def _ease(self, offer: Offer) -> float:
        """Prompts without a profile come first."""
        return self._profile.get(offer.prompt, math.inf)

    def _drops(self, offer: Offer) -> bool:
        success = self._profile.get(offer.prompt)
        hopeless = success == 0 and uniform(self._seed, "sgpo", offer.draw) > self._part.hopeless_kept
        return success == 1 or hopeless

    def observe(self, view: View, group: Group) -> None:
        """Only the first visit counts."""
        self._profile.setdefault(group.prompt, mean([solved(reward) for reward in group.rewards]))
