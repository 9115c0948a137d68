"""The verdict beside what-ifs: the resource that it names is the one whose cost, halved, speeds the run up most."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from rlsim.resolve import resolve
from rlsim.results.bottleneck import verdict
from rlsim.results.metrics import metrics
from rlsim.scenario.schema import Scenario
from rlsim.sim.simulation import simulate

HALVED: dict[str, dict[str, float]] = {
    "Generation": {
        f"rollout.step_time.{key}": 0.5
        for key in ("base_seconds", "per_sequence_seconds", "per_kv_token_seconds", "per_prefill_token_seconds")
    },
    "Trainer": {"trainer.mfu": 2},
    "Overhead": {"trainer.fixed_seconds_per_step": 0.5},
    "Sync": {"sync.base_seconds": 0.5},
    "Reward": {"workload.reward.latency_seconds": 0.5},
    "Tool": {"workload.turns.tool_latency_seconds": 0.5},
}


def tree(preset: str, gpus: int, **changes: Any) -> dict[str, Any]:
    step_time = {"base_seconds": 0.01, "per_sequence_seconds": 1e-4, "per_kv_token_seconds": 1e-8}
    made: dict[str, Any] = {
        "name": "what holds it back",
        "model": "Qwen3-0.6B",
        "cluster": {"device": "H100-SXM", "gpus": gpus},
        "rollout": {
            "gpus": 4,
            "max_num_seqs": 32,
            "kv_blocks": 4000,
            "max_model_len": 4096,
            "step_time": {"source": "coefficients", "per_prefill_token_seconds": 1e-5, **step_time},
        },
        "trainer": {"gpus": 4, "mfu": 0.4, "fixed_seconds_per_step": 0.5},
        "sync": {"base_seconds": 0.2},
        "workload": {
            "prompts_per_step": 16,
            "group_size": 8,
            "prompt_tokens": 100,
            "response_tokens": {"law": "lognormal", "mean_tokens": 400, "sigma": 0.6, "cap_tokens": 2000},
        },
        "policy": {"preset": preset},
        "run": {"steps": 6, "warmup_steps": 2, "replications": 1},
    }
    for path, value in changes.items():
        put(made, path.replace("__", "."), value)
    return made


def put(made: dict[str, Any], path: str, value: Any) -> None:
    *above, last = path.split(".")
    for key in above:
        made = made.setdefault(key, {})
    made[last] = value


def value_at(made: dict[str, Any], path: str) -> Any:
    node: Any = made
    for key in path.split("."):
        node = node[key]
    return node


def ran(made: dict[str, Any]) -> tuple[float, str]:
    run = simulate(resolve(Scenario.model_validate(made)))
    found = metrics(run)
    return found.step_seconds, verdict(found, run.plan)


def gains(made: dict[str, Any], step_seconds: float) -> dict[str, float]:
    """Speed-up by each resource of the scenario with its cost halved."""
    found = {}
    for name, factors in HALVED.items():
        other = deepcopy(made)
        try:
            for path, factor in factors.items():
                put(other, path, value_at(made, path) * factor)
        except KeyError:
            continue
        found[name] = step_seconds / ran(other)[0]
    return found


SCORERS = {"latency_seconds": 10, "workers": 8}
TOOLS = {"count": 3, "tool_latency_seconds": 30, "tool_output_tokens": 20}


@pytest.mark.parametrize(
    ("preset", "gpus", "changes"),
    [
        ("verl-fully-async", 8, {"workload__reward": SCORERS}),
        ("pipelinerl", 8, {"workload__reward": SCORERS}),
        ("sync-colocated", 4, {"workload__reward": SCORERS}),
        ("areal", 8, {"trainer__fixed_seconds_per_step": 40.0}),
        ("nemo-rl-async", 8, {"trainer__mfu": 0.002}),
        ("verl-one-step-off", 8, {"sync__base_seconds": 40.0}),
        ("verl-sync", 4, {"workload__turns": TOOLS}),
        ("verl-fully-async", 8, {}),
    ],
)
def test_the_cause_that_is_named_is_the_one_whose_cost_counts(preset: str, gpus: int, changes: dict[str, Any]) -> None:
    made = tree(preset, gpus, **changes)
    step_seconds, told = ran(made)
    found = gains(made, step_seconds)
    named = found[told.split("-bound")[0]]
    assert named >= max(found.values()) * 0.98, (told, found)
    assert named > 1.2


@pytest.mark.parametrize("preset", ["pipelinerl", "verl-one-step-off"])
def test_environments_that_are_too_few_are_named_where_faster_tools_help(preset: str) -> None:
    tools = {"count": 3, "tool_latency_seconds": 10, "tool_output_tokens": 20, "environments": 8}
    made = tree(preset, 8, workload__turns=tools)
    step_seconds, told = ran(made)
    found = gains(made, step_seconds)
    assert told.startswith("Tool-bound"), (told, found)
    assert found["Tool"] >= max(found.values()) * 0.98
    assert found["Tool"] > 1.2


def test_a_cache_that_is_too_small_is_named_where_more_of_it_helps() -> None:
    short = tree("pipelinerl", 8, rollout__kv_blocks=300)
    step_seconds, told = ran(short)
    assert told.startswith("KV-bound: requests wait for KV blocks")
    assert step_seconds / ran(tree("pipelinerl", 8, rollout__kv_blocks=600))[0] > 1.2


def test_resets_by_weight_updates_are_no_preemptions() -> None:
    changes = {"policy__max_head_offpolicyness": 2, "workload__response_tokens__mean_tokens": 1500}
    run = simulate(resolve(Scenario.model_validate(tree("areal", 8, **changes))))
    found = metrics(run)
    assert found.resets_per_step > 0 == found.preemptions_per_step
    assert found.recomputed_share > 0 == found.kv_wait_share
    assert not verdict(found, run.plan).startswith("KV-bound")
