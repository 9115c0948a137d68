"""Responses end once it is clear that they fail: Precog-RM as an early stopping controller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.commands import Watch
from rlsim.core.errors import ParameterError
from rlsim.core.view import Group, Sample, Shape, View
from rlsim.policies.allocation.quality_head import QualityHead
from rlsim.policies.allocation.whole_groups import WholeGroups, every
from rlsim.policies.bounds import at_least
from rlsim.policies.hooks import GO_ON, Verdict


@dataclass(frozen=True, slots=True)
class OutcomeStopping:
    """Stand-in: a response whose failure is predicted with confidence ends there, and counts as a failure.

    Precog-RM, systems list entry 257 (its abstract: an outcome predictor that ends rollouts whose outcome is already
    confident). Ours: the predictor is calibrated on the outcomes of the run; predicted successes run on, for a cut
    response earns nothing. Numbers are ours, and the predictor's passes are not priced.
    """

    every_tokens: int = 256
    """Between two looks."""
    last_look_tokens: int = 8192
    failure_confidence: float = 0.95
    """Predicted probability of failure from which on a response ends."""
    least_seen: int = 32
    """Successes and failures seen at a mark before anything ends there."""

    def start(self, shape: Shape) -> _Stopping:
        """Refuse a confidence that is none."""
        at_least("every_tokens", self.every_tokens, 2)
        at_least("last_look_tokens", self.last_look_tokens, self.every_tokens)
        at_least("least_seen", self.least_seen, 1)
        if not 0.5 <= self.failure_confidence < 1:
            raise ParameterError("failure_confidence", self.failure_confidence, "from 0.5 on, and below 1")
        return _Stopping(self)


class _Stopping(WholeGroups):
    signals: ClassVar[tuple[str, ...]] = ("quality",)

    def __init__(self, spec: OutcomeStopping) -> None:
        self._spec, self._head = spec, QualityHead(spec.least_seen)

    def watch(self, view: View, sample: Sample) -> Watch:
        """The predictor's score, every so many tokens."""
        return Watch("quality", every(self._spec.every_tokens, self._spec.last_look_tokens))

    def noticed(self, view: View, sample: Sample, tokens: int, value: float) -> Verdict:
        """Whether failure is certain enough."""
        success = self._head.read(sample.sample, tokens, value)
        fails = success is not None and 1 - success >= self._spec.failure_confidence
        return Verdict(truncated=(sample,)) if fails else GO_ON

    def observe(self, view: View, group: Group) -> None:
        """Learn how whole responses came out."""
        self._head.observe(group)
