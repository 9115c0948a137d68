"""What a batch holds for a policy gradient: the variance of its advantages, relative to a uniform on-policy batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple


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


class Squares(NamedTuple):
    """What the rewards of a group tell."""

    prompt: int
    samples: int
    squares: float
    """Sum of squared advantages, less what reward noise makes of it on average: it may be below 0."""


def squares_by_group(
    batch: Sequence[TrainedSample], expected: Callable[[int], float] | None, noise: float
) -> Iterator[Squares]:
    """Of each group: advantages from the group's mean, or from what is ``expected`` of a prompt."""
    groups: dict[int, list[TrainedSample]] = {}
    for sample in batch:
        groups.setdefault(sample.group, []).append(sample)
    for group in groups.values():
        prompt, size = group[0].prompt, len(group)
        about = sum(sample.reward for sample in group) / size if expected is None else expected(prompt)
        squares = sum((sample.reward - about) ** 2 for sample in group)
        yield Squares(prompt, size, squares - noise**2 * (size - (expected is None)))


def advantage_variance(batch: Sequence[TrainedSample], noise: float = 0.0) -> float:
    """Mean over samples of the squared distance of a reward from its group's mean.

    A group of n samples of a prompt that succeeds with p has p (1 - p) (n - 1) / n of it on average: a small group
    gives less, for its mean is noisy (Dr.GRPO's advantage, as in VIP's variance); one without variance gives nothing.
    The share that reward noise of standard deviation ``noise`` makes is no information and is taken off.
    """
    squares = sum((group.squares for group in squares_by_group(batch, None, noise)), 0.0)
    return max(0.0, squares) / len(batch)


def variance_about(batch: Sequence[TrainedSample], expected: Callable[[int], float], noise: float = 0.0) -> float:
    """Mean over samples of the squared distance of a reward from what is expected of its prompt, less that of noise."""
    squares = sum((sample.reward - expected(sample.prompt)) ** 2 for sample in batch)
    return max(0.0, squares / len(batch) - noise**2)


def reference_variance(reward_variance: float, group_size: int) -> float:
    """``advantage_variance`` that uniform prompts with groups of this size have on average."""
    return reward_variance * (group_size - 1) / group_size
