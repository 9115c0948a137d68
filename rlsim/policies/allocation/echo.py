"""Branch width by local entropy and the group's confidence, and pruning of what stays unsure: ECHO, LATR."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import ClassVar

from rlsim.core.commands import Watch
from rlsim.core.errors import ParameterError
from rlsim.core.view import Group, Sample, Shape, View
from rlsim.policies.allocation.trees import checked_marks, further_roots, room
from rlsim.policies.bounds import at_least
from rlsim.policies.hooks import GO_ON, Size, Verdict

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Echo:
    """Stand-in: at a mark round(max_width * h * (1 - g)) new members, h = 4 c (1 - c) of the sample's confidence c.

    g is the mean of the last c of the group; c = Phi(reading). A sample whose c is below ``low`` at ``patience`` marks
    in a row is given up, unless it is the last one. ECHO (systems list 13) has width and pruning from entropy and
    confidence, in a form not known to us. LATR (147) looks ahead for some tokens after a branch and prunes what stays
    similar: ``patience: 1`` with marks as far apart as it looks ahead, low confidence in the place of similarity.
    """

    roots: int = 2
    """Samples that begin at the prompt."""
    marks: tuple[int, ...] = (64, 256, 1024)
    """Response tokens of a turn at which it is looked at."""
    max_width: int = 4
    low: float = 0.2
    patience: int = 2
    signal: str = "confidence"
    aborts_surplus: ClassVar[bool] = True

    def start(self, shape: Shape) -> Confidences:
        """Refuse more roots than samples."""
        if not 1 <= self.roots <= shape.group_size:
            raise ParameterError("roots", self.roots, f"from 1 to workload.group_size = {shape.group_size}")
        if not 0 <= self.low < 1:
            raise ParameterError("low", self.low, "from 0 to below 1")
        at_least("max_width", self.max_width, 0)
        at_least("patience", self.patience, 1)
        checked_marks(self.marks)
        return Confidences(self)


@dataclass(slots=True)
class Confidences:
    """The last confidence of each sample, and at how many marks in a row it was low."""

    spec: Echo
    aborts_surplus: bool = True
    _last: dict[int, float] = field(default_factory=dict)
    _low: dict[int, int] = field(default_factory=dict)

    @property
    def signals(self) -> tuple[str, ...]:
        """The one that is compared."""
        return (self.spec.signal,)

    def members(self, view: View, group: Group) -> Size:
        """The roots."""
        return Size(self.spec.roots, self.spec.roots)

    def observe(self, view: View, group: Group) -> None:
        """Forget the group."""
        for sample in group.members:
            self._last.pop(sample.sample, None)
            self._low.pop(sample.sample, None)

    def watch(self, view: View, sample: Sample) -> Watch:
        """Every call, at the marks."""
        return Watch(self.spec.signal, self.spec.marks)

    def noticed(self, view: View, sample: Sample, tokens: int, value: float) -> Verdict:
        """The sample itself, once it has been unsure for too long and others are left."""
        sure = self._last[sample.sample] = _NORMAL.cdf(value)
        low = self._low[sample.sample] = self._low.get(sample.sample, 0) + 1 if sure < self.spec.low else 0
        gone = low >= self.spec.patience and len(sample.group.members) > 1
        return Verdict(pruned=(sample,)) if gone else GO_ON

    def branch(self, view: View, sample: Sample, tokens: int, value: float | None) -> int:
        """By the entropy of its confidence, and the confidence of its group."""
        if value is None:
            return 0
        sure = self._last[sample.sample]
        known = [self._last[member.sample] for member in sample.group.members if member.sample in self._last]
        width = self.spec.max_width * 4 * sure * (1 - sure) * (1 - sum(known) / len(known))
        return min(round(width), room(view, sample.group))

    def extend(self, view: View) -> Sequence[tuple[int, int]]:
        """What is left of a group begins at the prompt."""
        return further_roots(view)
