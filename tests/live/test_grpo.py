"""The loss against values computed by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsim.core.errors import ParameterError
from rlsim.live.torch.grpo import Objective, advantages, effective_share

REWARDS = st.lists(st.floats(0, 1), min_size=1, max_size=12)


def test_advantages_are_standard_scores_within_their_group() -> None:
    root = math.sqrt(2.0)
    found = advantages([7, 3, 7, 3, 7], [0.0, 0.4, 0.5, 0.4, 1.0])
    assert found == pytest.approx([-root * math.sqrt(0.75), 0.0, 0.0, 0.0, root * math.sqrt(0.75)])
    assert advantages([1, 1, 1, 1], [1.0, 0.0, 0.0, 0.0]) == pytest.approx([math.sqrt(3), *[-1 / math.sqrt(3)] * 3])


def test_a_group_without_variance_teaches_nothing() -> None:
    assert advantages([1, 1, 1], [0.1, 0.1, 0.1]) == [0.0, 0.0, 0.0]
    assert advantages([1], [1.0]) == [0.0]


@given(REWARDS, st.floats(0.1, 10), st.floats(-5, 5))
def test_advantages_have_mean_zero_and_do_not_know_the_unit_of_the_reward(
    rewards: list[float], scale: float, shift: float
) -> None:
    groups = [0] * len(rewards)
    found = advantages(groups, rewards)
    assert sum(found) == pytest.approx(0, abs=1e-6)
    if max(rewards) - min(rewards) > 1e-3:
        assert sum(gain**2 for gain in found) == pytest.approx(len(rewards))
        assert advantages(groups, [scale * reward + shift for reward in rewards]) == pytest.approx(found, abs=1e-6)


def test_the_effective_share_of_weights() -> None:
    assert effective_share([0.0, 0.0, 0.0]) == 1.0
    assert effective_share([500.0, 500.0]) == 1.0
    assert effective_share([math.log(3), 0.0]) == pytest.approx(16 / 20)
    assert effective_share([0.0, -1000.0, -1000.0, -1000.0]) == pytest.approx(1 / 4)


def test_faulty_objectives_are_refused_with_their_key() -> None:
    for name, value in (("clip_low", 0.0), ("clip_low", 1.5), ("clip_high", 0.0), ("most_weight", 0.5)):
        with pytest.raises(ParameterError, match=f"live.trainer.{name}: found {value}"):
            Objective(**{name: value})
