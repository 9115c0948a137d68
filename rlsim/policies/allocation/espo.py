"""Responses end when their regret is out of the ordinary: ESPO."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.commands import Watch
from rlsim.core.errors import ParameterError
from rlsim.core.view import Group, Sample, Shape, View
from rlsim.policies.allocation.running_mean import RunningMean
from rlsim.policies.allocation.whole_groups import WholeGroups, every
from rlsim.policies.bounds import at_least
from rlsim.policies.hooks import GO_ON, Verdict


@dataclass(frozen=True, slots=True)
class RegretStopping:
    """Stand-in: a response ends, as a failure, when its smoothed cumulative regret exceeds its expectation.

    ESPO, systems list entry 138 (its abstract; there regret is computed from the sampling logits at each step).
    Ours: regret is the fall of the reading ``confidence`` below its mean at the mark, every ``every_tokens``; smoothed
    exponentially, then summed. Expected is the mean of all responses at that mark, and it is exceeded by more than
    ``margin`` standard deviations. Numbers are ours.
    """

    every_tokens: int = 128
    """Between two looks."""
    last_look_tokens: int = 8192
    smoothing: float = 0.5
    """Weight of the regret before."""
    margin: float = 1.5
    """Standard deviations above the mean."""
    least_seen: int = 64
    """Responses seen at a mark before any ends there."""

    def start(self, shape: Shape) -> _Regretting:
        """Refuse a smoothing that forgets nothing."""
        at_least("every_tokens", self.every_tokens, 2)
        at_least("last_look_tokens", self.last_look_tokens, self.every_tokens)
        at_least("margin", self.margin, 0)
        at_least("least_seen", self.least_seen, 2)
        if not 0 <= self.smoothing < 1:
            raise ParameterError("smoothing", self.smoothing, "at least 0, and below 1")
        return _Regretting(self)


class _Regretting(WholeGroups):
    signals: ClassVar[tuple[str, ...]] = ("confidence",)

    def __init__(self, spec: RegretStopping) -> None:
        self._spec = spec
        self._confidence: defaultdict[int, RunningMean] = defaultdict(RunningMean)
        self._expected: defaultdict[int, RunningMean] = defaultdict(RunningMean)
        """Cumulative regret of all responses, by mark."""
        self._regret: dict[int, tuple[float, float]] = {}
        """(smoothed, cumulative) by sample."""

    def watch(self, view: View, sample: Sample) -> Watch:
        """The model's confidence, every so many tokens."""
        return Watch("confidence", every(self._spec.every_tokens, self._spec.last_look_tokens))

    def noticed(self, view: View, sample: Sample, tokens: int, value: float) -> Verdict:
        """Whether the cumulative regret is above its expectation by more than the margin."""
        usual = self._confidence[tokens]
        usual.add(value)
        smoothed, cumulative = self._regret.get(sample.sample, (0.0, 0.0))
        keep = self._spec.smoothing
        smoothed = keep * smoothed + (1 - keep) * (usual.mean - value)
        cumulative += smoothed
        self._regret[sample.sample] = smoothed, cumulative
        expected = self._expected[tokens]
        limit = expected.mean + self._spec.margin * expected.deviation
        stops = expected.count >= self._spec.least_seen and cumulative > limit
        expected.add(cumulative)
        return Verdict(truncated=(sample,)) if stops else GO_ON

    def observe(self, view: View, group: Group) -> None:
        """Forget what has ended."""
        for member in group.members:
            self._regret.pop(member.sample, None)
