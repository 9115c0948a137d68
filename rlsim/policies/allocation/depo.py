"""Prompts that would hardly tell samples apart are passed over: DEPO."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlsim.core.view import Group, Shape, View
from rlsim.policies.allocation.beliefs import Beliefs
from rlsim.policies.allocation.outcomes import usual
from rlsim.policies.allocation.pool import first_useful
from rlsim.policies.bounds import at_least, fraction, several
from rlsim.policies.hooks import Offer, Pick, Size


@dataclass(frozen=True, slots=True)
class Depo:
    """Stand-in: skip prompts whose group would have two rewards with a posterior probability below ``least_useful``.

    DEPO (systems list entry 129) removes prompts by an online difficulty estimate before any rollout; the estimator is
    not given in the abstract. Ours is a Beta posterior of the prompt's past, which fades as weights change: prompts
    return.
    """

    least_useful: float = 0.3
    """1 - E[p^n] - E[(1 - p)^n] below which a prompt is skipped."""
    kept_per_version: float = 0.98
    """Of what was seen of a prompt."""
    candidates: int = 32
    """Prompts looked at for one that is sampled; if all are to be skipped, the most useful one is sampled."""

    def start(self, shape: Shape) -> _Removing:
        """Refuse groups of one."""
        several("depo", shape)
        fraction("least_useful", self.least_useful)
        fraction("kept_per_version", self.kept_per_version)
        at_least("candidates", self.candidates, 1)
        return _Removing(self)


class _Removing:
    aborts_surplus = True

    def __init__(self, part: Depo) -> None:
        self._part, self.candidates = part, part.candidates
        self._beliefs = Beliefs(1.0, part.kept_per_version)

    def members(self, view: View, group: Group) -> Size:
        return usual(view)

    def pick(self, view: View, offers: Sequence[Offer]) -> Pick:
        beliefs = (self._beliefs.of(offer.prompt, view.version) for offer in offers)
        return first_useful((belief.useful(view.shape.group_size) for belief in beliefs), self._part.least_useful)

    def observe(self, view: View, group: Group) -> None:
        self._beliefs.tell(group.prompt, view.version, group.rewards)
