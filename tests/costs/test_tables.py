"""Fitting step laws: a known law is found again, and errors are those of unseen points."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from calibration.stepfit import StepSample, fit_step_law, hold_out_by_kind, hold_out_error
from calibration.table_grid import BATCHES, CONTEXTS, grid
from calibration.tables import TableCase, open_tables, silicon_profile, write_profile
from rlsim.core.errors import ParameterError
from rlsim.core.steptime import attention_pairs
from rlsim.costs.profile import load_profile
from rlsim.costs.provenance import Provenance
from rlsim.costs.steplaw import StepLaw

HERE = Provenance("fitted", "a law made up for the test")
TRUTH = StepLaw(
    tokens=(1, 64, 512),
    dense_seconds=(6e-3, 7e-3, 1.3e-2),
    sequences=(1, 256),
    sequence_seconds=(0.0, 1e-3),
    decodes=(1, 64, 1024),
    kv_seconds_per_token=(5e-8, 4e-8, 3.5e-8),
    pair_seconds=7e-10,
    prefill_tokens=(1, 1024),
    prefill_seconds=(1e-3, 1.5e-3),
)


class Tables:
    """Tables that hold exactly a law, in milliseconds."""

    def decode_step_latency(self, gen_tokens: int, isl: int, osl: int) -> float:
        return 1e3 * TRUTH.decode_seconds(gen_tokens, gen_tokens * (isl + osl // 2 + 1))

    def predict_prefill_latency(self, bs: int, isl: int, prefix: int) -> float:
        new = isl - prefix
        return 1e3 * TRUTH.mixed_seconds(0, 0, bs, bs * new, bs * attention_pairs(new, prefix))

    def mixed_step_latency(self, ctx_tokens: int, gen_tokens: int, isl: int, osl: int) -> float:
        chunks = ctx_tokens // isl
        pairs = chunks * attention_pairs(isl, 0)
        kv = gen_tokens * (isl + osl // 2 + 1)
        return 1e3 * TRUTH.mixed_seconds(gen_tokens, kv, chunks, ctx_tokens, pairs)


POINTS = list(grid(Tables(), kv_capacity_tokens=400_000))
FITTED = [point.sample for point in POINTS if not point.held_out]
HELD_OUT = [point.sample for point in POINTS if point.held_out]


def test_a_law_is_found_again_from_what_is_not_held_out() -> None:
    law = fit_step_law(FITTED, HERE)
    assert hold_out_error(law, HELD_OUT).median < 1e-3
    assert hold_out_error(law, HELD_OUT).worst < 0.02
    assert law.pair_seconds == pytest.approx(7e-10, rel=0.02)


def test_the_grid_stays_inside_the_kv_cache_and_has_all_kinds_of_steps() -> None:
    assert all(point.sample.kv_tokens <= 400_000 for point in POINTS)
    assert {sample.kind for sample in FITTED} == {"decode", "prefill", "mixed"}
    assert {sample.kind for sample in HELD_OUT} == {"decode", "prefill", "mixed"}


def test_every_third_batch_size_and_kv_length_is_never_fitted() -> None:
    batches = {sample.decodes for sample in FITTED if sample.kind == "decode"}
    contexts = {sample.kv_tokens // sample.decodes for sample in FITTED if sample.kind == "decode"}
    assert not batches & set(BATCHES[2::3])
    assert not contexts & set(CONTEXTS[2::3])
    assert not {sample.decodes for sample in FITTED if sample.kind == "mixed"} & set(BATCHES[2::3])


def test_the_error_is_that_of_the_worst_point_and_says_where() -> None:
    slow = StepSample(2 * TRUTH.decode_seconds(8, 1000), decodes=8, kv_tokens=1000)
    exact = StepSample(TRUTH.decode_seconds(4, 1000), decodes=4, kv_tokens=1000)
    error = hold_out_error(TRUTH, [exact, slow])
    assert error.worst == pytest.approx(0.5)
    assert error.where.startswith("8 decodes over 1000 KV tokens")
    assert hold_out_by_kind(TRUTH, [exact, slow]) == {"decode": error}


def test_a_fit_without_samples_is_refused() -> None:
    with pytest.raises(ParameterError, match="samples"):
        fit_step_law([], HERE)


def test_profiles_are_named_after_model_device_and_sharding() -> None:
    assert TableCase("meta-llama/Meta-Llama-3.1-8B", "h100_sxm").name == "llama-3.1-8b_h100-sxm_tp1"
    assert TableCase("Qwen/Qwen3-30B-A3B", "h200_sxm", 4, 2).name == "qwen3-30b-a3b_h200-sxm_tp4_ep2"


TABLES_INSTALLED = importlib.util.find_spec("aiconfigurator_core") is not None


@pytest.mark.skipif(TABLES_INSTALLED, reason="the tables are installed")
def test_without_the_tables_the_error_names_the_extra() -> None:
    with pytest.raises(ParameterError, match=r"rlsim\[tables\]"):
        open_tables(TableCase("Qwen/Qwen3-8B", "h100_sxm"))


@pytest.mark.skipif(not TABLES_INSTALLED, reason="needs the tables extra")
def test_the_tables_give_the_shipped_profile_again(tmp_path: Path) -> None:
    made = silicon_profile(TableCase("Qwen/Qwen3-8B", "h100_sxm"))
    shipped = load_profile("qwen3-8b_h100-sxm_tp1")
    assert made.law.dense_seconds == pytest.approx(shipped.law.dense_seconds, rel=1e-3)
    assert load_profile(write_profile(made, tmp_path)) == made
