"""Weak responses are given up while they are made, so that right and wrong ones are left: arrol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.commands import Watch
from rlsim.core.errors import ParameterError
from rlsim.core.view import Group, Sample, Shape, View
from rlsim.policies.allocation.quality_head import SOLVED, QualityHead
from rlsim.policies.allocation.whole_groups import WholeGroups
from rlsim.policies.bounds import at_least, several
from rlsim.policies.hooks import GO_ON, Verdict

EVEN = 0.5


@dataclass(frozen=True, slots=True)
class OnlinePruning:
    """Stand-in: responses that a quality head scores at a mark are given up so that right and wrong ones balance.

    arrol, systems list entry 55 (its abstract). Ours: the group is judged once all its members have come to the
    mark, or ended; then the most certain of the more frequent outcome goes, one after the other, until
    ``kept_share`` is left. Until the head has seen ``least_seen`` successes and failures nobody is given up.
    Numbers are ours, and the head's passes are not priced.
    """

    mark_tokens: int = 512
    kept_share: float = 0.5
    """Of the group, that goes on or has ended; at least two."""
    least_seen: int = 32

    def start(self, shape: Shape) -> _Pruner:
        """Refuse groups of one."""
        several("arrol", shape)
        at_least("mark_tokens", self.mark_tokens, 2)
        at_least("least_seen", self.least_seen, 1)
        if not 0 < self.kept_share <= 1:
            raise ParameterError("kept_share", self.kept_share, "above 0, and at most 1")
        return _Pruner(self)


class _Pruner(WholeGroups):
    signals: ClassVar[tuple[str, ...]] = ("quality",)

    def __init__(self, spec: OnlinePruning) -> None:
        self._spec, self._head = spec, QualityHead(spec.least_seen)
        self._predicted: dict[int, float | None] = {}
        """Probability of success by sample that runs."""

    def watch(self, view: View, sample: Sample) -> Watch | None:
        """The head's score at the mark, in the first turn."""
        return None if sample.turn else Watch("quality", (self._spec.mark_tokens,))

    def noticed(self, view: View, sample: Sample, tokens: int, value: float) -> Verdict:
        """Once all have come to the mark, or ended: who is given up."""
        self._predicted[sample.sample] = self._head.read(sample.sample, tokens, value)
        members = sample.group.members
        unended = [member for member in members if member.state not in ("scoring", "ended")]
        predicted = {member.sample: self._predicted.get(member.sample) for member in unended}
        if any(success is None for success in predicted.values()):
            return GO_ON
        known = [self._success(member) for member in members if member not in unended]
        pruned = self._surplus(known, unended, {who: p for who, p in predicted.items() if p is not None})
        for member in pruned:
            self._head.forget(member.sample)
            del self._predicted[member.sample]
        return Verdict(pruned=pruned)

    def _success(self, done: Sample) -> float:
        """Of a response that has come to its end: its reward, or what is predicted until that is there."""
        if done.state == "ended":
            return float((done.reward or 0.0) > SOLVED)
        predicted = self._predicted.get(done.sample)
        return EVEN if predicted is None else predicted

    def _surplus(self, known: list[float], unended: list[Sample], success: dict[int, float]) -> list[Sample]:
        """The most certain of the more frequent outcome, one after the other; ``known`` responses stay."""
        left = sorted(unended, key=lambda member: (success[member.sample], member.member))
        pruned: list[Sample] = []
        keep = max(2, round(self._spec.kept_share * (len(known) + len(left))))
        while left and len(known) + len(left) > keep:
            right = sum(known) + sum(success[member.sample] for member in left)
            mostly_right = right > EVEN * (len(known) + len(left))
            pruned.append(left.pop(-1 if mostly_right else 0))
        return pruned

    def observe(self, view: View, group: Group) -> None:
        """Train the head on how responses came out."""
        self._head.observe(group)
        for member in group.members:
            self._predicted.pop(member.sample, None)
