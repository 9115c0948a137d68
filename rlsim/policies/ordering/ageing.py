"""Shortest first without starvation: what waits rises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.ticks import to_seconds
from rlsim.core.view import Sample, Shape, View
from rlsim.policies.bounds import at_least
from rlsim.policies.ordering.predictors import Expected, Predictor, teach


@dataclass(frozen=True, slots=True)
class _Ageing:
    predictor: Predictor
    tokens_per_second: float
    oracle: bool
    shares_kv: ClassVar[bool] = False
    ranks: ClassVar[bool] = True

    def priority(self, view: View, sample: Sample) -> int:
        return round(self.predictor(view, sample) + self.tokens_per_second * to_seconds(view.now))

    def chunk_tokens(self, view: View, sample: Sample) -> int:
        return 0

    def learn(self, view: View, sample: Sample, tokens: int) -> None:
        teach(self.predictor, view, sample, tokens)


@dataclass(frozen=True, slots=True)
class Ageing(Expected):
    """A call that waits t seconds ranks as one ``tokens_per_second * t`` tokens shorter than it is expected to be.

    All that wait age alike, so their order never changes and is fixed when they are submitted: the expected tokens
    plus ``tokens_per_second`` times the time of submission. At 0 it is shortest first; large, first come first served.
    A call is overtaken only by those submitted within (its tokens / ``tokens_per_second``) seconds after it: none
    starves.
    """

    tokens_per_second: float

    def start(self, shape: Shape) -> _Ageing:
        """Refuse parameters out of range."""
        at_least("tokens_per_second", self.tokens_per_second, 0)
        return _Ageing(self.make(shape), self.tokens_per_second, self.is_oracle)
