"""What live engines cannot do is refused at the key that asks for it."""

from __future__ import annotations

from typing import Any

import pytest
from small_runs import BASE

from rlsim.live.vllm.refusals import refusals
from rlsim.policies.registry import parts_of
from rlsim.resolve import ResolvedScenario, resolve
from rlsim.scenario.schema import Scenario


def planned(rollout: dict[str, Any], **sections: Any) -> ResolvedScenario:
    return resolve(Scenario.model_validate({**BASE, **sections, "rollout": {**BASE["rollout"], **rollout}}))


def keys(made: ResolvedScenario, backend: Any = "vllm", device: Any = "cuda") -> list[str]:
    return [fault.path for fault in refusals(made, backend, device)]


@pytest.mark.parametrize("backend", ["vllm", "vllm-paced"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_plain_engines_are_taken(backend: str, device: str) -> None:
    assert keys(planned({}), backend, device) == []


@pytest.mark.parametrize(
    ("rollout", "key"),
    [
        ({"gpus": 2, "data_parallel": 2}, "rollout.data_parallel"),
        ({"discipline": {"max_concurrent_prefills": 2}}, "rollout.discipline"),
        ({"kv_while_waiting": "drop"}, "rollout.kv_while_waiting"),
        ({"block_size": 24}, "rollout.block_size"),
    ],
)
@pytest.mark.parametrize("backend", ["vllm", "vllm-paced"])
def test_what_no_live_engine_does(rollout: dict[str, Any], key: str, backend: str) -> None:
    assert keys(planned(rollout), backend) == [key]


@pytest.mark.parametrize(
    ("rollout", "device", "key"),
    [
        ({"gpus": 2, "pipeline_parallel": 2}, "cuda", "rollout.pipeline_parallel"),
        ({"gpus": 2, "tensor_parallel": 2, "expert_parallel": 2}, "cuda", "rollout.expert_parallel"),
        ({"gpus": 2, "tensor_parallel": 2}, "cpu", "rollout.tensor_parallel"),
    ],
)
def test_splits_that_only_a_law_has(rollout: dict[str, Any], device: str, key: str) -> None:
    made = planned(rollout)
    assert key in keys(made, "vllm", device)
    assert keys(made, "vllm-paced", device) == []


def test_tensor_parallel_engines_run_on_gpus() -> None:
    assert keys(planned({"gpus": 2, "tensor_parallel": 2}), "vllm", "cuda") == []


def test_noise_is_for_simulated_steps() -> None:
    noisy = planned({"step_time": {**BASE["rollout"]["step_time"], "noise_cv": 0.1}})
    assert keys(noisy, "vllm-paced") == ["rollout.step_time.noise_cv"]
    assert keys(noisy, "vllm") == []


def test_kv_that_moves_is_refused_with_the_part_that_moves_it() -> None:
    pools = [{"name": "prefill", "gpus": 1}, {"name": "decode", "gpus": 1}]
    policy = {
        "preset": "sync-disaggregated",
        "parts": {"dispatch": {"use": "prefill-decode"}, "ordering": {"use": "prefill-leg"}},
    }
    found = refusals(planned({"gpus": 2, "pools": pools}, policy=policy), "vllm", "cuda")
    assert [fault.path for fault in found] == ["policy.parts.ordering"]
    assert "KV" in found[0].allowed


def test_a_fault_of_a_pool_is_told_at_the_pool() -> None:
    pools = [{"name": "one", "gpus": 1}, {"name": "two", "gpus": 2, "data_parallel": 2}]
    assert keys(planned({"gpus": 3, "pools": pools})) == ["rollout.pools[1].data_parallel"]


@pytest.mark.parametrize(
    ("parts", "key"),
    [
        ({"ordering": {"use": "divided", "chunk_tokens": 64}}, "policy.parts.ordering"),
        ({"migration": {"use": "balance", "transfers_kv": True}}, "policy.parts.migration"),
    ],
)
def test_kv_does_not_move_between_live_engines(parts: dict[str, Any], key: str) -> None:
    policy = {"preset": "one-step-off", "parts": parts}
    made = planned({"scheduling_policy": "priority"}, policy=policy)
    assert keys(made) == [key]


TASK = {"task": {"name": "successor"}}


def allocated(use: str, **sections: Any) -> ResolvedScenario:
    policy = {"preset": "sync-disaggregated", "parts": {"allocation": {"use": use}}}
    given = {"workload": {**BASE["workload"], "group_size": 8}, "learning": {}, **sections}
    return planned({}, policy=policy, **given)


@pytest.mark.parametrize("use", sorted(set(parts_of("allocation")) - {"trace", "single"}))
@pytest.mark.parametrize("live", [{}, {**TASK, "teacher": {"supervised_steps": 10}}])
def test_every_strategy_runs_on_real_engines(use: str, live: dict[str, Any]) -> None:
    assert keys(allocated(use, live=live)) == []


def test_groups_of_one_run_on_real_engines() -> None:
    alone = {"workload": {**BASE["workload"], "group_size": 1}, "learning": {"effect": {"baseline": "value"}}}
    assert keys(allocated("single", **alone)) == []


def test_branches_at_turns_run_on_real_engines() -> None:
    turns = {"count": 2, "tool_latency_seconds": 0.1, "tool_output_tokens": 2}
    assert keys(allocated("trace", workload={**BASE["workload"], "group_size": 8, "turns": turns})) == []


@pytest.mark.parametrize("use", ["pg-opd", "prune-opd", "adwin"])
def test_a_signal_that_nothing_tells_of_a_task_is_refused(use: str) -> None:
    found = refusals(allocated(use, live=TASK), "vllm", "cuda")
    assert [(fault.path, fault.allowed) for fault in found] == [
        ("live.teacher", "a teacher: the policy watches teacher-overlap")
    ]
    assert keys(allocated(use, live={**TASK, "teacher": {"supervised_steps": 10}})) == []
    assert keys(allocated(use, live={})) == [], "without a task the learning model tells it"


def test_drafts_are_checked_by_engines() -> None:
    model = {"drafts_checked_by": "trainer"}
    assert keys(allocated("spec-rl", learning=model)) == ["learning.drafts_checked_by"]
    assert keys(allocated("spec-rl", learning=model, live=TASK)) == [], "with a task nobody reads that section"
