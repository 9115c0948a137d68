"""An engine on a share of the SMs, and two kinds of GPU beside what was measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evidence.results_pages import accuracy
from evidence.roofline_phases import DECODE_PUBLISHED, PREFILL_PUBLISHED, page, rows
from rlsim.core.errors import ParameterError
from rlsim.costs.catalogue import device, model
from rlsim.costs.profile import load_profile
from rlsim.costs.roofline import TOKEN_KNOTS, Efficiency, Partition, roofline
from rlsim.costs.step_model import StepTimeModel

SHARES = st.floats(0.05, 1.0)
H100 = device("H100-SXM")
MODEL = model("Llama-3.1-8B")
NO_OVERHEAD = Efficiency(layer_seconds=0.0, sequence_seconds=0.0)


def on_share(share: Partition) -> StepTimeModel:
    return roofline(MODEL, share.device(H100), efficiency=NO_OVERHEAD)


@given(SHARES, SHARES)
def test_compute_is_slower_by_the_share_and_reading_by_what_the_share_saturates(
    share: float, saturation: float
) -> None:
    part, whole = on_share(Partition(share, saturation)), roofline(MODEL, H100, efficiency=NO_OVERHEAD)
    reads = min(1.0, share / saturation)
    assert part.pair_seconds == pytest.approx(whole.pair_seconds / share)
    assert part.kv_seconds_per_token[0] == pytest.approx(whole.kv_seconds_per_token[0] / reads)
    assert part.dense_seconds[0] == pytest.approx(whole.dense_seconds[0] / reads)
    assert part.dense_seconds[-1] == pytest.approx(whole.dense_seconds[-1] / share)


@given(SHARES, SHARES, st.integers(1, 200), st.integers(0, 10_000))
def test_a_step_on_a_share_is_never_faster_and_never_slower_than_all_by_the_share(
    share: float, saturation: float, decodes: int, prefill: int
) -> None:
    whole = load_profile("llama-3.1-8b_h100-sxm_tp1").law
    partition = Partition(share, saturation)
    part = partition.measured(whole, roofline(MODEL, H100), roofline(MODEL, partition.device(H100)))
    batch = (decodes, 1000.0 * decodes, 1, prefill, 0.5 * prefill**2)
    alone, there = whole.mixed_seconds(*batch), part.mixed_seconds(*batch)
    assert alone * (1 - 1e-9) <= there <= alone / share * (1 + 1e-9)


def test_all_of_the_sms_are_the_whole_gpu() -> None:
    whole = load_profile("llama-3.1-8b_h100-sxm_tp1").law
    part = Partition(1.0, 0.7).measured(whole, roofline(MODEL, H100), roofline(MODEL, H100))
    assert part.dense_seconds == pytest.approx(whole.dense_seconds)
    assert part.pair_seconds == whole.pair_seconds
    assert Partition(1.0).device(H100) == H100


@given(SHARES, SHARES, st.integers(1, 200), st.integers(0, 5000))
def test_coefficients_on_a_share_are_divided_by_their_rate(
    share: float, saturation: float, decodes: int, prefill: int
) -> None:
    partition = Partition(share, saturation)
    law = partition.affine(0.01, 1e-4, 1e-7, 2e-5, 1e-10)
    reads, chunks = partition.memory_share, min(1, prefill)
    seconds = (0.01 + 1e-7 * 1000) / reads + (1e-4 * (decodes + chunks) + 2e-5 * (prefill - chunks)) / share
    assert law.mixed_seconds(decodes, 1000, chunks, prefill, 0) == pytest.approx(seconds)


def test_a_share_is_an_estimate_whatever_the_whole_was() -> None:
    measured = load_profile("llama-3.1-8b_h100-sxm_tp1").law
    found = Partition(0.4, 0.5).provenance(measured)
    assert found.is_estimate
    assert "on 40% of the SMs, with 80% of the memory rate (assumed)" in str(found)


@pytest.mark.parametrize(("share", "saturation"), [(0.0, 1.0), (1.1, 1.0), (0.5, 0.0), (0.5, 1.5)])
def test_shares_are_shares(share: float, saturation: float) -> None:
    with pytest.raises(ParameterError):
        Partition(share, saturation)


def test_knots_stay_in_order_on_any_share() -> None:
    assert list(TOKEN_KNOTS) == sorted(TOKEN_KNOTS)
    whole = load_profile("llama-3.1-8b_h100-sxm_tp1").law
    for share in (0.1, 0.3, 0.9):
        partition = Partition(share)
        part = partition.measured(whole, roofline(MODEL, H100), roofline(MODEL, partition.device(H100)))
        assert list(part.dense_seconds) == sorted(part.dense_seconds)


# -- two kinds of GPU ------------------------------------------------------------------------------------


def test_compute_goes_to_the_gpu_that_computes_and_decoding_to_the_one_that_reads() -> None:
    """RollArt, at equal cost: prefill is faster on H800, decode on H20; the rooflines agree, and nearly on how much."""
    found = rows()
    assert all(row.ratio < 1 for row in found)
    for row in found:
        assert row.published in (PREFILL_PUBLISHED, DECODE_PUBLISHED)
        assert abs(row.error) < 0.35
    assert min(abs(row.error) for row in found if row.published == DECODE_PUBLISHED) == 0


def test_the_table_names_every_error() -> None:
    assert page().count("%") == len(rows())


def test_the_table_of_the_documentation_is_what_the_rooflines_say() -> None:
    assert page() in accuracy()
