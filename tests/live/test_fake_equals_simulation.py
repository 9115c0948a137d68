"""One policy, two worlds: the live executor with fake engines gives a policy the world that the simulator gives it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from allocation_parts import PARTS
from controller_parts import STRATEGIES, WATCHING
from fake_runs import lived
from policy_runs import AGENTS, POLICIES, scenario

from rlsim.executor.run import FinishedRun
from rlsim.live.backends import Fake
from rlsim.presets import load_preset
from rlsim.resolve import ResolvedScenario, resolve
from rlsim.results.metrics import metrics
from rlsim.sim.simulation import simulate

DRIFT = {"workload__drift": {"growth_per_version": 0.05, "max_factor": 2.0}}
BEGINNINGS: list[dict[str, Any]] = [
    *({"use": use} for use in ("spec-rl", "replay", "popo")),
    {"use": "trace", "roots": 3, "width": 1},
    {"use": "spark", "marks": (2, 12)},
    {"use": "echo", "roots": 1, "marks": (2, 5, 9), "low": 0.5},
]
"""Allocation whose samples begin with tokens of others, or are trained on twice."""
EVERY = pytest.mark.parametrize("preset", POLICIES)


def planned(preset: str, **changes: Any) -> ResolvedScenario:
    return resolve(scenario({"preset": preset, **POLICIES[preset]}, **changes))


@EVERY
@pytest.mark.parametrize("world", [{}, AGENTS, DRIFT], ids=["plain", "agents", "drift"])
def test_every_decision_and_every_outcome_is_that_of_the_simulation(preset: str, world: dict[str, Any]) -> None:
    made = planned(preset, **world)
    simulated, live = simulate(made).log, lived(made)
    assert live.decisions == simulated.decisions
    assert live.final == simulated.final
    assert live.generated_tokens == simulated.generated_tokens
    assert (live.iterations, live.gates, live.end) == (simulated.iterations, simulated.gates, simulated.end)


@pytest.mark.parametrize("preset", ["sync-colocated", "areal", "pipelinerl", "slime-april", "laminar"])
@pytest.mark.parametrize(
    "part", [{"use": part} for part in PARTS] + STRATEGIES + WATCHING, ids=lambda part: part["use"]
)
def test_allocation_meets_the_same_rewards_and_signals(preset: str, part: dict[str, Any]) -> None:
    policy = {"preset": preset, **POLICIES[preset], "parts": {"allocation": part}}
    made = resolve(scenario(policy, learning={}, workload__group_size=4, workload__dataset_prompts=12))
    simulated, live = simulate(made).log, lived(made)
    assert live.decisions == simulated.decisions
    assert live.final == simulated.final
    assert live.progress == simulated.progress
    assert live.odds == simulated.odds


@pytest.mark.parametrize("preset", ["sync-colocated", "areal", "pipelinerl", "slime-april"])
@pytest.mark.parametrize("part", BEGINNINGS, ids=lambda part: str(part["use"]))
def test_forks_drafts_and_replays_are_those_of_the_simulation(preset: str, part: dict[str, Any]) -> None:
    policy = {"preset": preset, **POLICIES[preset], "parts": {"allocation": part}}
    changes = {"learning": {}, "workload__group_size": 4, "workload__dataset_prompts": 4, "run__steps": 6}
    worlds: list[dict[str, Any]] = [{"rollout__enable_prefix_caching": True}]
    if preset != "areal":  # Calls that it cuts end in another order among those that end in one step.
        worlds.append(AGENTS)
    for world in worlds:
        made = resolve(scenario(policy, **changes, **world))
        simulated, live = simulate(made).log, lived(made)
        assert live.decisions == simulated.decisions
        assert live.final == simulated.final
        assert (live.progress, live.check_tokens) == (simulated.progress, simulated.check_tokens)


@EVERY
def test_the_log_tells_the_same_metrics(preset: str) -> None:
    made = planned(preset, **AGENTS)
    live, simulated = metrics(FinishedRun(made, 0, lived(made))).as_dict(), metrics(simulate(made)).as_dict()
    differ = {name for name, value in simulated.items() if live[name] != pytest.approx(value, nan_ok=True)}
    cut_and_resubmitted = load_preset(preset).filled(POLICIES[preset], "policy")["update"].get("mode") == "abort"
    # the simulated engine books a call that a publication restarts as reset; live it is another call
    restarts = {"resets_per_step", "recomputed_share"} if cut_and_resubmitted else set()
    assert differ <= {"events", *restarts}


def test_a_fake_backend_refuses_nothing_and_says_that_it_is_emulated(tmp_path: Path) -> None:
    backend = Fake()
    assert backend.refusals(planned("verl-sync")) == []
    assert backend.emulated
    assert "EMULATED" in backend.label
