"""The parts of verl, OpenRLHF, ROLL and TRL in any composition: refused with the key to change, or run to the end."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
from compositions import (
    BATCHINGS,
    DRAIN,
    KEEP_ALL,
    LEFTOVERS,
    PLACEMENTS,
    RUNS,
    SLOW,
    UPDATES,
    Refusal,
    does_stall,
    fault,
    is_refused_as,
    is_refused_or_runs_to_its_end,
    preset,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_runs import ran

from rlsim.core.loads import Loads
from rlsim.core.view import Group, RunSizes, View
from rlsim.policies.batching import OldestStepFirst
from rlsim.policies.protocols import Batch

ABORT = {"use": "publish", "mode": "abort"}
STALLS: dict[str, Refusal] = {
    "a budget of one batch that publishes every second step": (
        preset("verl-fully-async-on-policy", update={**DRAIN, "every_steps": 2}),
        "policy.parts.update.every_steps",
        2,
        "at most 1",
    ),
    "a warm-up batch that is used up": (
        preset("verl-v1-separate-async", {"parameter_sync_step": 3}, update={**ABORT, "every_steps": 3}),
        "policy.parts.update.every_steps",
        3,
        "at most 1",
    ),
    "a ratio that is used up": (
        preset("roll-rlvr-async", update={**ABORT, "every_steps": 3}),
        "policy.parts.update.every_steps",
        3,
        "at most 1",
    ),
    "local batches on shared GPUs": (
        preset("sync-colocated", batching={"use": "local-batches", "batches_per_step": 3}),
        "policy.parts.batching.batches_per_step",
        3,
        "on shared GPUs nothing generates while a local batch trains",
    ),
    "warm-up batches that run on while shared GPUs train": (
        preset("verl-v1-colocate-async", {"poll_seconds": 0.0}, leftovers=KEEP_ALL),
        "policy.parts.leftovers.use",
        "keep-all",
        "end-round: on shared GPUs this admission leaves calls under way",
    ),
    "spare samples that use up a lag counted in samples": (
        preset("pipelinerl", {"max_lag": 0}, allocation={"use": "uniform", "redundancy": 1}),
        "policy.parts.allocation.use",
        "uniform",
        "uniform without redundancy: the samples to spare",
    ),
    "spare samples that run on while shared GPUs train": (
        preset("verl-sync", allocation={"use": "uniform", "redundancy": 1, "aborts_surplus": False}),
        "policy.parts.allocation.aborts_surplus",
        False,
        "true: on shared GPUs spare samples that run on",
    ),
    "a batch cut by the round's end that holds the lock": (
        preset("openrlhf-async-partial", {"async_queue_size": 2}, leftovers={"use": "end-round"}),
        "policy.parts.leftovers.use",
        "end-round",
        "keep-all or drop-old",
    ),
    "a fraction of the last step's groups and none of this one's": (
        preset(
            "one-step-off",
            batching={"use": "oldest-step-first", "async_generation_ratio": 0.5},
        ),
        "policy.parts.admission.use",
        "one-step-off",
        "ratio: with a fractional ratio every version has to let a batch of its own in",
    ),
    "a version too old for the target that waits for it": (
        preset("nemo-rl-async", leftovers={"use": "max-off-policy", "max_off_policy_threshold": 1}),
        "policy.parts.leftovers.use",
        "max-off-policy",
        "exact-target waits for ever for a dropped group",
    ),
}
WAITS_FOR_EVER: dict[str, Refusal] = {
    "a pool that is never complete": (
        preset(
            "trl-async-grpo",
            batching={"use": "local-batches", "max_off_policy_strategy": "wait"},
        ),
        "policy.parts.batching.max_off_policy_threshold",
        1,
        "at least 2",
    ),
    "additional prompts that nothing ends": (
        preset("roll-rlvr-sync-queue", {"max_additional_running_prompts": 2}, leftovers={"use": "end-round"}),
        "policy.parts.leftovers.use",
        "end-round",
        "end-round without keeps_unfinished",
    ),
}


@pytest.mark.parametrize("name", [*STALLS, *WAITS_FOR_EVER])
def test_what_cannot_work_is_refused_with_its_key_and_its_reason(name: str) -> None:
    is_refused_as({**STALLS, **WAITS_FOR_EVER}[name])


@pytest.mark.parametrize("name", STALLS)
def test_what_is_refused_because_it_stalls_does_stall(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    does_stall(STALLS[name][0], {"trainer__fixed_seconds_per_step": 0.6} if "lock" in name else SLOW, monkeypatch)


@pytest.mark.parametrize(
    ("policy", "key", "found"),
    [
        (preset("trl-async-grpo", {"max_staleness": 0}), "max_staleness", 0),
        (preset("trl-async-grpo", {"max_inflight_tasks": 0}), "max_inflight_tasks", 0),
        (preset("trl-async-grpo", {"queue_maxsize": 0}), "queue_maxsize", 0),
        (preset("verl-fully-async"), "trigger_parameter_sync_step", 4),
        (preset("verl-fully-async-on-policy", {"staleness_threshold": -0.1}), "staleness_threshold", -0.1),
        (preset("verl-fully-async-on-policy", {"ppo_mini_batch_size": 2}), "ppo_mini_batch_size", 2),
        (preset("verl-fully-async-on-policy", {"require_batches": 2}), "require_batches", 2),
        (preset("verl-v1-separate-async", {"parameter_sync_step": 0}), "parameter_sync_step", 0),
        (preset("verl-v1-colocate-async", {"num_warmup_batches": -1}), "num_warmup_batches", -1),
        (preset("verl-v1-colocate-async", {"max_off_policy_strategy": "keep"}), "max_off_policy_strategy", "keep"),
        (preset("openrlhf-async", {"async_queue_size": 0}), "async_queue_size", 0),
        (preset("roll-rlvr-async", {"async_generation_ratio": -1.0}), "async_generation_ratio", -1.0),
        (preset("roll-agentic", {"async_generation_ratio": 1.5}), "async_generation_ratio", 1.5),
        (preset("roll-agentic", {"num_env_groups": 0}), "num_env_groups", 0),
        (preset("roll-agentic", {"group_size_redundancy": -1}), "group_size_redundancy", -1),
        (
            preset("areal", batching={"use": "local-batches", "batches_per_step": 3, "mini_batches": None}),
            "parts.batching.mini_batches",
            None,
        ),
    ],
)
def test_a_bad_parameter_is_named(policy: dict[str, Any], key: str, found: object) -> None:
    assert fault(policy)[:2] == (f"policy.{key}", found)


def test_the_trainers_number_of_updates_may_only_repeat_that_of_the_policy() -> None:
    policy = preset("verl-fully-async-stream", {"trigger_parameter_sync_step": 3})
    assert fault(policy, trainer__updates_per_step=2)[:2] == ("trainer.updates_per_step", 2)
    assert len(ran(policy, trainer__updates_per_step=3).iterations) == 5


# -- any composition -----------------------------------------------------------------------------------

STRATEGY = st.sampled_from(["drop", "wait"])
RATIO = st.sampled_from([0.0, 0.5, 1.0, 1.4])
NEW_ADMISSIONS = st.one_of(
    st.fixed_dictionaries(
        {
            "use": st.just("per-version-budget"),
            "staleness_threshold": st.sampled_from([0.0, 0.4, 1.0, 2.0]),
            "trigger_parameter_sync_step": st.sampled_from([1, 3]),
            "concurrent_samples_per_replica": st.integers(1, 4),
        }
    ),
    st.fixed_dictionaries({"use": st.just("batches-ahead"), "num_warmup_batches": st.integers(0, 2)}),
    st.fixed_dictionaries({"use": st.just("queue-slots"), "async_queue_size": st.integers(1, 3)}),
    st.fixed_dictionaries(
        {
            "use": st.just("ratio"),
            "async_generation_ratio": RATIO,
            "max_additional_running_prompts": st.sampled_from([0, 0, 2]),
        }
    ),
    st.fixed_dictionaries(
        {
            "use": st.just("environments"),
            "async_generation_ratio": st.integers(0, 2),
            "num_env_groups": st.none() | st.integers(1, 4),
            "group_size_redundancy": st.integers(0, 2),
        }
    ),
    st.fixed_dictionaries(
        {
            "use": st.just("sample-slots"),
            "max_inflight_tasks": st.sampled_from([-1, 1, 7]),
            "max_staleness": st.integers(1, 2),
            "queue_maxsize": st.integers(1, 9),
        }
    ),
)
NEW_BATCHINGS = st.one_of(
    st.fixed_dictionaries(
        {
            "use": st.just("local-batches"),
            "batches_per_step": st.sampled_from([1, 3]),
            "order": st.sampled_from(["first_finished", "oldest_version"]),
            "max_off_policy_threshold": st.integers(1, 3),
            "max_off_policy_strategy": STRATEGY,
        }
    ),
    st.fixed_dictionaries({"use": st.just("oldest-step-first"), "async_generation_ratio": RATIO}),
)
NEW_LEFTOVERS = st.one_of(
    st.fixed_dictionaries(
        {
            "use": st.just("max-off-policy"),
            "max_off_policy_threshold": st.integers(1, 3),
            "max_off_policy_strategy": STRATEGY,
            "ends_round": st.booleans(),
        }
    ),
    st.fixed_dictionaries({"use": st.just("ratio-age"), "async_generation_ratio": RATIO}),
)
OLD_ADMISSIONS = st.sampled_from(
    [
        {"use": "barrier"},
        {"use": "one-step-off"},
        {"use": "cumulative-capacity", "max_staleness": 1, "max_open_groups": 4},
        {"use": "target-reservation", "max_trajectory_age_steps": 1},
        {"use": "over-sample", "over_sampling_batch_size": 5},
        {"use": "fixed-pool", "partial_rollout_pool_size": 5},
        {"use": "free-running", "llm_max_rollouts": 3, "max_lag_samples": 4},
        {"use": "free-running", "llm_max_rollouts": 3},
    ]
)
PARTS = st.fixed_dictionaries(
    {
        "admission": st.one_of(NEW_ADMISSIONS, OLD_ADMISSIONS),
        "batching": st.one_of(NEW_BATCHINGS, BATCHINGS),
        "update": UPDATES,
        "leftovers": st.one_of(NEW_LEFTOVERS, LEFTOVERS),
        "dispatch": st.just({"use": "sticky"}),
        "placement": PLACEMENTS,
        "allocation": st.fixed_dictionaries(
            {"use": st.just("uniform"), "redundancy": st.sampled_from([0, 0, 1]), "aborts_surplus": st.booleans()}
        ),
    }
)


@settings(max_examples=120, deadline=None)
@given(parts=PARTS, members=st.integers(1, 4), **RUNS)
def test_a_composition_that_is_not_refused_runs_to_its_end(parts: dict[str, Any], members: int, **run: Any) -> None:
    is_refused_or_runs_to_its_end(parts, members, **run)


def test_a_batch_of_the_same_version_and_size_as_the_last_one_is_looked_at_again() -> None:
    shape = RunSizes(prompts_per_step=1, group_size=1, replicas=1, max_num_seqs=8)
    part = OldestStepFirst().start(shape)
    view = View(shape, Loads(1), started_groups=2)
    view.ready[0] = Group(0, 0, 0, 1, 0, 0)
    assert part.select(view) == Batch((0,))
    view.steps_begun, view.ready = 1, OrderedDict({1: Group(1, 1, 0, 1, 0, 0)})
    assert part.select(view) == Batch((1,))
