"""Random numbers by name and place."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsim.core.streams import (
    BLOCK_VALUES,
    BLOCKS_KEPT,
    IndexedNormals,
    IndexedUniforms,
    PlacedStream,
    generator,
    generator_at,
    stream_key,
)

indices = st.lists(st.integers(0, 10 * BLOCK_VALUES), min_size=1, max_size=40)


@given(indices)
def test_a_value_depends_on_its_index_and_not_on_what_was_asked_before(asked: list[int]) -> None:
    used = IndexedNormals(3, "luck")
    values = [used[i] for i in asked]
    assert values == [IndexedNormals(3, "luck")[i] for i in asked]


def test_forgotten_blocks_return_the_same() -> None:
    sequence = IndexedUniforms(3, "luck")
    before = sequence.take(0, 5)
    for block in range(BLOCKS_KEPT + 2):
        sequence[block * BLOCK_VALUES]
    assert len(sequence._blocks) == BLOCKS_KEPT
    assert np.array_equal(sequence.take(0, 5), before)


@given(st.integers(0, 5 * BLOCK_VALUES), st.integers(0, 3 * BLOCK_VALUES))
def test_a_slice_is_the_values_one_by_one(start: int, count: int) -> None:
    sequence = IndexedUniforms(1, "slice")
    taken = sequence.take(start, count)
    assert taken.shape == (count,)
    assert all(taken[i] == sequence[start + i] for i in range(0, count, 97))


def test_there_is_nothing_before_the_first_value() -> None:
    with pytest.raises(IndexError):
        IndexedNormals(1, "x")[-1]
    with pytest.raises(IndexError):
        IndexedNormals(1, "x").take(-1, 3)


def test_normals_are_normal_and_uniforms_uniform() -> None:
    from scipy.stats import kstest

    assert kstest(IndexedNormals(1, "n").take(7, 20_000), "norm").pvalue > 0.001
    assert kstest(IndexedUniforms(1, "u").take(7, 20_000), "uniform").pvalue > 0.001


def test_names_are_told_apart() -> None:
    keys = [
        stream_key(1, "a", "b"),
        stream_key(1, "ab"),
        stream_key(1, "a", "b", 0),
        stream_key(2, "a", "b"),
        stream_key(1, "a", 1),
        stream_key(1, "a", "1"),
        stream_key(1, "a', 'b"),
    ]
    assert len(set(keys)) == len(keys)
    assert all(0 <= word < 2**64 for key in keys for word in key)


def test_a_moved_stream_draws_what_a_new_one_draws() -> None:
    moved = PlacedStream(5, "response")
    moved.at(9, 9).random(3)
    for prompt, attempt in [(0, 0), (3, 1000), (2**63, 2**64 - 1), (3, 1000)]:
        fresh = generator_at(5, "response", prompt << 64 | attempt).standard_normal(9)
        assert np.array_equal(moved.at(prompt, attempt).standard_normal(9), fresh)


def test_places_do_not_overlap() -> None:
    moved = PlacedStream(5, "response")
    places = [(p, a, t) for p in range(6) for a in range(6) for t in range(6)]
    drawn = np.concatenate([moved.at(*place).integers(0, 2**63, 64) for place in places])
    assert len(np.unique(drawn)) == len(places) * 64


def test_a_named_generator_is_read_again_from_its_start() -> None:
    assert generator(1, "epoch", 2).random() == generator(1, "epoch", 2).random()
    assert generator(1, "epoch", 2).random() != generator(1, "epoch", 3).random()


DRAW = """
from rlsim.core.streams import stream_key
from rlsim.workload.lengths import Lognormal
from rlsim.workload.workload import Workload
law = Lognormal(1000, 1.0, 8192)
w = Workload(7, 4, 100, law, law, 0.5)
print(stream_key(7, "x", "y", 3), [w.prompt_at(i) for i in range(5)])
print([w.response_tokens(p, 0, m) for p in range(20) for m in range(4)])
"""


def test_draws_are_the_same_in_every_process() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", DRAW],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert outputs.pop().strip()
