"""Profiles on disk: the shipped ones, the round trip and faults that name the key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlsim.core.errors import ParameterError
from rlsim.costs.profile import Profile, list_profiles, load_profile

SHIPPED = [
    "llama-3.1-8b_h100-sxm_tp1",
    "qwen3-30b-a3b_h100-sxm_tp2",
    "qwen3-32b_h100-sxm_tp2",
    "qwen3-32b_h100-sxm_tp4",
    "qwen3-8b_h100-sxm_tp1",
]
DECODE_MILLISECONDS = {
    "llama-3.1-8b_h100-sxm_tp1": 12.6,
    "qwen3-8b_h100-sxm_tp1": 13.4,
    "qwen3-32b_h100-sxm_tp2": 21.6,
    "qwen3-30b-a3b_h100-sxm_tp2": 15.4,
}
"""aiconfigurator-core 0.12, vLLM 0.24.0: 64 decodes at 2048 tokens each."""
PREFILL_MILLISECONDS = {
    "llama-3.1-8b_h100-sxm_tp1": 43.5,
    "qwen3-8b_h100-sxm_tp1": 44.5,
    "qwen3-32b_h100-sxm_tp2": 107.0,
    "qwen3-30b-a3b_h100-sxm_tp2": 33.9,
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


@pytest.mark.parametrize("key", ["schema_version", "name", "device", "tensor_parallel", "law", "hold_out"])
def test_a_missing_key_is_named(tmp_path: Path, tree: dict[str, Any], key: str) -> None:
    del tree[key]
    with pytest.raises(ParameterError, match=f"{key}: missing"):
        load(tmp_path, tree)


@pytest.mark.parametrize(
    ("outer", "key", "value"),
    [
        ("law", "dense_seconds", [float("nan")]),
        ("law", "dense_seconds", "fast"),
        ("law", "pair_seconds", -1e-9),
        ("law", "tokens", [3, 2, 1]),
        ("law", "scale", 0),
        ("hold_out", "median", None),
        ("provenance", "kind", "guessed"),
    ],
)
def test_an_impossible_value_is_named(
    tmp_path: Path, tree: dict[str, Any], outer: str, key: str, value: object
) -> None:
    tree[outer][key] = value
    with pytest.raises(ParameterError, match=rf"^rollout\.step_time\.profile: .*{key}"):
        load(tmp_path, tree)


def test_another_schema_version_is_refused(tmp_path: Path, tree: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match="schema_version: 2"):
        load(tmp_path, tree | {"schema_version": 2})


def test_a_file_beyond_the_size_limit_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "huge.json"
    file.write_bytes(b" " * 5_000_001)
    with pytest.raises(ParameterError, match="at most 5000000 bytes"):
        load_profile(file)
