"""What a batch holds for a policy gradient: the variance of its advantages, relative to a uniform on-policy batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TrainedSample:
    """A sample that is trained on; ``lag_steps`` is token-weighted, in optimizer steps."""

    prompt: int
    group: int
    reward: float
    lag_steps: float
    tokens: int
    drift_tokens: float = math.inf
    """Response tokens before it drifts away from what a teacher would write; more than it has, where it did not."""
    repeats_tokens: float = math.inf
    """Response tokens before it only repeats itself."""


def advantage_variance(batch: Sequence[TrainedSample], noise: float = 0.0) -> float:
    """Mean over samples of the squared distance of a reward from its group's mean.

    A group of n samples of a prompt that succeeds with p has p (1 - p) (n - 1) / n of it on average: a small group
    gives less, for its mean is noisy (Dr.GRPO's advantage, as in VIP's variance); one without variance gives nothing.
    The share that reward noise of standard deviation ``noise`` makes is no information and is taken off.
    """
    groups: dict[int, list[float]] = {}
    for sample in batch:
        groups.setdefault(sample.group, []).append(sample.reward)
    squares = 0.0
    for rewards in groups.values():
        mean = sum(rewards) / len(rewards)
        squares += sum((reward - mean) ** 2 for reward in rewards) - noise**2 * (len(rewards) - 1)
    return max(0.0, squares) / len(batch)


def variance_about(batch: Sequence[TrainedSample], expected: Callable[[int], float], noise: float = 0.0) -> float:
    """Mean over samples of the squared distance of a reward from what is expected of its prompt, less that of noise."""
    squares = sum((sample.reward - expected(sample.prompt)) ** 2 for sample in batch)
    return max(0.0, squares / len(batch) - noise**2)


def reference_variance(reward_variance: float, group_size: int) -> float:
    """``advantage_variance`` that uniform prompts with groups of this size have on average."""
    return reward_variance * (group_size - 1) / group_size
