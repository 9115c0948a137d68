"""The step law: its integer table, its shape and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsim.core.errors import ParameterError
from rlsim.costs.fields import record
from rlsim.costs.profile import list_profiles, load_profile
from rlsim.costs.step_model import StepTimeModel
from rlsim.engine.steptime import attention_pairs

LAW = StepTimeModel(
    tokens=(1, 64, 1024),
    dense_seconds=(6e-3, 7e-3, 2e-2),
    sequences=(1, 256),
    sequence_seconds=(0.0, 2e-3),
    decodes=(1, 128),
    kv_seconds_per_token=(5.5e-8, 4e-8),
    pair_seconds=7e-10,
    prefill_tokens=(1, 512),
    prefill_seconds=(1e-3, 2e-3),
    scale=1.1,
    offset_seconds=4e-4,
)
BUDGET, SEATS = 4096, 512
TABLE = LAW.quantise(BUDGET, SEATS)

steps = st.tuples(
    st.integers(0, 512), st.integers(1, 4096), st.integers(0, 8), st.integers(1, 400), st.integers(0, 9000)
)


@given(steps)
def test_the_integer_table_is_within_half_a_picosecond_a_term(step: tuple[int, ...]) -> None:
    decodes, context, chunks, chunk, cached = step
    decodes = min(decodes, SEATS - chunks)
    kv, prefill = decodes * context, chunks * chunk
    pairs = chunks * attention_pairs(chunk, cached)
    ticks = TABLE.mixed(decodes, kv, chunks, prefill, pairs)
    seconds = LAW.mixed_seconds(decodes, kv, chunks, prefill, pairs)
    assert abs(ticks - seconds * 1e12) <= 0.5 * (3 + kv + pairs) + 1e-9 * ticks


def test_the_integer_table_equals_the_law_where_coefficients_are_whole_picoseconds() -> None:
    law = StepTimeModel.affine(1e-3, 2e-6, 3e-8, 1e-7, 4e-10)
    table = law.quantise(2048, 64)
    for decodes in range(65):
        assert table.decode(decodes, 1000 * decodes) == pytest.approx(
            law.decode_seconds(decodes, 1000 * decodes) * 1e12, rel=1e-9
        )


def test_a_step_without_prefill_pays_nothing_for_it_and_one_with_a_token_pays_the_launch() -> None:
    bare = replace(LAW, prefill_tokens=(1,), prefill_seconds=(0.0,))
    assert LAW.mixed_seconds(8, 8000, 0, 0, 0) == bare.mixed_seconds(8, 8000, 0, 0, 0)
    assert TABLE.mixed(8, 8000, 0, 0, 0) == TABLE.decode(8, 8000)
    launch = LAW.mixed_seconds(8, 8000, 1, 1, 1) - bare.mixed_seconds(8, 8000, 1, 1, 1)
    assert launch == pytest.approx(LAW.scale * 1e-3)
    assert bare.quantise(BUDGET, SEATS).prefill_ps == []


def test_tables_reach_from_zero_to_both_limits() -> None:
    assert len(TABLE.dense_ps) == BUDGET + 1
    assert len(TABLE.sequence_ps) == len(TABLE.kv_ps) == SEATS + 1
    assert all(type(entry) is int for entry in (*TABLE.dense_ps, *TABLE.kv_ps, TABLE.pair_ps))


@given(steps)
def test_kv_beside_a_chunk_has_a_price_of_its_own(step: tuple[int, ...]) -> None:
    decodes, context, chunks, chunk, _ = step
    decodes = min(decodes, SEATS - chunks)
    kv, prefill = decodes * context, chunks * chunk
    dearer = replace(LAW, mixed_kv_seconds_per_token=(2 * 5.5e-8, 2 * 4e-8))
    surcharge = dearer.mixed_seconds(decodes, kv, chunks, prefill, 0) - LAW.mixed_seconds(
        decodes, kv, chunks, prefill, 0
    )
    read = LAW.decode_seconds(decodes, kv) - LAW.decode_seconds(decodes, 0)
    assert surcharge == pytest.approx(read if chunks else 0.0, abs=1e-12)
    table = dearer.quantise(BUDGET, SEATS)
    assert table.decode(decodes, kv) == TABLE.decode(decodes, kv)
    ticks = table.mixed(decodes, kv, chunks, prefill, 0)
    if chunks:
        seconds = dearer.mixed_seconds(decodes, kv, chunks, prefill, 0)
        assert abs(ticks - seconds * 1e12) <= 0.5 * (2 + kv) + 1e-9 * ticks


def test_a_law_without_that_price_is_the_same_table_and_the_same_file() -> None:
    assert TABLE.mixed_kv_ps is TABLE.kv_ps
    assert "mixed_kv_seconds_per_token" not in LAW.as_dict()


def test_a_law_with_that_price_comes_back_from_its_file() -> None:
    dearer = replace(LAW, mixed_kv_seconds_per_token=(1e-7, 8e-8))
    assert record(StepTimeModel, dearer.as_dict(), "made up", "law") == dearer


@pytest.mark.parametrize("values", [(1e-7,), (1e-7, -1e-9)])
def test_an_impossible_price_of_kv_beside_a_chunk_is_refused(values: tuple[float, ...]) -> None:
    with pytest.raises(ParameterError, match="mixed_kv_seconds_per_token"):
        replace(LAW, mixed_kv_seconds_per_token=values)


def test_dense_work_follows_its_last_slope_beyond_the_last_knot() -> None:
    slope = (2e-2 - 7e-3) / (1024 - 64)
    prefill = 2e-3 + 1e-3 / (512 - 1) * (2048 - 512)
    expected = 1.1 * (2e-2 + slope * 1024 + prefill) + 4e-4 + 1.1 * 7e-10 * 10
    assert LAW.mixed_seconds(0, 0, 1, 2048, 10) == pytest.approx(expected)


@pytest.mark.parametrize("name", list_profiles())
def test_dense_work_of_shipped_laws_never_decreases(name: str) -> None:
    dense = load_profile(name).law.quantise(16384, 1024).dense_ps
    assert all(earlier <= later for earlier, later in pairwise(dense))
    assert dense[1] > 0


def test_affine_charges_a_decode_its_sequence_and_a_chunk_its_further_tokens() -> None:
    law = StepTimeModel.affine(1e-3, 2e-6, 3e-8, 1e-7, 4e-10)
    assert law.decode_seconds(10, 500) == pytest.approx(1e-3 + 10 * 2e-6 + 500 * 3e-8)
    assert law.mixed_seconds(10, 500, 2, 64, 900) == pytest.approx(
        1e-3 + 12 * 2e-6 + 500 * 3e-8 + 62 * 1e-7 + 900 * 4e-10
    )


def test_a_constant_step_is_constant() -> None:
    table = StepTimeModel.affine(5e-3).quantise(256, 64)
    assert {table.decode(n, 77 * n) for n in range(65)} == {5_000_000_000}


def test_calibration_scales_work_and_adds_to_every_step() -> None:
    twice = LAW.calibrated(2.0, 1e-3)
    assert twice.decode_seconds(8, 4000) == pytest.approx(2 * LAW.decode_seconds(8, 4000) + 1e-3)


def test_a_law_survives_its_json_form() -> None:
    assert record(StepTimeModel, LAW.as_dict(), "here", "law") == LAW


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"dense_seconds": (6e-3, float("nan"), 2e-2)}, "dense_seconds"),
        ({"dense_seconds": (6e-3, 5e-3, 2e-2)}, "dense_seconds"),
        ({"dense_seconds": (6e-3, 7e-3)}, "dense_seconds"),
        ({"kv_seconds_per_token": (-1e-9, 4e-8)}, "kv_seconds_per_token"),
        ({"tokens": (64, 1, 1024)}, "tokens"),
        ({"tokens": (0, 64, 1024)}, "tokens"),
        ({"pair_seconds": float("inf")}, "pair_seconds"),
        ({"prefill_seconds": (2e-3, 1e-3)}, "prefill_seconds"),
        ({"prefill_tokens": (1,)}, "prefill_seconds"),
        ({"scale": 0.0}, "scale"),
        ({"offset_seconds": -1e-3}, "offset_seconds"),
        ({"sequence_seconds": (-1.0, -1.0)}, "sequence_seconds"),
    ],
)
def test_knots_that_are_no_law_are_refused(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ParameterError, match=named):
        replace(LAW, **change)
