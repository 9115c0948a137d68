"""What new weights accept of a response that old ones made, token by token (SPEC-RL, arXiv 2509.23232)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlsim.core.errors import RlsimError
from rlsim.policies.hashed import uniform


@dataclass(frozen=True, slots=True)
class Acceptance:
    """A token stands with probability ``min(1, lenience * new / old)`` of its probabilities."""

    seed: int = 0
    lenience: float = 1.0
    """At least 1, which accepts what speculative sampling would (arXiv 2211.17192)."""

    def tokens(self, sample: int, new: Sequence[float], old: Sequence[float]) -> int:
        """How many stand before the first that does not, from log-probabilities under both weights."""
        if len(new) != len(old):
            raise RlsimError(f"the draft of sample {sample} has {len(old)} tokens, the engine scored {len(new)}")
        for at, (now, then) in enumerate(zip(new, old, strict=True)):
            gain = math.log(self.lenience) + now - then
            if gain < 0 and uniform(self.seed, "draft", sample, at) >= math.exp(gain):
                return at
        return len(new)
