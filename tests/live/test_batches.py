"""Batches are cut so that every sample is trained on once, by one rank."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsim.core.errors import ParameterError
from rlsim.live.protocols import Experience
from rlsim.live.torch.batches import TrainingSample, blocks, scored, shard, target_tokens

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=30)


def of_lengths(lengths: Sequence[int]) -> list[TrainingSample]:
    return [TrainingSample(at, (0,) * length, tuple(range(1, length)), (), 0.0) for at, length in enumerate(lengths)]


def experience(**changes: object) -> Experience:
    fields = {
        "sample": 0,
        "group": 0,
        "prompt": (1, 5),
        "response": (6, 7, 8, 2),
        "made_by_model": (True, False, False, True),
        "log_probs": (-1.0, 0.0, 0.0, -2.0),
        "segments": ((0, 2),),
        "reward": 1.0,
    }
    return Experience(**{**fields, **changes})


@given(LENGTHS, st.integers(1, 6))
def test_blocks_are_contiguous_and_of_nearly_equal_size(lengths: list[int], count: int) -> None:
    parts = blocks(lengths, count)
    assert [one for part in parts for one in part] == lengths
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(LENGTHS, st.integers(1, 5), st.integers(1, 60))
def test_ranks_share_a_mini_batch_and_have_equally_many_micro_batches(
    lengths: list[int], ranks: int, most: int
) -> None:
    samples = of_lengths(lengths)
    shards = [shard(samples, rank, ranks, most) for rank in range(ranks)]
    assert sorted(one.index for own in shards for part in own for one in part) == list(range(len(lengths)))
    assert len({len(own) for own in shards}) == 1
    for part in (part for own in shards for part in own):
        assert len(part) <= 1 or sum(len(one.tokens) for one in part) <= most


def test_tool_outputs_are_read_but_not_trained_on() -> None:
    (sample,) = scored([experience()])
    assert sample.tokens == (1, 5, 6, 7, 8, 2)
    assert sample.targets == (2, 5)
    assert sample.behaviour == (-1.0, -2.0)
    assert target_tokens([sample]) == 2
    assert scored([experience(log_probs=())])[0].behaviour == ()


def test_samples_that_cannot_be_trained_on_are_refused() -> None:
    with pytest.raises(ParameterError, match=r"batch\.0\.prompt: found 'no token'"):
        scored([experience(prompt=())])
    with pytest.raises(ParameterError, match=r"batch\.1\.log_probs: found '1 entries'; allowed: 4"):
        scored([experience(), experience(log_probs=(-1.0,))])
    with pytest.raises(ParameterError, match=r"batch\.0\.made_by_model: found '0 entries'"):
        scored([experience(made_by_model=())])
