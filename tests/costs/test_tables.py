"""Fitting step laws: a known law is found again, and errors are those of unseen points."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import pytest

from calibration.fitting.step_model import StepSample, fit_step_law, hold_out_by_kind, hold_out_error
from calibration.silicon_tables import tables as catalog_build
from calibration.silicon_tables.cases import COLUMNS, TableCase, hf_config, read_cases, spelled_case
from calibration.silicon_tables.grid import BATCHES, CONTEXTS, grid
from calibration.silicon_tables.tables import CASES, build_catalog, open_tables, silicon_profile
from rlsim.core.errors import ParameterError
from rlsim.costs import catalogue
from rlsim.costs.architecture import Architecture
from rlsim.costs.evidence import Provenance
from rlsim.costs.profile import Profile, catalog_folder, load_profile
from rlsim.costs.step_model import StepTimeModel
from rlsim.engine.steptime import attention_pairs

HERE = Provenance("fitted", "a law made up for the test")
TRUTH = StepTimeModel(
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
    assert TableCase("Llama-3.1-8B", "H100-SXM").name == "llama-3.1-8b_h100-sxm_tp1"
    assert TableCase("Qwen3-30B-A3B", "H200-SXM", 4, 2).name == "qwen3-30b-a3b_h200-sxm_tp4_ep2"


def test_experts_are_spread_over_groups_and_cut_within_them() -> None:
    assert TableCase("Qwen3-30B-A3B", "B200", 8, 2).sharding == {"tp_size": 8, "moe_tp_size": 4, "moe_ep_size": 2}
    with pytest.raises(ParameterError, match=r"ep: found 3; allowed: a divisor of tp \(8\)"):
        TableCase("Qwen3-30B-A3B", "B200", 8, 3)


def test_the_version_of_the_engine_is_what_the_tables_have_for_the_device() -> None:
    assert TableCase("Qwen3-8B", "A100-SXM-80GB").backend_version == "0.14.0"
    assert TableCase("Qwen3-8B", "B200").backend_version == "0.24.0"
    assert TableCase("Qwen3-8B", "B200", version="0.30.0").backend_version == "0.30.0"


def test_a_device_without_tables_is_refused_with_those_that_have_some() -> None:
    with pytest.raises(ParameterError, match="did you mean 'H200-SXM'"):
        TableCase("Qwen3-8B", "H200-SXM5")


def test_names_are_spelled_as_in_our_catalogue() -> None:
    assert spelled_case("qwen/qwen3-8b", "h100-sxm", 2) == TableCase("Qwen3-8B", "H100-SXM", 2)
    with pytest.raises(ParameterError, match="did you mean 'Qwen3-8B'"):
        spelled_case("Qwen3-8", "H100-SXM", 1)


def test_a_model_that_the_tables_do_not_bundle_comes_from_our_catalogue() -> None:
    with TableCase("Qwen2.5-7B", "H100-SXM").model_id() as folder:
        written = Architecture.from_hf_config(folder)
    known = catalogue.model("Qwen2.5-7B")
    assert replace(written, name=known.name) == known
    assert not Path(folder).exists()


def test_a_mixture_of_experts_that_they_do_not_bundle_is_refused() -> None:
    monster = TableCase("Qwen3-8B", "H100-SXM")
    assert hf_config(monster.model)["num_hidden_layers"] == 36
    with pytest.raises(ParameterError, match=r"a dense model, .* or a folder with a config\.json"):
        hf_config("DeepSeek-V3")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("model,device\nQwen3-8B,B200\n", "the columns model, device, tensor_parallel"),
        (f"{','.join(COLUMNS)}\nQwen3-8B,B200,two,1,vllm\n", r"cases\.csv:2: .*two"),
        (f"{','.join(COLUMNS)}\nQwen3-8B,B300,2,1,vllm\n", r"cases\.csv:2: .*B300"),
        (f"{','.join(COLUMNS)}\nQwen3-8B,B200,2\n", r"cases\.csv:2"),
    ],
)
def test_a_faulty_list_of_cases_is_refused_with_its_line(tmp_path: Path, text: str, fault: str) -> None:
    file = tmp_path / "cases.csv"
    file.write_text(text)
    with pytest.raises(ParameterError, match=fault):
        read_cases(file)


def test_a_build_that_was_interrupted_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = read_cases(catalog_folder() / CASES)[:3]
    asked: list[str] = []

    def made(case: TableCase, date: str) -> Profile:
        if len(asked) == 2:
            raise KeyboardInterrupt
        asked.append(case.name)
        return load_profile(case.name)

    monkeypatch.setattr(catalog_build, "silicon_profile", made)
    monkeypatch.setattr(catalog_build, "libraries", shipped_libraries)
    with pytest.raises(KeyboardInterrupt):
        build_catalog(cases, tmp_path, "", done=lambda _: None)
    (tmp_path / f"{cases[1].name}.json").write_text("{")
    asked.clear()
    written = build_catalog(cases, tmp_path, "", done=lambda _: None)
    assert asked == [cases[1].name, cases[2].name]
    assert [file.name for file in written] == [f"{name}.json" for name in asked]
    assert load_profile(tmp_path / f"{cases[0].name}.json") == load_profile(cases[0].name)


def shipped_libraries(case: TableCase) -> dict[str, str]:
    return {"aiconfigurator-core": "0.12.0", case.backend: case.backend_version}


TABLES_INSTALLED = importlib.util.find_spec("aiconfigurator_core") is not None


@pytest.mark.skipif(TABLES_INSTALLED, reason="the tables are installed")
def test_without_the_tables_the_error_names_the_extra() -> None:
    with pytest.raises(ParameterError, match=r"rlsim\[tables\]"):
        silicon_profile(TableCase("Qwen3-8B", "H100-SXM"))


@pytest.mark.skipif(not TABLES_INSTALLED, reason="needs the tables extra")
@pytest.mark.parametrize("name", ["qwen3-8b_h100-sxm_tp1", "qwen3-14b_a100-sxm-80gb_tp2", "qwen3-30b-a3b_b200_tp2_ep2"])
def test_the_tables_give_the_shipped_profile_again(name: str) -> None:
    case = next(case for case in read_cases(catalog_folder() / CASES) if case.name == name)
    shipped = load_profile(name)
    made = silicon_profile(case, shipped.provenance.date)
    assert made.step is not None
    assert shipped.step is not None
    assert made.law.dense_seconds == pytest.approx(shipped.law.dense_seconds, rel=1e-3)
    assert made.law.kv_seconds_per_token == pytest.approx(shipped.law.kv_seconds_per_token, rel=1e-3, abs=1e-10)
    assert made.hold_out_by_kind["decode"].p95 == pytest.approx(shipped.hold_out_by_kind["decode"].p95, abs=1e-3)
    assert made.step.held_out_points == shipped.step.held_out_points
    assert made.step.evidence.libraries == shipped.step.evidence.libraries


@pytest.mark.skipif(not TABLES_INSTALLED, reason="needs the tables extra")
def test_the_config_from_our_catalogue_is_priced_as_the_bundled_one(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(hf_config("Qwen3-8B")))
    ours = open_tables(TableCase("Qwen3-8B", "H200-SXM"), str(tmp_path))
    bundled = open_tables(TableCase("Qwen3-8B", "H200-SXM"), "Qwen/Qwen3-8B")
    assert ours.decode_step_latency(64, 2046, 2) == bundled.decode_step_latency(64, 2046, 2)


@pytest.mark.skipif(not TABLES_INSTALLED, reason="needs the tables extra")
def test_a_model_that_does_not_fit_is_not_covered() -> None:
    with pytest.raises(ParameterError, match="a configuration that the tables cover"):
        silicon_profile(TableCase("DeepSeek-V3", "H100-SXM", 8, 8))
