"""Profiles on disk: the shipped ones, the round trip and faults that name the key."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlsim.core.errors import ParameterError
from rlsim.costs.evidence import Coefficient, Evidence, HoldOutError, Provenance, Sampled
from rlsim.costs.profile import Profile, list_profiles, load_profile
from rlsim.costs.sections import StepModelIntervals, TrainingFit, TransportPath

SHIPPED = [
    "llama-3.1-8b_h100-sxm_tp1",
    "qwen3-30b-a3b_h100-sxm_tp2_ep2",
    "qwen3-32b_h100-sxm_tp2",
    "qwen3-32b_h100-sxm_tp4",
    "qwen3-8b_h100-sxm_tp1",
]
DECODE_MILLISECONDS = {
    "llama-3.1-8b_h100-sxm_tp1": 12.6,
    "qwen3-8b_h100-sxm_tp1": 13.4,
    "qwen3-32b_h100-sxm_tp2": 21.6,
    "qwen3-30b-a3b_h100-sxm_tp2_ep2": 15.4,
}
"""aiconfigurator-core 0.12, vLLM 0.24.0: 64 decodes at 2048 tokens each."""
PREFILL_MILLISECONDS = {
    "llama-3.1-8b_h100-sxm_tp1": 43.5,
    "qwen3-8b_h100-sxm_tp1": 44.5,
    "qwen3-32b_h100-sxm_tp2": 107.0,
    "qwen3-30b-a3b_h100-sxm_tp2_ep2": 33.9,
}
"""The same tables: one prompt of 2048 tokens."""


@pytest.fixture
def tree() -> dict[str, Any]:
    return load_profile("qwen3-8b_h100-sxm_tp1").as_dict()


def load(tmp_path: Path, tree: dict[str, Any]) -> Profile:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(tree))
    return load_profile(file)


def test_the_catalog_ships_its_profiles() -> None:
    assert set(SHIPPED) <= set(list_profiles())


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_profile_says_where_it_comes_from_and_how_far_it_is_off(name: str) -> None:
    profile = load_profile(name)
    assert profile.name == name
    assert profile.provenance.kind == "silicon-table"
    assert "Apache-2.0" in profile.provenance.licence
    assert "uniform batches" in profile.notes
    assert profile.hold_out_by_kind["decode"].median < 0.02
    assert profile.hold_out_by_kind["decode"].p95 < 0.06
    assert profile.hold_out_by_kind["prefill"].median < 0.05
    assert profile.hold_out_by_kind["mixed"].median < 0.03


@pytest.mark.parametrize(("name", "milliseconds"), DECODE_MILLISECONDS.items())
def test_decode_is_that_of_the_tables(name: str, milliseconds: float) -> None:
    seconds = load_profile(name).law.decode_seconds(64, 64 * 2048)
    assert seconds * 1e3 == pytest.approx(milliseconds, rel=0.03)


@pytest.mark.parametrize(("name", "milliseconds"), PREFILL_MILLISECONDS.items())
def test_prefill_is_that_of_the_tables(name: str, milliseconds: float) -> None:
    seconds = load_profile(name).law.mixed_seconds(0, 0, 1, 2048, 2048 * 2049 / 2)
    assert seconds * 1e3 == pytest.approx(milliseconds, rel=0.05)


def test_a_profile_survives_its_file(tmp_path: Path) -> None:
    profile = load_profile("qwen3-32b_h100-sxm_tp2")
    profile.write(tmp_path / "copy.json")
    assert load_profile(tmp_path / "copy.json") == profile
    assert [entry.name for entry in tmp_path.iterdir()] == ["copy.json"]


def test_mismatches_name_what_differs() -> None:
    profile = load_profile("qwen3-8b_h100-sxm_tp1")
    assert profile.mismatches("Qwen3-8B", "H100-SXM", 1) == []
    assert profile.mismatches("Qwen3-8B", "H200-SXM", 2) == [
        "device H100-SXM is not H200-SXM",
        "tensor_parallel 1 is not 2",
    ]


def test_an_unknown_name_gets_the_nearest_spelling() -> None:
    with pytest.raises(ParameterError, match="did you mean 'qwen3-8b_h100-sxm_tp1'"):
        load_profile("qwen3-8b_h100_tp1")


@pytest.mark.parametrize("key", ["schema_version", "name", "device", "tensor_parallel"])
def test_a_missing_key_is_named(tmp_path: Path, tree: dict[str, Any], key: str) -> None:
    del tree[key]
    with pytest.raises(ParameterError, match=f"{key}: missing"):
        load(tmp_path, tree)


@pytest.mark.parametrize("key", ["law", "evidence"])
def test_a_missing_key_of_the_step_is_named(tmp_path: Path, tree: dict[str, Any], key: str) -> None:
    del tree["step"][key]
    with pytest.raises(ParameterError, match=f"step: {key}: missing"):
        load(tmp_path, tree)


@pytest.mark.parametrize(
    ("outer", "key", "value"),
    [
        ("law", "dense_seconds", [float("nan")]),
        ("law", "dense_seconds", "fast"),
        ("law", "pair_seconds", -1e-9),
        ("law", "tokens", [3, 2, 1]),
        ("law", "scale", 1.0),
        ("held_out_points", "seconds", [1.0]),
        ("held_out_points", "seconds", None),
        ("evidence", "noise_floor", {"decode": -0.1}),
        ("evidence", "libraries", {"vllm": 24}),
    ],
)
def test_an_impossible_value_of_the_step_is_named(
    tmp_path: Path, tree: dict[str, Any], outer: str, key: str, value: object
) -> None:
    tree["step"][outer][key] = value
    with pytest.raises(ParameterError, match=rf"^rollout\.step_time\.profile: .*({key}|{outer})"):
        load(tmp_path, tree)


@pytest.mark.parametrize(
    ("outer", "key", "value"),
    [
        ("hold_out", "median", None),
        ("provenance", "kind", "guessed"),
        ("sampled", "decode", {"fitted": -1, "held_out": 2}),
        ("sampled", "decode", {"fitted": 1, "held_out": 2, "ranges": {"decodes": [2, 1]}}),
    ],
)
def test_an_impossible_value_of_the_evidence_is_named(
    tmp_path: Path, tree: dict[str, Any], outer: str, key: str, value: object
) -> None:
    tree["step"]["evidence"][outer][key] = value
    with pytest.raises(ParameterError, match=rf"^rollout\.step_time\.profile: .*evidence: {outer}: {key}"):
        load(tmp_path, tree)


@pytest.mark.parametrize("version", [1, 3])
def test_another_schema_version_is_refused_and_says_what_to_do(
    tmp_path: Path, tree: dict[str, Any], version: int
) -> None:
    with pytest.raises(ParameterError, match=f"schema_version: {version}.*make the profile again"):
        load(tmp_path, tree | {"schema_version": version})


def test_the_knobs_of_a_profile_and_those_of_the_scenario_compound() -> None:
    profile = load_profile("qwen3-8b_h100-sxm_tp1")
    fitted = profile.law.decode_seconds(32, 32_000)
    knobs = replace(profile, scale=1.2, offset_seconds=1e-3)
    assert knobs.law.decode_seconds(32, 32_000) == pytest.approx(1.2 * fitted + 1e-3)
    in_scenario = knobs.law.calibrated(2.0, 5e-4)
    assert in_scenario.decode_seconds(32, 32_000) == pytest.approx(2.0 * (1.2 * fitted + 1e-3) + 5e-4)


@pytest.mark.parametrize(("knob", "value"), [("scale", 0.0), ("offset_seconds", -1e-3)])
def test_an_impossible_knob_is_named(tmp_path: Path, tree: dict[str, Any], knob: str, value: float) -> None:
    with pytest.raises(ParameterError, match=f"{knob}: "):
        load(tmp_path, tree | {knob: value})


def test_a_law_that_was_stretched_already_is_no_fit() -> None:
    step = load_profile("qwen3-8b_h100-sxm_tp1").step
    assert step is not None
    with pytest.raises(ParameterError, match=r"step\.law: .*knobs of the whole profile"):
        replace(step, law=step.law.calibrated(1.1))


EVIDENCE = Evidence(
    Provenance("measured", "a test", "2026-11-29"),
    HoldOutError(0.01, 0.02, 0.03, "somewhere", 7),
    sampled={"forward": Sampled(10, 5, {"tokens": (128.0, 4096.0)})},
    noise_floor={"forward": 0.04},
    driver="CUDA 13.0",
)


def test_sections_of_other_calibrations_survive_the_file(tmp_path: Path) -> None:
    speed = Coefficient(1.2e10, "bytes/s", 1.1e10, 1.3e10, samples=30)
    path = TransportPath(Coefficient(1e-3, "s"), speed, 2, EVIDENCE)
    profile = replace(
        load_profile("qwen3-8b_h100-sxm_tp1"),
        training=TrainingFit(
            {"forward_seconds_per_token": Coefficient(1e-6, "s/token")}, EVIDENCE, {"data_parallel": 2}
        ),
        transport={"shared-memory": path},
        engine_times={"startup_seconds": Coefficient(31.0, "s", 30.0, 33.0)},
    )
    profile.write(tmp_path / "all.json")
    assert load_profile(tmp_path / "all.json") == profile
    assert set(profile.evidences) == {"step", "training", "transport.shared-memory"}


def test_a_profile_of_the_trainer_alone_has_no_law(tmp_path: Path) -> None:
    profile = replace(load_profile("qwen3-8b_h100-sxm_tp1"), step=None, training=TrainingFit({}, EVIDENCE))
    profile.write(tmp_path / "trainer.json")
    with pytest.raises(ParameterError, match="a profile with a step section"):
        _ = load_profile(tmp_path / "trainer.json").law


def test_an_unknown_engine_time_is_refused(tmp_path: Path, tree: dict[str, Any]) -> None:
    tree["engine_times"] = {"boot_seconds": {"value": 1.0, "unit": "s"}}
    with pytest.raises(ParameterError, match=r"startup_seconds.*found 'boot_seconds'"):
        load(tmp_path, tree)


def test_intervals_have_a_low_and_a_high_at_every_knot() -> None:
    step = load_profile("qwen3-8b_h100-sxm_tp1").step
    assert step is not None
    ends = {"pair_seconds": (step.law.pair_seconds,), "dense_seconds": step.law.dense_seconds}
    assert replace(step, intervals=StepModelIntervals(0.95, "bootstrap", ends, ends)).intervals is not None
    with pytest.raises(ParameterError, match=r"intervals\.pair_seconds"):
        replace(step, intervals=StepModelIntervals(0.95, "bootstrap", ends, ends | {"pair_seconds": ()}))
    with pytest.raises(ParameterError, match="coefficients of the law"):
        replace(step, intervals=StepModelIntervals(0.95, "bootstrap", {"scale": (1.0,)}, {"scale": (1.0,)}))


def test_a_coefficient_lies_within_its_interval() -> None:
    with pytest.raises(ParameterError, match="within its interval"):
        Coefficient(2.0, "s", 0.5, 1.5)
    with pytest.raises(ParameterError, match="both ends"):
        Coefficient(2.0, "s", low=0.5)


def test_a_file_beyond_the_size_limit_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "huge.json"
    file.write_bytes(b" " * 5_000_001)
    with pytest.raises(ParameterError, match="at most 5000000 bytes"):
        load_profile(file)
