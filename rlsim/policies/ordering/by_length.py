"""Calls ranked by the tokens they are expected to make: shortest first, longest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.view import Sample, Shape, View
from rlsim.policies.bounds import at_least
from rlsim.policies.ordering.predictors import Expected, Predictor, teach


@dataclass(frozen=True, slots=True)
class Ranked:
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

    def learn(self, view: View, sample: Sample, tokens: int) -> None:
        """What a turn made, for predictors that learn."""
        teach(self.predictor, view, sample, tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class ByLength(Expected):
    """Either order, by the sign of a rank."""

    chunk_tokens: int = 0
    """Tokens after which a call is ended, and ranked anew; 0 for none."""
    shares_kv: bool = False
    """Whether the next chunk finds its KV in a pool instead of computing it again."""
    sign: ClassVar[int]

    def start(self, shape: Shape) -> Ranked:
        """Refuse parameters out of range."""
        at_least("chunk_tokens", self.chunk_tokens, 0)
        return Ranked(self.make(shape), self.sign, self.chunk_tokens, self.shares_kv, self.is_oracle)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortestFirst(ByLength):
    """The call that is expected to end first runs first: groups complete early, the tail begins late."""

    sign: ClassVar[int] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LongestFirst(ByLength):
    """The call that is expected to end last runs first, as in list scheduling by longest processing time."""

    sign: ClassVar[int] = -1
