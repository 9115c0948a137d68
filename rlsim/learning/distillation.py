"""What a batch holds for on-policy distillation: the worth of its tokens to a student, by where they lie.

Unlike a reward, a teacher's score comes with every token, so a response that was cut teaches too, and one token in
front may teach more than many behind. Weights by which a method fades tokens out itself are not modelled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlsim.learning.information import TrainedSample
from rlsim.learning.model import Distillation


@dataclass(frozen=True, slots=True)
class FullLength:
    """Mean ``sample_worth`` of responses that were not cut, by outcome: the unit of information."""

    of_failure: float
    of_success: float

    def at(self, success: float) -> float:
        """Of a uniform batch of a population that succeeds so often."""
        return success * self.of_success + (1 - success) * self.of_failure


def worth_up_to(tokens: float, law: Distillation) -> float:
    """Worth of the first so many tokens, in first tokens, no drift among them: the integral of the fading law."""
    reach, exponent = tokens / law.fade_tokens, law.fade_exponent
    if exponent == 1.0:
        return law.fade_tokens * math.log1p(reach)
    return law.fade_tokens * math.expm1((1 - exponent) * math.log1p(reach)) / (1 - exponent)


def sample_worth(sample: TrainedSample, law: Distillation) -> float:
    """Worth of the tokens of a sample, in first tokens."""
    drift = min(sample.tokens, sample.drift_tokens)
    repeats = min(sample.tokens, sample.repeats_tokens)
    whole = worth_up_to(min(drift, repeats), law)
    drifted = law.after_drift * (worth_up_to(repeats, law) - worth_up_to(min(drift, repeats), law))
    behind = law.after_repetition * (worth_up_to(sample.tokens, law) - worth_up_to(repeats, law))
    return whole + drifted + behind


def mean_worth(batch: Sequence[TrainedSample], law: Distillation) -> float:
    """Mean over the samples: their number is the breadth of the batch, which counts apart."""
    return sum(sample_worth(sample, law) for sample in batch) / len(batch)
