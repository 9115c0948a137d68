"""Policies that cannot work are refused with the key to change, and what is not refused runs to its end."""

from __future__ import annotations

from typing import Any

import pytest
from compositions import (
    COLOCATED,
    DRAIN,
    FAST,
    KEEP,
    KEEP_ALL,
    PARTS,
    RANKS,
    RUNS,
    SLOW,
    Refusal,
    does_stall,
    fault,
    is_refused_as,
    is_refused_or_runs_to_its_end,
    preset,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_runs import ran, start_lags

AGE_2 = {"max_head_offpolicyness": 2}
STALLS: dict[str, Refusal] = {
    "barrier that publishes every second step": (
        preset("sync-disaggregated", update={**DRAIN, "every_steps": 2}),
        "policy.parts.update.every_steps",
        2,
        "at most 1: this admission lets 1 batch(es) in for each version",
    ),
    "capacity by version, publishing every third step": (
        preset("areal", AGE_2, update={"use": "publish", "mode": "abort", "every_steps": 3}),
        "policy.parts.update.every_steps",
        3,
        "at most 1",
    ),
    "targets by version, publishing every second step": (
        preset("nemo-rl-async", update={**DRAIN, "every_steps": 2}),
        "policy.parts.update.every_steps",
        2,
        "at most 1",
    ),
    "a lag that counts fewer steps a version than there are": (
        preset(
            "pipelinerl",
            admission={"use": "free-running", "llm_max_rollouts": 4, "max_lag_samples": 0, "steps_per_version": 2},
            update={"use": "publish", "mode": "keep", "every_steps": 3},
        ),
        "policy.parts.update.every_steps",
        3,
        "at most 2",
    ),
    "a lag in samples and groups of another size": (
        preset("pipelinerl", {"max_lag": 3}, allocation={"use": "uniform", "samples": 4}),
        "policy.parts.allocation.use",
        "uniform",
        "one with groups of workload.group_size at once",
    ),
    "micro-batches on shared GPUs": (
        preset("sync-colocated", batching={"use": "micro-batch-stream"}),
        "policy.parts.batching.use",
        "micro-batch-stream",
        "on shared GPUs nothing generates while a micro-batch trains",
    ),
    "a pool that runs on while shared GPUs train": (
        preset("copris", leftovers=KEEP_ALL),
        "policy.parts.leftovers.use",
        "keep-all",
        "end-round: on shared GPUs this admission leaves calls under way",
    ),
    "targets ahead on shared GPUs": (
        preset("nemo-rl-async", placement=COLOCATED),
        "policy.parts.leftovers.use",
        "keep-all",
        "end-round",
    ),
    "bounded staleness on shared GPUs": (
        preset("areal", AGE_2, placement=COLOCATED, update=DRAIN),
        "policy.parts.leftovers.use",
        "keep-all",
        "end-round",
    ),
    "a dropped group that exact-target waits for": (
        preset("slime-april", {"over_sampling_batch_size": 5}, batching={"use": "exact-target"}),
        "policy.parts.leftovers.use",
        "end-round",
        "exact-target waits for ever for a dropped group",
    ),
    "a stale group that exact-target waits for": (
        preset("nemo-rl-async", leftovers={"use": "drop-old", "max_age_versions": 0}),
        "policy.parts.leftovers.use",
        "drop-old",
        "exact-target waits for ever for a dropped group",
    ),
    "cut groups that fill the concurrency": (
        preset(
            "areal",
            {"max_head_offpolicyness": 99},
            update={"use": "publish", "mode": "keep"},
            leftovers={"use": "end-round"},
        ),
        "policy.parts.leftovers.use",
        "end-round",
        "keep-all or drop-old: groups that a round's end cuts keep their places",
    ),
}
STALLS |= {
    "a lead gate, publishing every second step": (
        preset("prime-rl", {"max_inflight": 1}, update={**KEEP, "every_steps": 2}, leftovers=KEEP_ALL),
        "policy.parts.update.every_steps",
        2,
        "at most 1",
    ),
    "weights put off by more steps than admission lets batches in": (
        preset(
            "asyncflow",
            {"staleness_threshold": 3},
            admission={"use": "free-running", "llm_max_rollouts": 20, "max_lag_samples": 2},
            batching={"use": "complete-groups"},
        ),
        "policy.staleness_threshold",
        3,
        "at most 1",
    ),
    "groups cut at a round's end that only new weights resume": (
        preset(
            "nemo-rl-async",
            leftovers={"use": "end-round", "keeps_unfinished": True, "keeps_surplus": True},
            update={"use": "deferred", "max_steps_behind": 2},
        ),
        "policy.parts.update.max_steps_behind",
        2,
        "at most 1",
    ),
    "producers that run on while shared GPUs train": (
        preset("miles-fully-async", placement=COLOCATED, update=DRAIN, leftovers=KEEP_ALL),
        "policy.parts.leftovers.use",
        "keep-all",
        "end-round",
    ),
    "a replica's batch that runs on while shared GPUs train": (
        preset("laminar", {"replica_batch": 40}, placement=COLOCATED, update=DRAIN),
        "policy.parts.leftovers.use",
        "keep-all",
        "end-round",
    ),
    "cut groups that fill the places of producers": (
        preset("tinker-cookbook-async", leftovers={"use": "end-round"}),
        "policy.parts.leftovers.use",
        "end-round",
        "keep-all or drop-old: groups that a round's end cuts keep their places",
    ),
}
MEANINGLESS: dict[str, Refusal] = {
    "calls under way at an update of shared GPUs": (
        preset("pipelinerl", placement=COLOCATED),
        "policy.parts.update.mode",
        "keep",
        "drain: engines on shared GPUs sleep while the trainer works",
    ),
    "AReaL on shared GPUs": (
        preset("areal", placement=COLOCATED),
        "policy.parts.update.mode",
        "abort",
        "drain",
    ),
    "shared GPUs that keep old weights": (
        preset("one-step-off", placement=COLOCATED, update={**DRAIN, "every_steps": 2}),
        "policy.parts.update.every_steps",
        2,
        "wake with the trained weights after every step",
    ),
    "a group too old for the target that waits for it": (
        preset("nemo-rl-async", leftovers={"use": "off-policy-steps", "max_steps": 0}),
        "policy.parts.leftovers.use",
        "off-policy-steps",
        "exact-target waits for ever for a dropped group",
    ),
    "replicas that are never empty and pull": (
        preset("miles-fully-async", update={"use": "publish", "mode": "pull"}),
        "policy.parts.update.mode",
        "pull",
        "with pull they take new weights only when empty",
    ),
    "ages in steps with versions of several steps": (
        preset("open-instruct-async", update={**KEEP, "every_samples": 7}),
        "policy.parts.update.every_samples",
        7,
        "a version for every step",
    ),
    "over-sampling without rounds": (
        preset("slime-april", leftovers={"use": "drop-old", "max_age_versions": 0}),
        "policy.parts.leftovers.use",
        "drop-old",
        "end-round: over-sample submits by the round",
    ),
    "a bounded lag with rounds": (
        preset("pipelinerl", {"max_lag": 4}, leftovers={"use": "end-round"}),
        "policy.parts.leftovers.use",
        "end-round",
        "keep-all or drop-old",
    ),
}


@pytest.mark.parametrize("name", [*STALLS, *MEANINGLESS])
def test_what_cannot_work_is_refused_with_its_key_and_its_reason(name: str) -> None:
    is_refused_as({**STALLS, **MEANINGLESS}[name])


@pytest.mark.parametrize("name", STALLS)
def test_what_is_refused_because_it_stalls_does_stall(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    does_stall(STALLS[name][0], FAST if "put off" in name else SLOW, monkeypatch)


def test_a_preset_is_told_of_its_own_parameter() -> None:
    given = {"max_lag": 0, "weight_update_interval": 7}
    policy = preset("pipelinerl", given, admission={"use": "barrier"})
    assert fault(policy)[:2] == ("policy.weight_update_interval", 7)


@pytest.mark.parametrize(
    ("policy", "key", "found"),
    [
        (preset("slime-april", {"over_sampling_batch_size": 2}), "over_sampling_batch_size", 2),
        (preset("copris", {"partial_rollout_pool_size": 0}), "partial_rollout_pool_size", 0),
        (preset("nemo-rl-async", {"max_trajectory_age_steps": 0}), "max_trajectory_age_steps", 0),
        (preset("pipelinerl", {"llm_max_rollouts": 0}), "llm_max_rollouts", 0),
        (preset("pipelinerl", {"ring_buffer_groups": 2}), "ring_buffer_groups", 2),
        (preset("pipelinerl", {"max_lag": -1}), "max_lag", -1),
        (preset("areal", {"max_head_offpolicyness": -1}), "max_head_offpolicyness", -1),
        (preset("areal", {"max_head_offpolicyness": "2"}), "max_head_offpolicyness", "2"),
        (preset("areal", leftovers={"use": "drop-old", "buffer_groups": 2}), "parts.leftovers.buffer_groups", 2),
        (preset("areal", batching={"use": "micro-batch-stream", "min_groups": 4}), "parts.batching.min_groups", 4),
        (preset("areal", update={**DRAIN, "resume_seconds": -1.0}), "parts.update.resume_seconds", -1.0),
        (preset("areal", update={**DRAIN, "every_steps": 0}), "parts.update.every_steps", 0),
        (
            preset("areal", admission={"use": "free-running", "max_lag_samples": -1}),
            "parts.admission.max_lag_samples",
            -1,
        ),
        (
            preset("areal", admission={"use": "cumulative-capacity", "max_staleness": -1}),
            "parts.admission.max_staleness",
            -1,
        ),
        (preset("areal", admission={"use": "fixed-pool"}), "parts.admission.partial_rollout_pool_size", None),
        (preset("copris", {"partial_rollout_pool_size": "9"}), "partial_rollout_pool_size", "9"),
        (preset("copris", {"partial_rollout_pool_size": True}), "partial_rollout_pool_size", True),
        (preset("areal", dispatch={"use": "stiky"}), "parts.dispatch.use", "stiky"),
        (preset("areal", dispatch={"use": "sticky", "to": 1}), "parts.dispatch.to", "to"),
        (preset("areal", routing={"use": "sticky"}), "parts.routing", "routing"),
        (preset("areal", {"eta": 2}), "eta", "eta"),
    ],
)
def test_a_bad_parameter_is_named(policy: dict[str, Any], key: str, found: object) -> None:
    assert fault(policy)[:2] == (f"policy.{key}", found)


# -- limits that look too small but cannot stall -------------------------------------------------------


@settings(max_examples=12, deadline=None)
@given(pool=st.integers(1, 7), members=st.integers(1, 6), seed=st.integers(0, 999))
def test_a_pool_smaller_than_a_batch_fills_it_one_group_after_another(pool: int, members: int, seed: int) -> None:
    sizes = {"seed": seed, "workload__group_size": members}
    for policy in (
        preset("copris", {"partial_rollout_pool_size": pool}),
        preset("pipelinerl", {"llm_max_rollouts": pool}),
        preset("areal", {"max_concurrent_rollouts": pool}),
        preset("pipelinerl", {"llm_max_rollouts": pool, "ring_buffer_groups": 3}),
    ):
        assert len(ran(policy, **sizes).iterations) == 5


@pytest.mark.parametrize(
    "policy",
    [
        preset("one-step-off", leftovers={"use": "drop-old", "max_age_versions": 0}),
        preset("areal", AGE_2, leftovers={"use": "drop-old", "max_age_versions": 0}),
        preset(
            "nemo-rl-async",
            batching={"use": "complete-groups"},
            leftovers={"use": "drop-old", "max_age_versions": 0},
        ),
    ],
    ids=lambda policy: policy["preset"],
)
def test_dropped_groups_are_replaced(policy: dict[str, Any]) -> None:
    log = ran(policy, **SLOW)
    assert "dropped_stale" in {row.outcome for row in log.final}
    assert len(log.iterations) == 5
    assert set(start_lags(log)) == {0}


# -- any composition -----------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(parts=PARTS, members=st.integers(1, 5), **RUNS)
def test_a_composition_that_is_not_refused_runs_to_its_end(parts: dict[str, Any], members: int, **run: Any) -> None:
    is_refused_or_runs_to_its_end(parts, members, **run, **RANKS)
