"""Round after round on the prompts whose rewards vary most: VIGOR."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlsim.core.errors import ParameterError
from rlsim.core.view import Group, Shape, View
from rlsim.policies.allocation.batch_waves import BatchWaves
from rlsim.policies.allocation.outcomes import variance
from rlsim.policies.allocation.sharing import shared_out
from rlsim.policies.bounds import at_least, several
from rlsim.policies.hooks import Size


@dataclass(frozen=True, slots=True)
class Vigor:
    """Stand-in: equal rounds, each on the ``kept`` share of the last one's prompts with the largest reward variance.

    VIGOR (systems list entry 3): few samples of each prompt first, later rounds where observed variance is largest,
    until the budget is spent; equal rounds and a fixed share are ours. Every round waits for the one before: a barrier
    each.
    """

    rounds: int = 3
    """Including the first; each has ``group_size / rounds`` samples for every prompt of the batch, on average."""
    kept: float = 0.5
    """Prompts of a round that the next one goes on with, rounded up; prompts whose rewards agree are not among them."""

    def start(self, shape: Shape) -> _Refining:
        """Refuse a first round in which rewards cannot differ."""
        several("vigor", shape)
        at_least("rounds", self.rounds, 1)
        if shape.group_size < 2 * self.rounds:
            raise ParameterError("rounds", self.rounds, f"at most group_size / 2 = {shape.group_size // 2}")
        if not 0 < self.kept <= 1:
            raise ParameterError("kept", self.kept, "above 0, at most 1")
        return _Refining(self, shape)


class _Refining:
    aborts_surplus = True

    def __init__(self, part: Vigor, shape: Shape) -> None:
        self._part, self._size = part, shape.group_size
        self._first = shape.group_size // part.rounds
        self._waves = BatchWaves()
        self._spent: dict[int, tuple[int, int]] = {}
        """By training step: prompts of its first round, rounds made."""

    def members(self, view: View, group: Group) -> Size:
        self._waves.opened(group)
        return Size(self._first, self._first)

    def observe(self, view: View, group: Group) -> None:
        """Nothing is remembered."""

    def extend(self, view: View) -> Sequence[tuple[int, int]]:
        return [further for groups in self._waves.at_rest(view) for further in self._next_round(groups)]

    def _next_round(self, groups: Sequence[Group]) -> list[tuple[int, int]]:
        step = groups[0].target
        prompts, done = self._spent.get(step, (len(groups), 1))
        varied = [group for group in groups if variance(group.rewards) > 0]
        if done == self._part.rounds or not varied:
            self._spent.pop(step, None)
            return [(group.group, 0) for group in groups]
        self._spent[step] = (prompts, done + 1)
        best = sorted(varied, key=lambda group: -variance(group.rewards))[: math.ceil(self._part.kept * len(groups))]
        total = self._due(prompts, done + 1) - self._due(prompts, done)
        more = dict(zip((group.group for group in best), shared_out(total, [1.0] * len(best), total), strict=True))
        return [(group.group, more.get(group.group, 0)) for group in groups]

    def _due(self, prompts: int, rounds: int) -> int:
        """Samples of a batch after so many rounds."""
        return prompts * (self._first + (self._size - self._first) * (rounds - 1) // max(1, self._part.rounds - 1))
