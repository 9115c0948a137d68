"""Tenants share the engines by weight: start-time fair queueing over expected tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.view import Sample, Shape, View
from rlsim.policies.ordering.predictors import Expected, Predictor, teach

RANKS_PER_TOKEN = 1024
"""Priorities are whole numbers: virtual time is cut this fine."""


class _Fair:
    """The virtual time of every class, in tokens by weight."""

    shares_kv: ClassVar[bool] = False
    ranks: ClassVar[bool] = True

    def __init__(self, predictor: Predictor, shape: Shape, oracle: bool) -> None:
        self.oracle = oracle
        self._predictor = predictor
        self._paid = [0.0] * len(shape.classes)
        """Virtual time up to which the calls of a class are charged."""
        self._now = 0.0
        """Virtual time of the latest start among calls that have ended."""
        self._charged: dict[int, tuple[float, float]] = {}
        """Start and tokens of turns under way, by sample."""

    def priority(self, view: View, sample: Sample) -> int:
        if sample.sample not in self._charged:
            self._charge(view, sample)
        return round(self._charged[sample.sample][0] * RANKS_PER_TOKEN)

    def _charge(self, view: View, sample: Sample) -> None:
        kind = sample.group.request_class
        if len(view.generating_samples) <= 1:  # The engines were idle: nobody is owed anything.
            self._now = max(self._now, *self._paid)
        start, tokens = max(self._now, self._paid[kind]), self._predictor(view, sample)
        self._charged[sample.sample] = start, tokens
        self._paid[kind] = start + tokens / view.shape.classes[kind].weight

    def chunk_tokens(self, view: View, sample: Sample) -> int:
        return 0

    def learn(self, view: View, sample: Sample, tokens: int) -> None:
        kind = sample.group.request_class
        start, charged = self._charged.pop(sample.sample)
        self._now = max(self._now, start)
        self._paid[kind] += (tokens - charged) / view.shape.classes[kind].weight
        teach(self._predictor, view, sample, tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedFair(Expected):
    """Classes that always wait get response tokens in proportion to their ``weight``, whatever they ask for.

    Start-time fair queueing (Goyal, Vin and Cheng 1996): a turn starts, in virtual time, when its class has paid for
    the turn before, or at the start of what was served last, and pays expected tokens by weight; the earliest start
    goes first. What a turn made beyond or below the expectation is charged when it ends, to the turns that come then.
    Calls of a class run in order of arrival.
    """

    def start(self, shape: Shape) -> _Fair:
        """Refuse parameters out of range."""
        return _Fair(self.make(shape), shape, self.is_oracle)
