"""Calls ranked by the tokens they are expected to make: shortest first, longest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.view import Sample, Shape, View
from rlsim.policies.bounds import at_least
from rlsim.policies.ordering.predictors import ORACLES, Predictor, PredictorName, make_predictor


@dataclass(frozen=True, slots=True)
class ByLength:
    """Priority +1 or -1 times the expected tokens, recomputed whenever a chunk ends."""

    predictor: Predictor
    sign: int
    chunk: int
    shares_kv: bool
    oracle: bool
    ranks: ClassVar[bool] = True

    def priority(self, view: View, sample: Sample) -> int:
        """Whole tokens, at least one."""
        return self.sign * max(1, round(self.predictor(view, sample)))

    def chunk_tokens(self, view: View, sample: Sample) -> int:
        """The same for every call."""
        return self.chunk


@dataclass(frozen=True, slots=True)
class ShortestFirst:
    """The call that is expected to end first runs first: groups complete early, the tail begins late."""

    predictor: PredictorName = "siblings-mean"
    """What lengths are expected: oracle, noisy, prompt-mean (all simulated only), siblings-mean, siblings-max."""
    sigma: float = 0.5
    """Of the noisy predictor: standard deviation of the log of predicted over true tokens."""
    prior_tokens: int = 4096
    """Expected of a sample whose group has no ended mate, by the siblings predictors."""
    chunk_tokens: int = 0
    """Tokens after which a call is ended, and ranked anew; 0 for none."""
    shares_kv: bool = False
    """Whether the next chunk finds its KV in a pool instead of computing it again."""
    seed: int = 0
    """Of the noisy predictor."""

    def start(self, shape: Shape) -> ByLength:
        """Refuse parameters out of range."""
        return _started(self, 1)


@dataclass(frozen=True, slots=True)
class LongestFirst:
    """The call that is expected to end last runs first, as in list scheduling by longest processing time."""

    predictor: PredictorName = "siblings-mean"
    """What lengths are expected: oracle, noisy, prompt-mean (all simulated only), siblings-mean, siblings-max."""
    sigma: float = 0.5
    """Of the noisy predictor: standard deviation of the log of predicted over true tokens."""
    prior_tokens: int = 4096
    """Expected of a sample whose group has no ended mate, by the siblings predictors."""
    chunk_tokens: int = 0
    """Tokens after which a call is ended, and ranked anew; 0 for none."""
    shares_kv: bool = False
    """Whether the next chunk finds its KV in a pool instead of computing it again."""
    seed: int = 0
    """Of the noisy predictor."""

    def start(self, shape: Shape) -> ByLength:
        """Refuse parameters out of range."""
        return _started(self, -1)


def _started(part: ShortestFirst | LongestFirst, sign: int) -> ByLength:
    at_least("chunk_tokens", part.chunk_tokens, 0)
    predictor = make_predictor(part.predictor, part.sigma, part.prior_tokens, part.seed)
    return ByLength(predictor, sign, part.chunk_tokens, part.shares_kv, part.predictor in ORACLES)
