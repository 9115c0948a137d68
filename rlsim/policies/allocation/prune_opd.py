"""Responses end where they drift from the teacher: Prune-OPD."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.commands import Watch
from rlsim.core.view import Group, Sample, Shape, View
from rlsim.policies.allocation.drift import Drifts
from rlsim.policies.allocation.whole_groups import WholeGroups, every
from rlsim.policies.bounds import at_least
from rlsim.policies.hooks import GO_ON, Verdict


@dataclass(frozen=True, slots=True)
class PruneAtDrift:
    """Stand-in: a response ends where its overlap with the teacher drops; the window for all grows while few do.

    Prune-OPD, systems list entry 40 (its abstract). Ours: a drop is ``consecutive`` low readings in a row; the
    window grows after every ``prompts_per_step`` groups of which enough responses kept to the teacher. The method's
    monotone down-weighting behind a drift is not modelled, nor is what the teacher's passes cost. Numbers are ours.
    """

    window_tokens: int = 1024
    """At the start."""
    most_window_tokens: int = 8192
    every_tokens: int = 128
    """Between two looks."""
    drift_overlap: float = 0.65
    """A reading below it is low."""
    consecutive: int = 2
    compatible_share: float = 0.7
    """Of the responses without a drift, from which on the window grows."""
    growth: float = 1.5

    def start(self, shape: Shape) -> _Pruning:
        """Refuse windows that cannot grow."""
        at_least("every_tokens", self.every_tokens, 2)
        at_least("window_tokens", self.window_tokens, self.every_tokens)
        at_least("most_window_tokens", self.most_window_tokens, self.window_tokens)
        at_least("consecutive", self.consecutive, 1)
        at_least("growth", self.growth, 1)
        return _Pruning(self)


class _Pruning(WholeGroups):
    signals: ClassVar[tuple[str, ...]] = ("teacher-overlap",)

    def __init__(self, spec: PruneAtDrift) -> None:
        self._spec = spec
        self._window = spec.window_tokens
        self._drifts = Drifts(spec.drift_overlap, spec.consecutive)
        self._drifted: set[int] = set()
        self._groups = self._responses = self._sound = 0
        """Since the window was last looked at."""

    def cap_tokens(self, view: View, sample: Sample) -> int:
        """The window."""
        return self._window

    def watch(self, view: View, sample: Sample) -> Watch:
        """The overlap, every so many tokens."""
        return Watch("teacher-overlap", every(self._spec.every_tokens, self._spec.most_window_tokens))

    def noticed(self, view: View, sample: Sample, tokens: int, value: float) -> Verdict:
        """Whether this is a drift."""
        if not self._drifts.read(sample.sample, value):
            return GO_ON
        self._drifted.add(sample.sample)
        return Verdict(truncated=(sample,))

    def observe(self, view: View, group: Group) -> None:
        """Count what drifted; after a batch of groups the window may grow."""
        self._groups += 1
        self._responses += len(group.members)
        self._sound += sum(member.sample not in self._drifted for member in group.members)
        for member in group.members:
            self._drifts.forget(member.sample)
            self._drifted.discard(member.sample)
        if self._groups >= view.shape.prompts_per_step:
            self._widen()

    def _widen(self) -> None:
        spec = self._spec
        if self._sound >= spec.compatible_share * self._responses:
            self._window = min(spec.most_window_tokens, math.ceil(self._window * spec.growth))
        self._groups = self._responses = self._sound = 0
