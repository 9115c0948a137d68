"""Classes of requests: prompts of several kinds, each with its share and its own laws of lengths."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from rlsim.core.streams import IndexedUniforms
from rlsim.workload.lengths import LengthLaw
from rlsim.workload.ranges import above


@dataclass(frozen=True, slots=True)
class ClassLaws:
    """What the prompts of one class ask for; ``share`` is relative to the other classes'."""

    share: float
    prompt_length: LengthLaw
    response_length: LengthLaw

    def __post_init__(self) -> None:
        above("share", self.share, 0.0)


class ClassOf:
    """The class of a prompt: a function of the seed and the prompt, as all its luck."""

    def __init__(self, seed: int, shares: Sequence[float]) -> None:
        self._uniforms = IndexedUniforms(seed, "request class")
        total = sum(shares)
        self._bounds = [bound / total for bound in accumulate(shares)][:-1]

    def __call__(self, prompt: int) -> int:
        """Place among the shares."""
        return bisect_right(self._bounds, self._uniforms[prompt])
