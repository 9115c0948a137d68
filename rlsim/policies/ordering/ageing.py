"""Shortest first without starvation: what waits rises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.ticks import to_seconds
from rlsim.core.view import Sample, Shape, View
from rlsim.policies.bounds import at_least
from rlsim.policies.ordering.predictors import ORACLES, Predictor, PredictorName, make_predictor


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


@dataclass(frozen=True, slots=True)
class Ageing:
    """A call that waits t seconds ranks as one ``tokens_per_second * t`` tokens shorter than it is expected to be.

    All that wait age alike, so their order never changes and is fixed when they are submitted: the expected tokens
    plus ``tokens_per_second`` times the time of submission. At 0 it is shortest first; large, first come first served.
    """

    tokens_per_second: float
    predictor: PredictorName = "siblings-mean"
    """What lengths are expected: oracle, noisy, prompt-mean (all simulated only), siblings-mean, siblings-max."""
    sigma: float = 0.5
    """Of the noisy predictor: standard deviation of the log of predicted over true tokens."""
    prior_tokens: int = 4096
    """Expected of a sample whose group has no ended mate, by the siblings predictors."""
    seed: int = 0
    """Of the noisy predictor."""

    def start(self, shape: Shape) -> _Ageing:
        """Refuse parameters out of range."""
        at_least("tokens_per_second", self.tokens_per_second, 0)
        predictor = make_predictor(self.predictor, self.sigma, self.prior_tokens, self.seed)
        return _Ageing(predictor, self.tokens_per_second, self.predictor in ORACLES)
