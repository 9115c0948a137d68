"""How far a batch is from the model that trains on it: effective sample size by lag.

The log of a sample's importance weight is taken as normal. Its variance has a part that the numerics of engine and
trainer make, whatever the lag, and a part that grows by the optimizer steps between the weights that made the sample
and those that train on it. Weights have mean 1, so a sample's mean square is ``exp(variance)``, and

    ESS / N = (sum w)^2 / (N sum w^2)  ->  1 / mean of exp(variance).

A statistical stand-in with two numbers, an estimate: the two-part split is DLC's (systems list entry 60), the normal
law and the linear growth are ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pydantic import Field

from rlsim.core.section import Seconds, Section


class Mismatch(Section):
    """How far samples are from the model that trains on them; an estimate. Variances of the log importance weight."""

    engine_variance: Seconds = Field(default=0.0, description="Between engine and trainer with equal weights")
    variance_per_step: Seconds = Field(description="Growth by a training step between making and training")

    def ess(self, lags_steps: Sequence[float]) -> float:
        """Effective sample size, in (0, 1], of samples that are so many optimizer steps old."""
        squares = [math.exp(min(700.0, self.engine_variance + self.variance_per_step * lag)) for lag in lags_steps]
        return len(squares) / sum(squares)
