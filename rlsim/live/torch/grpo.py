"""The loss of group relative policy optimisation, term by term (arXiv 2402.03300), on tensors of any library of torch's
kind; nothing here imports one.

Three distributions meet at a token: *behaviour*, by which the engine sampled it (with whatever weights it then had);
*old*, the trainer's weights when the step began; *new*, its weights now. The clipped ratio is of new to old, and a
truncated weight makes up for the difference of old and behaviour (arXiv 2505.24298, there called decoupled).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlsim.core.errors import ParameterError


@dataclass(frozen=True, slots=True)
class Objective:
    """What is minimised: the mean over tokens of ``-weight * min(ratio * A, clip(ratio) * A)``."""

    clip_low: float = 0.2
    """The ratio is clipped to at least 1 less this."""
    clip_high: float = 0.2
    """And to at most 1 plus this."""
    most_weight: float | None = 2.0
    """Importance weights of tokens are truncated to this; None: no correction, all weights are 1."""

    def __post_init__(self) -> None:
        if not 0 < self.clip_low <= 1:
            raise ParameterError("live.trainer.clip_low", self.clip_low, "above 0 and at most 1")
        if not self.clip_high > 0:
            raise ParameterError("live.trainer.clip_high", self.clip_high, "above 0")
        if self.most_weight is not None and not self.most_weight >= 1:
            raise ParameterError("live.trainer.most_weight", self.most_weight, "at least 1, or nothing")

    def weights(self, old: Any, behaviour: Any) -> Any:
        """``min(old / behaviour, most_weight)`` of every token, from log-probabilities; 1 without correction."""
        log_weights = old - behaviour
        return log_weights.exp().clamp(max=self.most_weight) if self.most_weight else (log_weights * 0).exp()

    def losses(self, new: Any, old: Any, weights: Any, advantages: Any) -> Any:
        """Loss of every token, from log-probabilities; gradients flow through ``new`` alone."""
        ratio = (new - old).exp()
        clipped = ratio.clamp(1 - self.clip_low, 1 + self.clip_high)
        return -weights * (ratio * advantages).minimum(clipped * advantages)

    def clips(self, new: Any, old: Any, advantages: Any) -> Any:
        """Whether the clipped term is the smaller one, so that a token gives no gradient."""
        ratio = (new - old).exp()
        above = (ratio > 1 + self.clip_high) & (advantages > 0)
        return above | ((ratio < 1 - self.clip_low) & (advantages < 0))


def advantages(groups: Sequence[int], rewards: Sequence[float]) -> list[float]:
    """``(reward - mean) / deviation`` of each sample within its group; 0 in a group without variance.

    The deviation is that of the group (divided by n); rounding of equal rewards is no variance.
    """
    members: dict[int, list[float]] = {}
    for group, reward in zip(groups, rewards, strict=True):
        members.setdefault(group, []).append(reward)
    moments: dict[int, tuple[float, float]] = {}
    for group, values in members.items():
        mean = math.fsum(values) / len(values)
        moments[group] = mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
    pairs = [(reward, *moments[group]) for group, reward in zip(groups, rewards, strict=True)]
    return [(reward - mean) / deviation if deviation > 1e-9 else 0.0 for reward, mean, deviation in pairs]


def effective_share(log_weights: Sequence[float]) -> float:
    """``(sum w)^2 / (n sum w^2)`` of sequence weights (Kong 1992), from their logarithms; in (0, 1]."""
    most = max(log_weights)
    weights = [math.exp(value - most) for value in log_weights]
    return sum(weights) ** 2 / (len(weights) * sum(weight * weight for weight in weights))


def divergence(behaviour: Any, old: Any) -> Any:
    """Unbiased term, for every token sampled by behaviour, of KL(behaviour || old) that is never negative.

    ``exp(d) - 1 - d`` with ``d = old - behaviour`` (Schulman, "Approximating KL divergence", 2020).
    """
    difference = old - behaviour
    return difference.exp() - 1 - difference
