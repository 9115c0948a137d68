"""Replicas set apart for prompts that are expected to be long."""

from __future__ import annotations

from dataclasses import dataclass

from rlsim.core.errors import ParameterError
from rlsim.core.view import Sample, Shape, View
from rlsim.policies.bounds import at_least
from rlsim.policies.ordering.predictors import ORACLES, Expected, Predictor, PredictorName


class _Split:
    def __init__(self, predictor: Predictor, tail_tokens: int, bulk: range, tail: range) -> None:
        self._predictor, self._tail_tokens, self._bulk, self._tail = predictor, tail_tokens, bulk, tail

    def replica(self, view: View, sample: Sample) -> int:
        part = self._tail if self._is_tail(view, sample) else self._bulk
        return view.loads.least(part if view.loads.any_open(part) else None)

    def _is_tail(self, view: View, sample: Sample) -> bool:
        """The first member to be placed decides for its group."""
        placed = next((mate.replica for mate in sample.group.members if mate.replica >= 0), None)
        if placed is not None:
            return placed in self._tail
        return max(self._predictor(view, mate) for mate in sample.group.members) >= self._tail_tokens


@dataclass(frozen=True, slots=True)
class TailSplit:
    """Groups whose longest member is expected to reach ``tail_tokens`` go to the last ``tail_replicas`` replicas.

    Within each part the least loaded serves. Simulated only: every predictor here reads lengths still to come.
    """

    tail_tokens: int
    """Expected response tokens from which a prompt is of the tail."""
    tail_replicas: int = 1
    predictor: PredictorName = "prompt-mean"
    """What lengths are expected: oracle, noisy or prompt-mean; no mate has ended when a group is placed."""
    sigma: float = 0.5
    """Of the noisy predictor: standard deviation of the log of predicted over true tokens."""
    seed: int = 0
    """Of the noisy predictor."""

    def start(self, shape: Shape) -> _Split:
        """Refuse a split that leaves one side empty."""
        at_least("tail_tokens", self.tail_tokens, 1)
        if not 1 <= self.tail_replicas < shape.replicas:
            allowed = f"1 to {shape.replicas - 1}: both parts need a replica"
            raise ParameterError("tail_replicas", self.tail_replicas, allowed)
        if self.predictor not in ORACLES:
            raise ParameterError("predictor", self.predictor, ", ".join(ORACLES))
        predictor = Expected(predictor=self.predictor, sigma=self.sigma, seed=self.seed).make(shape)
        bulk = shape.replicas - self.tail_replicas
        return _Split(predictor, self.tail_tokens, range(bulk), range(bulk, shape.replicas))
