"""Predictions of success and length before anything is sampled: MASA."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from rlsim.core.view import Group, Sample, Shape, View
from rlsim.policies.allocation.beliefs import Beliefs
from rlsim.policies.allocation.outcomes import solved
from rlsim.policies.allocation.pool import first_useful
from rlsim.policies.allocation.running_mean import RunningMean
from rlsim.policies.allocation.whole_groups import WholeGroups
from rlsim.policies.bounds import at_least, fraction, several
from rlsim.policies.hooks import Offer, Pick

OWN_COUNTS_FROM = 4
"""Right responses of a prompt that weigh as much as all others' together in its predicted length."""


@dataclass(frozen=True, slots=True)
class MetaPredictions:
    """Stand-in: prompts whose groups will agree are passed over; responses much longer than right ones are ended.

    MASA, systems list entry 219 (its abstract: the model predicts a prompt's pass rate and length itself, from its
    meta-awareness). Ours: both are predicted from the run's history, so that a prompt's first visit is never filtered;
    a response that is ended earns nothing. Numbers are ours.
    """

    least_useful: float = 0.3
    """Expected probability of two rewards in a group below which a prompt is passed over until the next epoch."""
    candidates: int = 16
    """Prompts looked at for one that is sampled; if none is useful, the most useful one is sampled."""
    slack: float = 2.0
    """Length at which a response is ended, as a multiple of the predicted length of a right one."""
    least_seen: int = 32
    """Right responses before any is ended."""
    kept_per_version: float = 0.98
    """Of what was seen of a prompt."""

    def start(self, shape: Shape) -> _Predicting:
        """Refuse groups of one, and lengths below what is right."""
        several("masa", shape)
        at_least("candidates", self.candidates, 1)
        at_least("slack", self.slack, 1)
        at_least("least_seen", self.least_seen, 1)
        fraction("least_useful", self.least_useful)
        fraction("kept_per_version", self.kept_per_version)
        return _Predicting(self)


class _Predicting(WholeGroups):
    def __init__(self, spec: MetaPredictions) -> None:
        self._spec, self.candidates = spec, spec.candidates
        self._beliefs = Beliefs(1.0, spec.kept_per_version)
        self._right = RunningMean()
        self._right_of: defaultdict[int, RunningMean] = defaultdict(RunningMean)
        """Lengths of right responses, of all prompts and by prompt."""

    def pick(self, view: View, offers: Sequence[Offer]) -> Pick:
        """The first that is useful; those before it are passed over."""
        beliefs = (self._beliefs.of(offer.prompt, view.version) for offer in offers)
        return first_useful((belief.useful(view.shape.group_size) for belief in beliefs), self._spec.least_useful)

    def cap_tokens(self, view: View, sample: Sample) -> int:
        """Beyond it a response is unlikely to be right."""
        if self._right.count < self._spec.least_seen:
            return 0
        own = self._right_of.get(sample.group.prompt, RunningMean())
        total = self._right.mean * OWN_COUNTS_FROM + own.mean * own.count
        return math.ceil(self._spec.slack * total / (OWN_COUNTS_FROM + own.count))

    def observe(self, view: View, group: Group) -> None:
        """Learn the success and the length of right responses."""
        self._beliefs.tell(group.prompt, view.version, group.rewards)
        for member in group.members:
            if solved(member.reward or 0.0) == 1.0:
                self._right.add(member.response_tokens)
                self._right_of[group.prompt].add(member.response_tokens)
