"""A pilot for every prompt, and the rest of the budget where rewards differ: Pilot-Commit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlsim.core.view import Group, Shape, View
from rlsim.policies.allocation.batch_waves import BatchWaves
from rlsim.policies.allocation.outcomes import first_wave, variance
from rlsim.policies.allocation.sharing import shared_out
from rlsim.policies.bounds import at_least, fraction, several
from rlsim.policies.hooks import Size


@dataclass(frozen=True, slots=True)
class PilotCommit:
    """Stand-in: a share of the batch's samples as pilots, then the rest in proportion to observed reward variance.

    Pilot-Commit (systems list entry 56) has the two stages; estimate and shares are ours. The second stage waits for
    the pilots of the whole batch: a barrier. Prompts without signal get no more, and stay in the batch with their
    pilots.
    """

    pilot_fraction: float = 0.25
    """Of ``group_size``, as pilots of each prompt; rounded up, at least 2."""
    most_ratio: float = 4.0
    """Samples of one prompt, as a multiple of ``group_size``; what no prompt may have is saved."""

    def start(self, shape: Shape) -> _Committing:
        """Refuse a fraction that leaves nothing to commit, and groups of one."""
        several("pilot-commit", shape)
        fraction("pilot_fraction", self.pilot_fraction)
        at_least("most_ratio", self.most_ratio, 1)
        return _Committing(self, shape)


class _Committing:
    aborts_surplus = True

    def __init__(self, part: PilotCommit, shape: Shape) -> None:
        self._pilots = max(2, math.ceil(part.pilot_fraction * shape.group_size))
        self._rest = shape.group_size - self._pilots
        self._most = math.floor(part.most_ratio * shape.group_size) - self._pilots
        self._waves = BatchWaves()

    def members(self, view: View, group: Group) -> Size:
        self._waves.opened(group)
        return Size(self._pilots, self._pilots)

    def observe(self, view: View, group: Group) -> None:
        """Nothing is remembered."""

    def extend(self, view: View) -> Sequence[tuple[int, int]]:
        return [further for groups in self._waves.at_rest(view) for further in self._committed(groups)]

    def _committed(self, groups: Sequence[Group]) -> list[tuple[int, int]]:
        pilots = [group for group in groups if first_wave(group, self._pilots)]
        more = shared_out(len(pilots) * self._rest, [variance(group.rewards) for group in pilots], self._most)
        done = [(group.group, 0) for group in groups if group not in pilots]
        return done + [(group.group, count) for group, count in zip(pilots, more, strict=True)]
