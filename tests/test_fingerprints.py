"""What users see is what the file of fingerprints says; all of it: ``python -m evidence.fingerprints``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # A folder beside the packages, installed with neither.

from evidence.fingerprints import computed, differences, kept
from evidence.subject import parts, presets, profiles

SOME = (
    "preset/areal/",
    "preset/sync-colocated/",
    "preset/verl-fully-async/",
    "allocation/dapo/",
    "dispatch/prefill-decode/",
    "profile/qwen3-8b_h100-sxm_tp1/",
    "scenario/quickstart/",
    "command/compare-json/",
)


def test_every_preset_part_and_profile_has_its_fingerprints() -> None:
    names = kept().keys()
    assert {f"preset/{name}/{what}" for name in presets() for what in ("decisions", "metrics", "live")} <= names
    ran = {tuple(name.split("/")[:2]) for name in names if name.endswith("/decisions")}
    assert {(choice, part) for choice, found in parts().items() for part in found} <= ran
    assert {f"profile/{name}/steps" for name in profiles()} <= names


def test_no_live_run_of_fake_engines_decided_otherwise_than_its_simulation() -> None:
    told = {name: found for name, found in kept().items() if name.endswith("/live-and-simulation")}
    assert set(told.values()) <= {"equal", "refused"}
    assert sum(found == "equal" for found in told.values()) > 0.9 * len(told)


@pytest.mark.parametrize("prefix", SOME)
def test_some_fingerprints_are_those_of_the_file(prefix: str) -> None:
    before = {name: found for name, found in kept().items() if name.startswith(prefix)}
    assert before
    assert not any(differences(before, computed([prefix], workers=1)).values())
