"""A second wave where the first contradicts what was expected: V0.5."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlsim.core.view import Group, Shape, View
from rlsim.policies.allocation.beliefs import Beliefs
from rlsim.policies.allocation.outcomes import first_wave, mean, solved
from rlsim.policies.bounds import at_least, fraction, several
from rlsim.policies.hooks import Size


@dataclass(frozen=True, slots=True)
class PriorTested:
    """Stand-in: half a group; the other half where its mean is ``critical`` standard errors from a prior.

    V0.5 (systems list entry 25) takes the prior from a pre-trained value model, which is not simulated: ours is a Beta
    posterior of the prompt's past. The fused baseline is the learning model's (``effect.baseline``).
    """

    first_share: float = 0.5
    """Of ``group_size``, launched at once; rounded up, at least 2."""
    critical: float = 1.64
    """Two-sided test at a level of one in ten."""
    kept_per_version: float = 0.98
    """Of what was seen of a prompt."""

    def start(self, shape: Shape) -> _Testing:
        """Refuse groups of one."""
        several("v0.5", shape)
        fraction("first_share", self.first_share)
        at_least("critical", self.critical, 0)
        fraction("kept_per_version", self.kept_per_version)
        return _Testing(self, shape)


class _Testing:
    aborts_surplus = True

    def __init__(self, part: PriorTested, shape: Shape) -> None:
        self._critical = part.critical
        self._first = max(2, math.ceil(part.first_share * shape.group_size))
        self._second = shape.group_size - self._first
        self._beliefs = Beliefs(1.0, part.kept_per_version)

    def members(self, view: View, group: Group) -> Size:
        return Size(self._first, self._first)

    def extend(self, view: View) -> Sequence[tuple[int, int]]:
        return [
            (number, self._second if first_wave(group, self._first) and self._surprised(view, group) else 0)
            for number, group in view.resting.items()
        ]

    def _surprised(self, view: View, group: Group) -> bool:
        """Whether the prior is not trusted: its own variance and the sampling error do not explain the mean."""
        prior, rewards = self._beliefs.of(group.prompt, view.version), group.rewards
        if not rewards:
            return False
        error = math.sqrt(prior.variance + prior.mean * (1 - prior.mean) / len(rewards))
        return abs(mean([solved(reward) for reward in rewards]) - prior.mean) > self._critical * error

    def observe(self, view: View, group: Group) -> None:
        self._beliefs.tell(group.prompt, view.version, group.rewards)
