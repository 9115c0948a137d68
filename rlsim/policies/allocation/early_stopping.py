"""Early stopping: responses are watched while they are made, and some end or are given up.

So that right and wrong ones balance (arrol), by a budget of tokens behind a horizon (DUET), where regret is out of
the ordinary (ESPO), or once failure is clear (Precog). The number of samples that a group begins with is as usual,
but for DUET.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.checks import at_least, several
from rlsim.core.commands import Watch
from rlsim.core.errors import ParameterError
from rlsim.core.hashing import uniform
from rlsim.core.running_mean import RunningMean
from rlsim.core.view import Group, RunSizes, Sample, View
from rlsim.policies.allocation.estimators import SOLVED, Beliefs, QualityHead, WholeGroups
from rlsim.policies.hooks import GO_ON, Size, Verdict
from rlsim.policies.registry import part


def every(tokens: int, last: int) -> tuple[int, ...]:
    """Marks so many tokens apart, up to the last."""
    return tuple(range(tokens, last + 1, tokens))


EVEN = 0.5


@part("allocation", "arrol")
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

    def start(self, shape: RunSizes) -> _Pruner:
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

    def on_watch(self, view: View, sample: Sample, tokens: int, value: float) -> Verdict:
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


LEAST_KEPT = 2
"""Members of a group without which it has no advantages."""


@part("allocation", "duet")
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

    def start(self, shape: RunSizes) -> _Dual:
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

    def __init__(self, spec: DualBudget, shape: RunSizes) -> None:
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
        spent = self._until_mark + self._spec.survival * (self._tokens - self._until_mark)
        bought = self._spec.token_share * (self._tokens / spent if spent else 1.0)
        exact = usual * bought * value * self._groups / self._values + self._carried
        most = max(LEAST_KEPT, math.floor(self._spec.most_ratio * usual))
        size = min(most, max(LEAST_KEPT, round(exact)))
        self._carried = min(1.0, max(-1.0, exact - size))
        return Size(size, size)

    def watch(self, view: View, sample: Sample) -> Watch | None:
        """A notice at the horizon, in the first turn; what it reads does not matter."""
        return None if sample.turn else Watch("entropy", (self._spec.mark_tokens,))

    def on_watch(self, view: View, sample: Sample, tokens: int, value: float) -> Verdict:
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


@part("allocation", "espo")
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

    def start(self, shape: RunSizes) -> _Regretting:
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

    def on_watch(self, view: View, sample: Sample, tokens: int, value: float) -> Verdict:
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


@part("allocation", "precog")
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

    def start(self, shape: RunSizes) -> _Stopping:
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

    def on_watch(self, view: View, sample: Sample, tokens: int, value: float) -> Verdict:
        """Whether failure is certain enough."""
        success = self._head.read(sample.sample, tokens, value)
        fails = success is not None and 1 - success >= self._spec.failure_confidence
        return Verdict(truncated=(sample,)) if fails else GO_ON

    def observe(self, view: View, group: Group) -> None:
        """Learn how whole responses came out."""
        self._head.observe(group)
