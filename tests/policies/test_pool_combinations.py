"""Policies over pools: refused with the key to change, or run to their end."""

from __future__ import annotations

from typing import Any

import pytest
from compositions import COLOCATED, KEEP, PARTS, RANKS, RUNS, fault, is_refused_or_runs_to_its_end, preset
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_runs import commands, ran

from rlsim.core.commands import Submit
from rlsim.core.events import Aborted

APART: list[dict[str, Any]] = [{"name": "prefill", "gpus": 1}, {"name": "decode", "gpus": 1}]
SHARED: list[dict[str, Any]] = [
    {"name": "prefill", "gpus": 2, "sm_share": 0.5},
    {"name": "decode", "gpus": 2, "sm_share": 0.5, "shares_gpus_with": "prefill"},
]
LEGS = {"dispatch": {"use": "prefill-decode"}, "ordering": {"use": "prefill-leg"}}

REFUSED: dict[str, tuple[dict[str, Any], str, object, str]] = {
    "legs that decode where they prefill": (
        preset("p-d-serve", ordering={"use": "fcfs"}),
        "policy.parts.ordering.use",
        "fcfs",
        "prefill-leg with prefill_pool prefill: otherwise calls decode on the prefill pool",
    ),
    "chunks of another order on top of legs": (
        preset("p-d-serve", ordering={"use": "feedback-queue"}),
        "policy.parts.ordering.use",
        "feedback-queue",
        "prefill-leg",
    ),
    "legs of another pool": (
        preset("p-d-serve", ordering={"use": "prefill-leg", "prefill_pool": "decode"}),
        "policy.parts.ordering.use",
        "prefill-leg",
        "prefill-leg with prefill_pool prefill",
    ),
    "calls that leave with no place to go on": (
        preset("p-d-serve", dispatch={"use": "least-in-flight"}),
        "policy.parts.ordering.use",
        "prefill-leg",
        "dispatch prefill-decode",
    ),
    "calls that move between unlike pools": (
        preset("p-d-serve", migration={"use": "balance"}),
        "policy.parts.migration.use",
        "balance",
        "stay: dispatch prefill-decode says where calls go on",
    ),
    "updates that drop the KV of running calls": (
        preset("p-d-serve", update={"use": "publish", "mode": "abort"}),
        "policy.parts.update.mode",
        "abort",
        "drain or keep",
    ),
    "replicas that stay empty and are to be filled": (
        preset("p-d-serve", admission={"use": "refill-empty", "replica_batch": 4}),
        "policy.parts.admission.use",
        "refill-empty",
        "with prefill-decode some get no new call",
    ),
    "a pool that is not there": (
        preset("p-d-serve", {"prefill_pool": "prefil"}),
        "policy.prefill_pool",
        "prefil",
        "decode, prefill (did you mean 'prefill'?)",
    ),
    "one pool for both": (
        preset("p-d-serve", {"prefill_pool": "decode"}),
        "policy.decode_pool",
        "decode",
        "another pool than prefill_pool",
    ),
    "a partner on other GPUs": (
        preset("p-d-serve", dispatch={"use": "prefill-decode", "decode_route": "same-gpus"}),
        "policy.parts.dispatch.decode_route",
        "same-gpus",
        "these pools do not share GPUs",
    ),
    "classes without a pool": (
        preset("p-d-serve", dispatch={"use": "by-class"}),
        "policy.parts.dispatch.use",
        "by-class",
        "a pool of the name of every class of prompts: all has none",
    ),
    "weights of pools that are not there": (
        preset("p-d-serve", dispatch={"use": "by-weight", "weights": {"prefill": 1.0, "fast": 2.0}}),
        "policy.parts.dispatch.weights.fast",
        "fast",
        "decode, prefill",
    ),
    "weights that leave a pool out": (
        preset("p-d-serve", dispatch={"use": "by-weight", "weights": {"prefill": 1.0}}),
        "policy.parts.dispatch.weights",
        "decode",
        "prefill",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_work_over_pools_is_refused_with_its_key_and_its_reason(name: str) -> None:
    policy, key, found, reason = REFUSED[name]
    path, was, allowed = fault(policy)
    assert (path, was) == (key, found)
    assert reason in allowed


@pytest.mark.parametrize("use", ["by-weight", "by-context", "by-class", "prefill-decode"])
def test_parts_for_pools_need_pools(use: str) -> None:
    given_part = {"use": use, **({"context_tokens": 9} if use == "by-context" else {})}
    path, _, allowed = fault(preset("sync-disaggregated", dispatch=given_part))
    assert path.startswith("policy.parts.dispatch.")
    assert "needs rollout.pools" in allowed


BOTH: list[dict[str, Any]] = [{"name": "decode", "gpus": 2}, {"name": "prefill", "gpus": 2}]
LENDING = preset("areal", {"max_head_offpolicyness": 2}, update=KEEP, placement={"use": "lend-while-idle"}, **LEGS)
"""The last of four replicas are on the trainer's GPUs."""


@pytest.mark.parametrize(
    ("pools", "trainer", "reason"),
    [
        (BOTH[::-1], 2, "nothing that was prefilled could go on"),
        (BOTH, 2, "prefill legs would be cut"),
        (BOTH, 1, "prefill legs would be cut"),
    ],
)
def test_a_pool_of_legs_that_the_trainer_takes_back_whole_is_refused(
    pools: list[dict[str, Any]], trainer: int, reason: str
) -> None:
    gpus = {"rollout__gpus": 4, "rollout__pools": pools, "trainer__gpus": trainer}
    path, found, allowed = fault(LENDING, **gpus)
    assert (path, found) == ("policy.parts.placement.use", "lend-while-idle")
    assert reason in allowed


def test_decode_replicas_that_are_lent_come_and_go_and_what_they_ran_is_prefilled_again() -> None:
    gpus = {"rollout__gpus": 4, "rollout__pools": BOTH[::-1], "trainer__gpus": 1, "rollout__max_num_seqs": 2}
    cuts = 0
    for seed in range(4):
        log = ran(LENDING, seed=seed, trainer__fixed_seconds_per_step=0.5, **gpus)
        assert len(log.iterations) == 5
        cut: set[int] = set()
        for row in log.decisions:
            if isinstance(row.event, Aborted):
                assert {one.replica for one in row.event.cuts} == {3}
                cut |= {one.sample for one in row.event.cuts}
                cuts += len(row.event.cuts)
            for call in row.commands:
                if isinstance(call, Submit) and call.sample in cut:
                    assert (call.replica in (0, 1), call.kv_from_pool) == (True, False)
                    cut.remove(call.sample)
    assert cuts


def test_kv_of_legs_does_not_come_from_the_host() -> None:
    assert fault(preset("p-d-serve"), rollout__kv_while_waiting="offload")[0] == "rollout.kv_while_waiting"


def test_a_pool_on_another_device_is_not_the_trainers() -> None:
    groups = [{"name": "a", "gpus": 1}, {"name": "b", "gpus": 1, "device": "H20"}]
    policy = preset("sync-disaggregated", placement=COLOCATED)
    path, found, allowed = fault(policy, rollout__pools=groups)
    assert (path, found) == ("rollout.pools[1].device", "H20")
    assert "shares the GPUs with the trainer" in allowed


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    parts=PARTS,
    members=st.integers(1, 4),
    route=st.sampled_from(["least-in-flight", "least-tokens", "by-prompt"]),
    pools=st.sampled_from([APART, SHARED]),
    **RUNS,
)
def test_prefill_and_decode_apart_go_with_any_other_part_or_are_refused(
    parts: dict[str, Any], members: int, route: str, pools: list[dict[str, Any]], **run: Any
) -> None:
    parts |= {"dispatch": {**LEGS["dispatch"], "prefill_route": route}, "ordering": LEGS["ordering"]}
    parts["migration"] = {"use": "stay"}
    is_refused_or_runs_to_its_end(parts, members, **run, **RANKS, rollout__pools=pools)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    parts=PARTS,
    members=st.integers(1, 4),
    dispatch=st.sampled_from([{"use": "by-weight"}, {"use": "by-context", "context_tokens": 30}, {"use": "by-class"}]),
    **RUNS,
)
def test_routing_among_pools_goes_with_any_other_part_or_is_refused(
    parts: dict[str, Any], members: int, dispatch: dict[str, Any], **run: Any
) -> None:
    named = {pool["name"]: {"share": 1} for pool in APART}
    sizes = {**run, **RANKS, "rollout__pools": APART, "workload__classes": named}
    is_refused_or_runs_to_its_end({**parts, "dispatch": dispatch}, members, **sizes)


def test_weights_that_change_under_running_calls_leave_them_their_kv() -> None:
    """With kept KV an asynchronous policy decodes on through an update, without a new prefill leg."""
    policy = preset("areal", {"max_head_offpolicyness": 1, "max_concurrent_rollouts": 5}, update=KEEP, **LEGS)
    log = ran(policy, rollout__pools=APART)
    legs = [(call.sample, call.made_tokens, call.replica) for _, call in commands(log, Submit)]
    assert len(set(legs)) == len(legs)
    assert {made for _, made, _ in legs} == {0, 1}
