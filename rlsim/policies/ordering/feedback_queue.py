"""A multi-level feedback queue: what has run long waits behind what has not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.view import Sample, Shape, View
from rlsim.policies.bounds import at_least


@dataclass(frozen=True, slots=True)
class FeedbackQueue:
    """Levels by response tokens so far, each ``factor`` times as long as the one before; no length is predicted."""

    first_level_tokens: int = 1024
    """Tokens after which a call leaves the first level and is put back in line."""
    factor: int = 2
    """Growth of the bound from level to level."""
    levels: int = 4
    """The last one has no bound."""
    shares_kv: bool = False
    """Whether a call that continues finds its KV in a pool instead of computing it again."""
    oracle: ClassVar[bool] = False
    ranks: ClassVar[bool] = True

    def start(self, shape: Shape) -> FeedbackQueue:
        """Refuse levels that are none."""
        at_least("first_level_tokens", self.first_level_tokens, 1)
        at_least("factor", self.factor, 2)
        at_least("levels", self.levels, 2)
        return self

    def priority(self, view: View, sample: Sample) -> int:
        """The level, from 0."""
        return self._level(sample.response_tokens)[0]

    def chunk_tokens(self, view: View, sample: Sample) -> int:
        """Tokens up to the end of the level."""
        level, bound = self._level(sample.response_tokens)
        return 0 if level == self.levels - 1 else bound - sample.response_tokens

    def _level(self, tokens: int) -> tuple[int, int]:
        """The level of a sample with so many tokens, and the tokens at which it ends."""
        level, bound = 0, self.first_level_tokens
        while tokens >= bound and level < self.levels - 1:
            level, bound = level + 1, bound * self.factor
        return level, bound
