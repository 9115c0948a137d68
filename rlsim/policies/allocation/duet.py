"""One budget of tokens and two levers, samples of a prompt and aborts at a mark: DUET."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.commands import Watch
from rlsim.core.errors import ParameterError
from rlsim.core.view import Group, Sample, Shape, View
from rlsim.policies.allocation.beliefs import Beliefs
from rlsim.policies.bounds import at_least, several
from rlsim.policies.hashed import uniform
from rlsim.policies.hooks import GO_ON, Size, Verdict

LEAST_KEPT = 2
"""Members of a group without which it has no advantages."""


@dataclass(frozen=True, slots=True)
class DualBudget:
    """Stand-in: more samples for prompts of more value, few that run on behind a horizon, and a budget of tokens.

    DUET, arXiv 2605.08441, after its abstract and a published summary: rollouts by a prompt's informativeness; behind
    an abort horizon a response without an answer goes on with probability 0.05, and the trainer weighs it by the
    inverse. Ours: a response gives its answer where it ends; value is the expected standard deviation of rewards by the
    prompt's history; what aborts save is given to all groups. The learning model does not count weights, so their
    variance costs nothing here. Other numbers are ours.
    """

    token_share: float = 1.0
    """Tokens of a batch, as a share of those of uniform groups without aborts."""
    mark_tokens: int = 2048
    """The horizon."""
    survival: float = 0.05
    """Probability to go on behind it; 1 aborts nobody."""
    most_ratio: float = 2.0
    """Samples of a group, as a multiple of ``group_size``; the least is 2."""
    kept_per_version: float = 0.98
    """Of what was seen of a prompt."""

    def start(self, shape: Shape) -> _Dual:
        """Refuse shares that are none, and groups of one."""
        several("duet", shape)
        at_least("mark_tokens", self.mark_tokens, 2)
        at_least("most_ratio", self.most_ratio, 1)
        for name in ("token_share", "survival", "kept_per_version"):
            share = getattr(self, name)
            if not 0 < share <= 1:
                raise ParameterError(name, share, "above 0, and at most 1")
        return _Dual(self, shape)


class _Dual:
    aborts_surplus: ClassVar[bool] = True
    resizes: ClassVar[bool] = True
    signals: ClassVar[tuple[str, ...]] = ("entropy",)

    def __init__(self, spec: DualBudget, shape: Shape) -> None:
        self._spec, self._shape = spec, shape
        self._beliefs = Beliefs(1.0, spec.kept_per_version)
        self._values = self._groups = self._carried = 0.0
        self._tokens = self._until_mark = 0.0
        """Sums over responses that came to their own end, weighted: their tokens, and those up to the horizon."""
        self.weights: dict[int, float] = {}
        """1 / probability of survival, by sample under way; what a trainer corrects the aborts with."""

    def members(self, view: View, group: Group) -> Size:
        """In proportion to the prompt's value; what rounding gives or takes, the next group gets or misses."""
        success = self._beliefs.of(group.prompt, view.version).mean
        value = math.sqrt(success * (1 - success))
        self._values += value
        self._groups += 1
        usual = self._shape.group_size
        exact = usual * self._room() * value * self._groups / self._values + self._carried
        most = max(LEAST_KEPT, math.floor(self._spec.most_ratio * usual))
        size = min(most, max(LEAST_KEPT, round(exact)))
        self._carried = min(1.0, max(-1.0, exact - size))
        return Size(size, size)

    def _room(self) -> float:
        """Samples that the budget buys, relative to those of a uniform batch without aborts."""
        spent = self._until_mark + self._spec.survival * (self._tokens - self._until_mark)
        return self._spec.token_share * (self._tokens / spent if spent else 1.0)

    def watch(self, view: View, sample: Sample) -> Watch | None:
        """A notice at the horizon, in the first turn; what it reads does not matter."""
        return None if sample.turn else Watch("entropy", (self._spec.mark_tokens,))

    def noticed(self, view: View, sample: Sample, tokens: int, value: float) -> Verdict:
        """Whether it goes on, by hash."""
        survival = self._spec.survival
        if len(sample.group.members) <= LEAST_KEPT:
            return GO_ON
        if uniform(self._shape.seed, "duet", sample.sample) < survival:
            self.weights[sample.sample] = 1 / survival
            return GO_ON
        return Verdict(pruned=(sample,))

    def observe(self, view: View, group: Group) -> None:
        """Learn the prompt's success, and the lengths without aborts."""
        self._beliefs.tell(group.prompt, view.version, group.rewards)
        for member in group.members:
            weight = self.weights.pop(member.sample, 1.0)
            self._tokens += weight * member.response_tokens
            self._until_mark += weight * min(member.response_tokens, self._spec.mark_tokens)
