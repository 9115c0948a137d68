"""What the rewards of a group say, and the size that it has where nothing is decided."""

from __future__ import annotations

from collections.abc import Sequence

from rlsim.core.view import Group, View
from rlsim.policies.hooks import Size


def usual(view: View) -> Size:
    """``workload.group_size`` samples, all of which are needed."""
    return Size(view.shape.group_size, view.shape.group_size)


def agree(rewards: Sequence[float]) -> bool:
    """Whether they are all the same: no advantage."""
    return len(set(rewards)) < 2


def mean(rewards: Sequence[float]) -> float:
    """0 where there are none."""
    return sum(rewards) / len(rewards) if rewards else 0.0


def variance(rewards: Sequence[float]) -> float:
    """Mean squared distance from their mean."""
    centre = mean(rewards)
    return mean([(reward - centre) ** 2 for reward in rewards])


def solved(reward: float) -> float:
    """How much of a success a reward is, in [0, 1]."""
    return min(max(reward, 0.0), 1.0)


def first_wave(group: Group, launched: int) -> bool:
    """Whether a group has had no more than the samples that it began with."""
    return group.launched <= launched
