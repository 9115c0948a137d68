"""Profiles as text: everything a reader needs to trust one is said."""

from __future__ import annotations

import json
from dataclasses import replace

from calibration.profiles.text import listing, listing_json, shown, shown_json
from rlsim.costs.evidence import Coefficient, Evidence, HoldOutError, Provenance
from rlsim.costs.profile import load_profile
from rlsim.costs.sections import StepModelIntervals, TrainingFit, TransportPath

PROFILE = load_profile("qwen3-30b-a3b_h200-sxm_tp4_ep4")
EVIDENCE = Evidence(
    Provenance("measured", "a test", "2026-11-29"),
    HoldOutError(0.01, 0.02, 0.03, "somewhere", 40),
    {"forward": HoldOutError(0.01, 0.02, 0.03, "4096 tokens", 40)},
    noise_floor={"forward": 0.015},
    driver="570.86, CUDA 12.8",
)


def test_a_listed_profile_has_its_errors_by_kind_on_one_line() -> None:
    text = listing([PROFILE])
    (line,) = [line for line in text.splitlines() if line.startswith(PROFILE.name)]
    decode = PROFILE.hold_out_by_kind["decode"]
    assert f"{decode.median:.1%} / {decode.p95:.1%}" in line
    assert line.endswith("good")
    assert "1 profiles: 1 good, 0 usable, 0 poor. 0 miss a bar of the tables." in text
    assert "5 to 10 % from end-to-end measurements" in text


def test_a_profile_of_the_trainer_alone_is_listed_without_step_errors() -> None:
    trainer = replace(PROFILE, name="mine", step=None, training=TrainingFit({}, EVIDENCE))
    line = listing([trainer]).splitlines()[1]
    assert line.split()[-5:] == ["measured", "-", "-", "-", "good"]


def test_the_list_as_json_can_be_read_back() -> None:
    (record,) = json.loads(listing_json([PROFILE]))
    assert record["device"] == "H200-SXM"
    assert record["hold_out_by_kind"]["prefill"]["points"] > 100
    assert record["verdict"]["level"] == "good"


def test_a_shown_profile_says_where_it_comes_from_and_where_it_extrapolates() -> None:
    text = shown(PROFILE)
    assert "verdict: good: every kind within 3% (median)" in text
    assert "made by: rlsim calibrate tables --model Qwen3-30B-A3B --device H200-SXM --tp 4 --ep 4" in text
    assert "licence: Apache-2.0" in text
    assert "libraries: aiconfigurator-core 0.12.0, vllm 0.24.0" in text
    assert "decodes 1 to 1024, context_tokens 64 to 65536; it extrapolates beyond" in text
    assert "confidence intervals: none" in text
    assert "step time = 1 * fitted step + 0 ms" in text


def test_knobs_intervals_and_the_sections_of_other_calibrations_are_shown() -> None:
    assert PROFILE.step is not None
    pair = PROFILE.step.law.pair_seconds
    ends = StepModelIntervals(0.95, "bootstrap", {"pair_seconds": (0.9 * pair,)}, {"pair_seconds": (1.2 * pair,)})
    speed = Coefficient(1.2e10, "bytes/s", 1.1e10, 1.3e10)
    full = replace(
        PROFILE,
        scale=1.1,
        offset_seconds=5e-4,
        step=replace(PROFILE.step, intervals=ends),
        training=TrainingFit({"forward_seconds_per_token": Coefficient(1e-6, "s/token")}, EVIDENCE),
        transport={"shared-memory": TransportPath(Coefficient(1e-3, "s"), speed, 2, EVIDENCE)},
        engine_times={"startup_seconds": Coefficient(31.0, "s", 30.0, 33.0)},
    )
    text = shown(full)
    assert "step time = 1.1 * fitted step + 0.5 ms" in text
    assert "pair_seconds: 95% interval (bootstrap) at most 20.0% wide" in text
    assert "forward_seconds_per_token: 1e-06 s/token" in text
    assert "shared-memory: 0.001 s + bytes / (1.2e+10 [1.1e+10, 1.3e+10] bytes/s), 2 ranks" in text
    assert "startup_seconds: 31 [30, 33] s" in text
    assert "noise floor: repeats differ by 1.5%" in text
    assert "driver: 570.86, CUDA 12.8" in text


def test_a_shown_profile_as_json_is_the_file_and_the_verdict() -> None:
    tree = json.loads(shown_json(PROFILE))
    assert tree.pop("verdict")["level"] == "good"
    assert tree == json.loads(json.dumps(PROFILE.as_dict()))
