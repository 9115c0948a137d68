"""The verdict on a profile is that of its worst kind, and says why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from calibration.profiles.quality import profile_quality
from rlsim.costs.evidence import Evidence, HoldOutError, Kind, Provenance
from rlsim.costs.profile import Profile, load_profile
from rlsim.costs.sections import TrainingFit

BASE = load_profile("qwen3-8b_h100-sxm_tp1")


def profile(
    median: float, p95: float, points: int = 50, floor: float = 0.0, kind: Kind = "measured", of: str = "prefill"
) -> Profile:
    assert BASE.step is not None
    exact = HoldOutError(0.001, 0.002, 0.003, "here", 50)
    by_kind = {"decode": exact, of: HoldOutError(median, p95, p95, "there", points)}
    known = {"noise_floor": {of: floor}} if floor else {}
    evidence = Evidence(Provenance(kind, "a test"), exact, by_kind, **known)  # type: ignore[arg-type]
    return replace(BASE, step=replace(BASE.step, evidence=evidence))


@pytest.mark.parametrize(
    ("median", "p95", "level"),
    [
        (0.02, 0.08, "good"),
        (0.04, 0.08, "usable"),
        (0.02, 0.12, "usable"),
        (0.12, 0.15, "poor"),
        (0.05, 0.35, "poor"),
    ],
)
def test_the_worst_kind_decides_and_is_named(median: float, p95: float, level: str) -> None:
    found = profile_quality(profile(median, p95))
    assert found.level == level
    assert ("prefill is off by" in found.reason) == (level != "good")


def test_errors_within_the_noise_of_repeats_are_good() -> None:
    assert profile_quality(profile(0.06, 0.15)).level == "usable"
    assert profile_quality(profile(0.06, 0.15, floor=0.07)).level == "good"
    assert "repeats differ by 7.0%" in profile_quality(profile(0.2, 0.5, floor=0.07)).reason


def test_a_good_figure_from_few_points_is_only_usable() -> None:
    assert str(profile_quality(profile(0.01, 0.02, points=4))) == "usable: prefill has only 4 held-out points"


def test_an_estimate_is_never_good() -> None:
    assert str(profile_quality(profile(0.01, 0.02, kind="estimate"))) == (
        "usable: decode is an estimate, not a measurement"
    )


def test_a_bad_trainer_spoils_a_good_engine() -> None:
    bad = Evidence(Provenance("measured", "a test"), HoldOutError(0.5, 0.9, 0.9, "there", 50))
    found = profile_quality(replace(profile(0.01, 0.02), training=TrainingFit({}, bad)))
    assert str(found).startswith("poor: training: all is off by 50.0%")


def test_a_profile_without_a_fit_is_poor() -> None:
    assert profile_quality(replace(BASE, step=None)).level == "poor"
