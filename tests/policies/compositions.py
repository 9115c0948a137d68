"""What tests of compositions share: presets with parts of their own, faults, and parts to draw at random."""

from __future__ import annotations

from typing import Any

import pytest
from controller_parts import STRATEGIES, WATCHING, unlisted
from hypothesis import strategies as st
from policy_runs import ran, scenario

from rlsim.core.errors import DeadlockError
from rlsim.policies import combinations
from rlsim.policies.ordering.predictors import NAMES
from rlsim.resolve import ResolveError, resolve

Refusal = tuple[dict[str, Any], str, object, str]
"""A policy, the key that is refused, what was found there, and words of what is allowed."""

DRAIN = {"use": "publish", "mode": "drain"}
KEEP = {"use": "publish", "mode": "keep"}
KEEP_ALL = {"use": "keep-all"}
COLOCATED = {"use": "colocated"}
SLOW: dict[str, Any] = {"trainer__fixed_seconds_per_step": 9.0}
FAST: dict[str, Any] = {"trainer__fixed_seconds_per_step": 0.0}


def preset(name: str, given: dict[str, Any] | None = None, **parts: dict[str, Any]) -> dict[str, Any]:
    return {"preset": name, **(given or {}), **({"parts": parts} if parts else {})}


def fault(policy: dict[str, Any], **changes: Any) -> tuple[str, object, str]:
    """The first fault of the policy: key, what was found, what is allowed."""
    with pytest.raises(ResolveError) as caught:
        resolve(scenario(policy, **changes))
    return caught.value.path, caught.value.found, caught.value.allowed


def is_refused_as(refusal: Refusal) -> None:
    """The policy is refused with its key, what was found and what is allowed."""
    policy, key, found, reason = refusal
    path, was, allowed = fault(policy)
    assert (path, was) == (key, found)
    assert reason in allowed


def does_stall(policy: dict[str, Any], changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The policy stalls when it is not refused."""
    monkeypatch.setattr(combinations, "check", lambda policy, shape: None)
    with pytest.raises(DeadlockError):
        ran(policy, run__steps=12, **changes)


# -- parts to draw ---------------------------------------------------------------------------------------


def drawn(choice: str) -> list[st.SearchStrategy[dict[str, Any]]]:
    """Registered parts that are listed nowhere, with their defaults."""
    return [st.just(spec) for spec in unlisted(choice)]


LENDING: list[dict[str, Any]] = [
    {"use": "lend-while-idle"},
    {"use": "hybrid-switching", "switch_threshold_ratio": 0.7},
    {"use": "dynamic-schedule", "deactivate_ratio": 1.0, "before_data_switch_seconds": 0.0},
]
PLACEMENTS = st.sampled_from(
    [COLOCATED, COLOCATED, {"use": "disaggregated"}, {"use": "disaggregated"}, *LENDING, *unlisted("placement")]
)
OPEN_ARRIVALS = st.fixed_dictionaries(
    {
        "use": st.just("open-arrivals"),
        "requests_per_second": st.sampled_from([0.5, 10.0, 50.0]),
        "burstiness": st.sampled_from([0.3, 1.0, 9.0]),
    }
)
ADMISSIONS = st.one_of(
    st.sampled_from([{"use": "barrier"}, {"use": "one-step-off"}]),
    st.fixed_dictionaries({"use": st.just("rounds")}, optional={"gen_batch_size": st.integers(1, 6)}),
    st.fixed_dictionaries(
        {"use": st.just("cumulative-capacity"), "max_staleness": st.integers(0, 2)},
        optional={"max_open_groups": st.integers(1, 5)},
    ),
    st.fixed_dictionaries({"use": st.just("target-reservation"), "max_trajectory_age_steps": st.integers(1, 2)}),
    st.fixed_dictionaries({"use": st.just("over-sample"), "over_sampling_batch_size": st.integers(3, 6)}),
    st.fixed_dictionaries({"use": st.just("tail-batching"), "eta_p": st.sampled_from([1.0, 1.5, 2.0])}),
    st.fixed_dictionaries({"use": st.just("fixed-pool"), "partial_rollout_pool_size": st.integers(1, 20)}),
    st.fixed_dictionaries(
        {
            "use": st.just("free-running"),
            "llm_max_rollouts": st.integers(1, 9),
            "max_lag_samples": st.none() | st.integers(0, 5),
            "steps_per_version": st.integers(1, 2),
        }
    ),
    st.fixed_dictionaries(
        {"use": st.just("lead-gate"), "target_lag": st.integers(0, 2), "max_inflight": st.integers(1, 20)}
    ),
    st.fixed_dictionaries({"use": st.just("one-for-one"), "async_steps": st.integers(1, 3)}),
    st.fixed_dictionaries({"use": st.just("engine-queue"), "concurrency_per_engine": st.integers(1, 5)}),
    st.fixed_dictionaries(
        {
            "use": st.just("bounded-buffer"),
            "granularity": st.sampled_from(["sample", "group"]),
            "max_concurrent_samples": st.none() | st.integers(5, 20),
            "capacity_factor": st.sampled_from([None, 1.0, 2.0]),
        }
    ),
    st.fixed_dictionaries(
        {"use": st.just("refill-empty"), "replica_batch": st.integers(1, 9), "buffer_groups": st.none() | st.just(3)}
    ),
    OPEN_ARRIVALS,
    *drawn("admission"),
)
BATCHINGS = st.one_of(
    st.fixed_dictionaries(
        {
            "use": st.just("complete-groups"),
            "order": st.sampled_from(["first_finished", "oldest"]),
            "poll_seconds": st.sampled_from([0.0, 0.3]),
        }
    ),
    st.just({"use": "exact-target"}),
    st.fixed_dictionaries(
        {"use": st.just("micro-batch-stream"), "min_groups": st.integers(1, 3), "takes_all": st.booleans()}
    ),
    *drawn("batching"),
)
UPDATES = st.one_of(
    st.fixed_dictionaries(
        {
            "use": st.just("publish"),
            "mode": st.sampled_from(["drain", "abort", "keep", "rebuild", "pull"]),
            "every_steps": st.sampled_from([1, 1, 2]),
        }
    ),
    st.fixed_dictionaries({"use": st.just("deferred"), "max_steps_behind": st.integers(1, 3)}),
    *drawn("update"),
)
LEFTOVERS = st.one_of(
    st.just(KEEP_ALL),
    st.just({"use": "put-off"}),
    st.fixed_dictionaries(
        {"use": st.just("end-round"), "keeps_unfinished": st.booleans(), "keeps_surplus": st.booleans()}
    ),
    st.fixed_dictionaries(
        {"use": st.just("drop-old")},
        optional={"max_age_versions": st.integers(0, 1), "buffer_groups": st.integers(3, 4)},
    ),
    st.fixed_dictionaries(
        {
            "use": st.just("off-policy-steps"),
            "max_steps": st.integers(0, 2),
            "in_flight": st.booleans(),
            "lead_batches": st.none() | st.integers(0, 2),
            "recycles": st.booleans(),
        }
    ),
    *drawn("leftovers"),
)
RANKS: dict[str, Any] = {"rollout__scheduling_policy": "priority"}
ORDERINGS = st.one_of(
    st.just({"use": "fcfs"}),
    st.fixed_dictionaries(
        {
            "use": st.sampled_from(["shortest-first", "longest-first"]),
            "predictor": st.sampled_from(NAMES),
            "chunk_tokens": st.sampled_from([0, 1, 9]),
            "shares_kv": st.booleans(),
        }
    ),
    st.fixed_dictionaries({"use": st.just("feedback-queue"), "first_level_tokens": st.integers(1, 20)}),
    st.fixed_dictionaries({"use": st.just("ageing"), "tokens_per_second": st.sampled_from([0.0, 5.0])}),
    st.fixed_dictionaries({"use": st.just("divided"), "chunk_tokens": st.integers(2, 20)}),
    st.fixed_dictionaries({"use": st.just("class-priority"), "ageing_seconds": st.none() | st.just(1.0)}),
    st.fixed_dictionaries({"use": st.just("weighted-fair"), "predictor": st.sampled_from(NAMES)}),
    *drawn("ordering"),
)
MIGRATIONS = st.one_of(
    st.just({"use": "stay"}),
    st.fixed_dictionaries(
        {"use": st.just("balance"), "max_gap_calls": st.integers(1, 3), "transfers_kv": st.booleans()}
    ),
    st.fixed_dictionaries(
        {"use": st.just("repack"), "below_calls": st.integers(2, 9), "every_seconds": st.sampled_from([0.0, 0.3])}
    ),
    *drawn("migration"),
)
REWARDED = [{"use": "dapo-rounds"}, *STRATEGIES, *WATCHING]
ALLOCATIONS = st.one_of(
    st.just({"use": "uniform"}),
    st.fixed_dictionaries(
        {"use": st.just("uniform"), "redundancy": st.integers(1, 2), "aborts_surplus": st.booleans()}
    ),
    st.fixed_dictionaries({"use": st.just("short-rounds"), "eta_r": st.sampled_from([1.0, 1.5])}),
    st.sampled_from(REWARDED),
    *(st.just(spec) for spec in unlisted("allocation") if spec not in REWARDED),
)
PARTS = st.fixed_dictionaries(
    {
        "admission": ADMISSIONS,
        "batching": BATCHINGS,
        "update": UPDATES,
        "leftovers": LEFTOVERS,
        "dispatch": st.sampled_from(
            [
                *(
                    {"use": name}
                    for name in ("least-in-flight", "round-robin", "sticky", "group-affinity", "fill-empty")
                ),
                *({"use": name} for name in ("least-tokens", "power-of-two", "prefix-aware", "consistent-hash")),
                {"use": "tail-split", "tail_tokens": 30},
                *unlisted("dispatch"),
            ]
        ),
        "placement": PLACEMENTS,
        "ordering": ORDERINGS,
        "migration": MIGRATIONS,
        "allocation": ALLOCATIONS,
        "turns": st.sampled_from([{"use": "alone"}, {"use": "lock-step"}, *unlisted("turns")]),
    }
)
SERVING_PARTS = st.builds(
    lambda parts, admission, mode: {
        **parts,
        "admission": admission,
        "update": {"use": "publish", "mode": mode},
        "placement": {"use": "disaggregated"},
    },
    PARTS,
    OPEN_ARRIVALS,
    st.sampled_from(["keep", "rebuild", "abort"]),
)
"""Compositions that open arrivals may go with."""
TOOLS = {"count": {"law": "uniform", "low_tokens": 1, "high_tokens": 3}, "tool_latency_seconds": 0.2}
RUNS: dict[str, st.SearchStrategy[Any]] = {
    "seed": st.integers(0, 999),
    "overhead": st.sampled_from([0.0, 0.2, 5.0]),
    "agents": st.booleans(),
}
"""What else a run of drawn parts depends on."""


def is_refused_or_runs_to_its_end(
    parts: dict[str, Any], members: int, seed: int, overhead: float, agents: bool, **changes: Any
) -> None:
    """The composition is refused, or its six steps end with every token in the ledger."""
    changes |= {"seed": seed, "workload__group_size": members, "run__steps": 6}
    changes["trainer__fixed_seconds_per_step"] = overhead
    if parts["allocation"] in REWARDED:
        changes |= {"learning": {}, "workload__dataset_prompts": 7}
    if parts["placement"] in LENDING:
        changes = {"cluster__gpus": 3, **changes}
    if agents:
        changes["workload__turns"] = {**TOOLS, "tool_output_tokens": 5}
        changes["workload__reward"] = {"latency_seconds": 0.3}
    try:
        log = ran({"parts": parts}, **changes)
    except ResolveError:
        return
    assert len(log.iterations) == 6
    told = sum(row.tokens for row in log.final) + log.check_tokens + log.undelivered_tokens
    assert told == log.generated_tokens
