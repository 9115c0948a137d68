"""The profile of an engine whose step law was fitted to a log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rlsim.costs.evidence import Evidence, HoldOutError
from rlsim.costs.profile import Profile
from rlsim.costs.sections import StepFit
from rlsim.costs.step_model import StepTimeModel
from rlsim.scenario.schema import Scenario

PROFILE = "profile.json"
"""Beside the scenario that names it."""


def profile_source(noise_cv: float) -> dict[str, object]:
    """The ``rollout.step_time`` of a scenario that takes its steps from ``PROFILE``."""
    return {"source": "profile", "profile": f"./{PROFILE}", "noise_cv": noise_cv}


def log_profile(
    scenario: Scenario,
    device: str,
    law: StepTimeModel,
    hold_out: HoldOutError,
    by_kind: Mapping[str, HoldOutError],
    source: str,
    method: str,
    engine: str,
    engine_version: str = "not in the log",
    kv_capacity_tokens: int | None = None,
    notes: str = "",
) -> Profile:
    """``law`` with its scale and offset as the profile's knobs; ``source`` says which kind of log it is from."""
    rollout = scenario.rollout
    bare = replace(law, scale=1.0, offset_seconds=0.0)
    evidence = Evidence(law.provenance, hold_out, by_kind, method={"step": method}, command="rlsim calibrate logs")
    return Profile(
        name=f"{scenario.model}_{device}_tp{rollout.tensor_parallel}_{source}".lower().replace(" ", "-"),
        model=scenario.model,
        device=device,
        tensor_parallel=rollout.tensor_parallel,
        expert_parallel=rollout.expert_parallel,
        engine=engine,
        engine_version=engine_version,
        step=StepFit(bare, evidence),
        scale=law.scale,
        offset_seconds=law.offset_seconds,
        kv_capacity_tokens=kv_capacity_tokens,
        notes=notes,
    )
