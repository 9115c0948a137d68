"""Every token that an engine samples has one outcome, whatever the policy, the workload and the moment the run ends."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_runs import STEP_SECONDS, UNIFORM, commands, ledger_is_closed, planned, ran, spread, turns

from rlsim.core.commands import Train
from rlsim.core.errors import DeadlockError
from rlsim.core.log import RunLog
from rlsim.presets import load_preset, preset_names
from rlsim.sim.simulation import simulate

PARAMETERS: dict[str, list[dict[str, Any]]] = {
    "areal": [{"max_head_offpolicyness": 2, "max_concurrent_rollouts": 9}],
    "copris": [{"partial_rollout_pool_size": 20}],
    "nemo-rl-async": [
        {"in_flight_weight_updates": True},
        {"in_flight_weight_updates": True, "recompute_kv_cache_after_weight_updates": True},
    ],
    "rollpacker": [{"eta_p": 2.0, "eta_r": 2.0}],
    "seer": [{"chunk_tokens": 20, "max_response_tokens": 90}],
    "tailsieve": [{"tail_tokens": 50, "predictor": "oracle"}],
    "prime-rl": [{"max_off_policy_steps": 0, "max_inflight": 9}],
    "miles-fully-async": [
        {"max_weight_staleness": 0, "async_unused_samples_handler": "retry"},
        {"rollout_submission_granularity": "group", "async_max_concurrent_samples": 9},
    ],
    "open-instruct-async": [{"async_steps": 2, "max_result_age_steps": 0}],
    "slime-fully-async": [{"sglang_server_concurrency": 3}],
    "laminar": [{"replica_batch": 3}],
    "asyncflow": [{"staleness_threshold": 3}],
    "pipelinerl": [{"llm_max_rollouts": 12}, {"llm_max_rollouts": 14, "ring_buffer_groups": 4}],
    "slime-april": [
        {"over_sampling_batch_size": 6},
        {"over_sampling_batch_size": 7, "partial_rollout": False},
    ],
}
"""Settings of presets beside their defaults, at which more goes on."""

TOOLS = [
    None,
    turns(spread(1, 3), {"law": "exponential", "mean_seconds": 0.4}, spread(1, 40)),
    turns(2, 0.3, 10, environments=2),
]
FINE_KV = {"kv_blocks": 10, "block_size": 16, "max_model_len": 150}
"""Room for one sequence: several preempt each other."""


@st.composite
def worlds(draw: st.DrawFn) -> dict[str, Any]:
    """A preset in a small world with everything that can happen switched on or off."""
    preset = draw(st.sampled_from(preset_names()))
    parameters = draw(st.sampled_from([{}, *PARAMETERS.get(preset, [])]))
    ranks, replicas = draw(st.sampled_from([(1, 1), (1, 3), (2, 1), (2, 2)]))
    if preset == "tailsieve":
        replicas = max(2, replicas)
    gpus = ranks * replicas
    changes: dict[str, Any] = {
        "seed": draw(st.integers(0, 10_000)),
        "policy": {"preset": preset, **parameters},
        "cluster.gpus": 2 * gpus,
        "rollout.gpus": gpus,
        "rollout.data_parallel": ranks,
        "rollout.max_num_seqs": draw(st.sampled_from([2, 5, 64])),
        "rollout.max_num_batched_tokens": draw(st.sampled_from([64, 8192])),
        "rollout.enable_prefix_caching": draw(st.booleans()),
        "rollout.kv_while_waiting": draw(st.sampled_from(["keep", "drop", "offload"])),
        "rollout.step_time.noise_cv": draw(st.sampled_from([0.0, 0.0, 0.6])),
        "rollout.step_time.per_kv_token_seconds": draw(st.sampled_from([0.0, 1e-6])),
        "trainer.gpus": gpus,
        "sync.scope": draw(st.sampled_from(["global", "per_replica"])),
        "workload.prompts_per_step": draw(st.integers(1, 4)),
        "workload.group_size": draw(st.integers(1, 3)),
        "workload.response_tokens": UNIFORM,
        "workload.turns": draw(st.sampled_from(TOOLS)),
        "workload.reward": draw(st.sampled_from([None, {"latency_seconds": 0.2, "workers": 2}])),
        "workload.drift": draw(st.sampled_from([{}, {"growth_per_version": 0.2, "max_factor": 3.0}])),
        "run.steps": draw(st.integers(1, 5)),
    }
    if preset.startswith(("verl-fully-async", "verl-v1-separate")):
        changes["workload.prompts_per_step"] = 4
    changes |= load_preset(preset).needs
    if preset == "mipu":
        changes["sync.scope"] = "global"
    if "rollout.pools" in changes:
        changes |= {"cluster.gpus": 9, "rollout.data_parallel": 1, "rollout.kv_while_waiting": "keep"}
    if draw(st.booleans()) and preset != "semi-pd":  # Half of the fine KV does not hold a sample.
        changes |= {f"rollout.{key}": value for key, value in FINE_KV.items()}
    if draw(st.integers(0, 4)) == 0:
        changes["run.max_simulated_seconds"] = draw(st.integers(1, 200)) * STEP_SECONDS
    return changes


def trained_samples(log: RunLog) -> list[int]:
    """In the order of training."""
    return [sample for _, made in commands(log) if isinstance(made, Train) for sample in made.samples]


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(worlds())
def test_the_token_ledger_closes_in_every_world(changes: dict[str, Any]) -> None:
    log = simulate(planned(changes)).log
    assert ledger_is_closed(log), Counter(row.outcome for row in log.final)
    assert len({row.sample for row in log.final}) == len(log.final)
    trained = trained_samples(log)
    assert len(trained) == len(set(trained))
    assert {row.sample for row in log.final if row.outcome == "trained"} <= set(trained)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(worlds())
def test_the_same_scenario_and_seed_leave_the_same_log(changes: dict[str, Any]) -> None:
    first, again = (simulate(planned(changes)).log for _ in range(2))
    assert first == again


def test_a_small_cache_does_preempt_in_these_worlds() -> None:
    changes = {f"rollout.{key}": value for key, value in FINE_KV.items()}
    log = ran({**changes, "workload.response_tokens": UNIFORM})
    assert log.preemptions > 0


@pytest.mark.parametrize("steps", [1, 49, 50, 51, 99, 100])
def test_a_run_that_stops_where_calls_end_counts_their_tokens(steps: int) -> None:
    """The calls of the first wave end after 50 steps, the very instant at which the run is stopped."""
    log = ran(
        {
            "policy": {"preset": "pipelinerl", "llm_max_rollouts": 6},
            "rollout.gpus": 2,
            "trainer.gpus": 2,
            "workload.prompts_per_step": 100,
            "run.max_simulated_seconds": steps * STEP_SECONDS,
        }
    )
    assert log.generated_tokens == 12 * steps
    assert not log.iterations


@pytest.mark.parametrize("after", range(1, 30))
def test_a_run_that_stops_while_an_abort_is_under_way_counts_what_was_cut(after: int) -> None:
    """Replicas of unequal load stop for the abort one after another."""
    changes = {
        "policy": {"preset": "slime-april", "over_sampling_batch_size": 7},
        "rollout.gpus": 3,
        "rollout.step_time.per_sequence_seconds": 0.003,
        "trainer.gpus": 3,
        "workload.group_size": 1,
        "workload.response_tokens": spread(20, 90),
        "run.steps": 1,
    }
    ended = next(
        row.now for row in ran(changes).decisions if any(type(made).__name__ == "Abort" for made in row.commands)
    )
    log = ran({**changes, "run.max_simulated_seconds": ended / 1e12 + after * 1e-3})
    assert log.end >= ended


def test_a_run_that_cannot_go_on_says_where_it_stands() -> None:
    """A user's own admission that lets nothing in."""
    made = planned({"policy": {"preset": "sync-disaggregated", "parts": {"admission": {"use": "small_runs:Shut"}}}})
    with pytest.raises(DeadlockError, match="nothing is left to happen") as caught:
        simulate(made)
    report = str(caught.value)
    assert "deadlock at 0.000 s after 0 of 3 training iterations" in report
    assert "gate: shut (since 0.000 s); trainer: idle" in report
    assert "complete groups waiting: 0 of 4 for a batch; open groups: 0" in report


def test_an_error_of_the_simulator_is_not_called_a_deadlock() -> None:
    made = planned({"policy": {"preset": "sync-disaggregated", "parts": {"batching": {"use": "small_runs:Broken"}}}})
    with pytest.raises(RuntimeError, match="broken part") as caught:
        simulate(made)
    assert not isinstance(caught.value, DeadlockError)
