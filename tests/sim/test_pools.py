"""Pools of replicas, and prefill and decode apart: laws, in whole picoseconds."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_runs import FEW, finishes, ledger_is_closed, planned, ran, spread, submissions, turns

from rlsim.core.log import RunLog
from rlsim.core.ticks import Ticks, to_ticks
from rlsim.executor.run import FinishedRun, make_controller, make_world
from rlsim.resolve import ResolvedScenario
from rlsim.results.metrics import metrics
from rlsim.sim.simulation import Simulation, simulate

STEP_TIME = {
    "source": "coefficients",
    "base_seconds": 0.01,
    "per_sequence_seconds": 1e-4,
    "per_kv_token_seconds": 1e-7,
    "per_prefill_token_seconds": 2e-5,
}
FOUR: dict[str, Any] = {
    "cluster.gpus": 6,
    "rollout.gpus": 4,
    "rollout.max_num_seqs": 4,
    "rollout.step_time": STEP_TIME,
    "workload.prompts_per_step": 8,
    "workload.prompt_tokens": spread(5, 90),
    "workload.response_tokens": spread(1, 60),
}
PD: dict[str, Any] = {
    **FOUR,
    "policy": {"preset": "vllm-pd-disaggregation"},
    "rollout.pools": [{"name": "prefill", "gpus": 1}, {"name": "decode", "gpus": 3, "max_num_seqs": 64}],
}
SHARED: dict[str, Any] = {
    **FOUR,
    "rollout.gpus": 2,
    "policy": {"preset": "semi-pd"},
    "rollout.pools": [
        {"name": "prefill", "gpus": 2, "sm_share": 0.4},
        {"name": "decode", "gpus": 2, "sm_share": 0.6, "shares_gpus_with": "prefill"},
    ],
}
AGENTS = {"workload.turns": turns(spread(1, 4), 0.3, 15)}


def pools(*gpus: int, **given: Any) -> list[dict[str, Any]]:
    return [{"name": f"p{number}", "gpus": count, **given} for number, count in enumerate(gpus)]


def prefill_ranges(made: ResolvedScenario) -> tuple[range, range]:
    named = {pool.place.name: pool.place.replicas for pool in made.pools}
    return named["prefill"], named["decode"]


# -- equal pools ---------------------------------------------------------------------------------------

SAME = st.sampled_from(
    [
        {"policy": {"preset": "areal", "max_head_offpolicyness": 1, "max_concurrent_rollouts": 9}},
        {"policy": {"preset": "laminar", "replica_batch": 4}},
        {"policy": {"preset": "seer", "chunk_tokens": 9}, "rollout.scheduling_policy": "priority", "trainer.gpus": 4},
        {"policy": {"preset": "sync-disaggregated", "parts": {"migration": {"use": "balance", "max_gap_calls": 1}}}},
        {"rollout.kv_while_waiting": "offload", **AGENTS},
        {"rollout.enable_prefix_caching": True, "rollout.step_time": {**STEP_TIME, "noise_cv": 0.2}, **AGENTS},
    ]
)


@FEW
@given(changes=SAME, seed=st.integers(0, 999), split=st.sampled_from([(2, 2), (1, 3), (1, 1, 2), (4,)]))
def test_equal_pools_are_no_pools_to_the_picosecond(changes: dict[str, Any], seed: int, split: tuple[int, ...]) -> None:
    alike = {**FOUR, **changes, "seed": seed}
    one, several = ran(alike), ran({**alike, "rollout.pools": pools(*split)})
    assert one == several


@FEW
@given(seed=st.integers(0, 999))
def test_equal_pools_have_the_metrics_of_no_pools(seed: int) -> None:
    alike = {**FOUR, **AGENTS, "seed": seed}
    plain, split = planned(alike), planned({**alike, "rollout.pools": pools(1, 3)})
    one, several = (metrics(FinishedRun(made, 0, simulate(made).log)) for made in (plain, split))
    assert replace(several, pools={}) == one
    assert not one.pools
    assert sum(pool.gpus for pool in several.pools.values()) == 4


@FEW
@given(seed=st.integers(0, 999), first=st.integers(1, 3), seats=st.integers(1, 9), faster=st.sampled_from([0.5, 1, 3]))
def test_unequal_pools_close_their_ledger_under_any_dispatch(seed: int, first: int, seats: int, faster: float) -> None:
    other = {"max_num_seqs": seats, "step_time": {**STEP_TIME, "scale": faster}, "data_parallel": 1}
    given_pools = [{"name": "a", "gpus": first}, {"name": "b", "gpus": 4 - first, **other}]
    for dispatch in ({"use": "by-weight"}, {"use": "by-context", "context_tokens": 60}, {"use": "least-in-flight"}):
        policy = {"preset": "sync-disaggregated", "parts": {"dispatch": dispatch}}
        log = ran({**FOUR, **AGENTS, "seed": seed, "rollout.pools": given_pools, "policy": policy})
        assert len(log.iterations) == 3


def test_replicas_of_a_slower_pool_take_its_own_time() -> None:
    slow = {"step_time": {**STEP_TIME, "scale": 3.0}}
    log = ran({**FOUR, "rollout.pools": [{"name": "a", "gpus": 2}, {"name": "b", "gpus": 2, **slow}]})
    made = planned(FOUR)
    law = made.pools[0].law.quantise(8192, 4)
    seen = Counter[bool]()
    for row in log.windows:
        if row.chunks == 0:
            kv = row.steps * row.kv_tokens + row.decodes * row.steps * (row.steps - 1) // 2
            alone = row.steps * law.decode(row.decodes, 0) + law.kv_ps[row.decodes] * kv
            assert row.end - row.start == pytest.approx(alone * (3 if row.replica >= 2 else 1), rel=1e-9)
            seen[row.replica >= 2] += 1
    assert min(seen[False], seen[True]) > 0


# -- prefill and decode apart --------------------------------------------------------------------------


@FEW
@given(
    seed=st.integers(0, 999),
    prefill=st.integers(1, 3),
    multi_turn=st.booleans(),
    caching=st.booleans(),
    keep=st.booleans(),
    waiting=st.sampled_from(["keep", "drop"]),
)
def test_prompts_are_computed_on_prefill_replicas_only(
    seed: int, prefill: int, multi_turn: bool, caching: bool, keep: bool, waiting: str
) -> None:
    """Without preemption every call on a decode replica computes one token of its context, every token but the first
    of a turn is decoded there, and prefill replicas decode nothing.
    """
    update = {"update": {"use": "publish", "mode": "keep" if keep else "drain"}}
    log, made = run_with_plan(
        {
            **PD,
            **(AGENTS if multi_turn else {}),
            "seed": seed,
            "rollout.enable_prefix_caching": caching,
            "rollout.kv_while_waiting": waiting,
            "rollout.pools": [{"name": "prefill", "gpus": prefill}, {"name": "decode", "gpus": 4 - prefill}],
            "policy": {"preset": "vllm-pd-disaggregation", "parts": update},
        }
    )
    assert ledger_is_closed(log)
    assert log.preemptions == 0
    on_prefill, on_decode = prefill_ranges(made)
    computed = Counter[int]()
    for row in log.windows:
        assert not (row.replica in on_prefill and row.decodes)
        if row.replica in on_decode:
            assert row.prefill_tokens == row.chunks
            computed[row.replica] += row.chunks
    legs = Counter(call.replica for _, call in submissions(log) if call.replica in on_decode)
    assert all(computed[replica] <= legs[replica] for replica in on_decode)
    for _, event in finishes(log):
        assert event.replica in on_decode or event.tokens == 1


def run_with_plan(changes: dict[str, Any]) -> tuple[RunLog, ResolvedScenario]:
    made = planned(changes)
    return simulate(made).log, made


@FEW
@given(seed=st.integers(0, 999))
def test_every_turn_has_a_prefill_leg_and_goes_on_where_its_kv_is_fetched(seed: int) -> None:
    log, made = run_with_plan({**PD, **AGENTS, "seed": seed})
    on_prefill, on_decode = prefill_ranges(made)
    legs: defaultdict[tuple[int, int], list[tuple[bool, int, int, bool]]] = defaultdict(list)
    for _, call in submissions(log):
        shape = (call.replica in on_prefill, call.made_tokens, call.max_tokens, call.kv_from_pool)
        legs[call.sample, call.turn].append(shape)
    first, second = (True, 0, 1, False), (False, 1, 0, True)
    assert {(first, second)} <= set(map(tuple, legs.values())) <= {(first,), (first, second)}
    assert len(on_prefill) + len(on_decode) == 4


@FEW
@given(seed=st.integers(0, 999), link=st.sampled_from([1e8, 5e8, 2e9]), tensor=st.sampled_from([1, 2]))
def test_a_transfer_takes_tokens_times_bytes_over_the_link(seed: int, link: float, tensor: int) -> None:
    sizes = {"cluster.gpus": 9, "rollout.gpus": 8, "rollout.tensor_parallel": tensor}
    groups = [{"name": "prefill", "gpus": 4}, {"name": "decode", "gpus": 4, "max_num_seqs": 64}]
    made = planned({**PD, **sizes, "seed": seed, "rollout.kv_link_bytes_per_second": link, "rollout.pools": groups})
    log = simulate(made).log
    on_decode = prefill_ranges(made)[1]
    per_token = to_ticks(made.architecture.kv_bytes_per_token_per_gpu(tensor) / link)
    idle_since: dict[int, Ticks] = defaultdict(int)
    starts = defaultdict(list)
    for row in log.windows:
        starts[row.replica].append((row.start, row.chunks))
    arrivals: defaultdict[int, set[Ticks]] = defaultdict(set)
    for now, call in submissions(log):
        if call.replica in on_decode:
            arrivals[call.replica].add(now + (call.context_tokens - 1) * per_token)
    checked = 0
    for replica, rows in starts.items():
        if replica not in on_decode:
            continue
        for start, chunks in rows:
            if chunks and start > idle_since[replica]:  # It stood still: the call that arrived began at once.
                assert start in arrivals[replica]
                checked += 1
            idle_since[replica] = next(row.end for row in log.windows if (row.replica, row.start) == (replica, start))
    assert checked


def test_the_slower_end_of_a_transfer_decides() -> None:
    groups = [
        {"name": "prefill", "gpus": 2, "kv_link_bytes_per_second": 1e9},
        {"name": "decode", "gpus": 2, "tensor_parallel": 2, "kv_link_bytes_per_second": 4e8},
    ]
    made = planned({**PD, "rollout.pools": groups})
    world = make_world(made, made.workload_of(0))
    one, two = (made.architecture.kv_bytes_per_token_per_gpu(ranks) for ranks in (1, 2))
    assert world.fetch_ticks(0, 2) == max(to_ticks(one / 1e9), to_ticks(two / 4e8))
    assert world.fetch_ticks(2, 0) == world.fetch_ticks(0, 2)
    assert world.fetch_ticks(0, 1) == to_ticks(one / 1e9)


@FEW
@given(seed=st.integers(0, 999), multi_turn=st.booleans())
def test_with_free_transfers_decode_steps_are_those_of_decodes_alone(seed: int, multi_turn: bool) -> None:
    """Every step on a decode replica costs what its sequences cost, each one token: no prompt slows it down."""
    made = planned({**PD, **(AGENTS if multi_turn else {}), "seed": seed})
    workload = made.workload_of(0)
    world = make_world(made, workload)
    assert world.links is not None
    world = replace(world, links=replace(world.links, fetch=(0, 0)))
    log = Simulation(make_controller(made, workload), world).run(3)
    assert ledger_is_closed(log)
    decode = made.pools[1]
    law = decode.law.quantise(decode.limits.max_num_batched_tokens, decode.limits.max_num_seqs)
    rows = [row for row in log.windows if row.replica in decode.place.replicas]
    assert any(row.chunks for row in rows)
    for row in rows:
        kv = law.kv_ps[row.decodes]
        pure = sum(
            law.dense_ps[row.decodes + row.chunks]
            + law.sequence_ps[row.decodes + row.chunks]
            + kv * (row.kv_tokens + row.decodes * step)
            for step in range(row.steps)
        )
        assert row.end - row.start == pure


def test_prompts_in_the_same_engine_do_slow_its_decodes_down() -> None:
    """The law above can fail: on replicas that do both it does not hold."""
    made = planned({**FOUR, "rollout.max_num_seqs": 3})
    law = made.pools[0].law.quantise(8192, 3)
    mixed = [row for row in simulate(made).log.windows if row.chunks and row.decodes]
    assert mixed
    assert all(
        row.end - row.start
        > law.dense_ps[row.decodes + row.chunks]
        + law.sequence_ps[row.decodes + row.chunks]
        + law.kv_ps[row.decodes] * row.kv_tokens
        for row in mixed
        if row.prefill_tokens > row.chunks
    )


def test_a_call_that_is_cut_begins_again_with_a_prefill_leg() -> None:
    parts = {
        "admission": {"use": "over-sample", "over_sampling_batch_size": 12},
        "leftovers": {"use": "end-round"},
    }
    log, made = run_with_plan({**PD, "policy": {"preset": "vllm-pd-disaggregation", "parts": parts}})
    assert ledger_is_closed(log)
    on_prefill, _ = prefill_ranges(made)
    resumed = [call for _, call in submissions(log) if call.made_tokens > 1]
    again = [call for call in resumed if call.replica in on_prefill]
    assert again
    assert all(call.max_tokens == 1 and not call.kv_from_pool for call in again)
    assert all(call.kv_from_pool for call in resumed if call.replica not in on_prefill)


def test_calls_of_a_prompt_find_it_cached_on_their_prefill_replica() -> None:
    sizes = {"rollout.enable_prefix_caching": True, "workload.prompt_tokens": 80, **AGENTS}
    groups = [{"name": "prefill", "gpus": 3}, {"name": "decode", "gpus": 1, "max_num_seqs": 64}]
    tokens = {}
    for route in ("by-prompt", "least-in-flight"):
        policy = {"preset": "p-d-serve", "prefill_route": route}
        tokens[route] = ran({**PD, **sizes, "rollout.pools": groups, "policy": policy}).prefill_tokens
    assert tokens["by-prompt"] < tokens["least-in-flight"]


# -- engines on shared GPUs ----------------------------------------------------------------------------


@FEW
@given(seed=st.integers(0, 999), share=st.sampled_from([0.2, 0.5, 0.7]), saturation=st.sampled_from([0.5, 1.0]))
def test_on_shared_gpus_kv_is_handed_over_in_no_time_on_the_same_gpus(
    seed: int, share: float, saturation: float
) -> None:
    groups = [
        {"name": "prefill", "gpus": 2, "sm_share": share, "bandwidth_saturation": saturation},
        {"name": "decode", "gpus": 2, "sm_share": 1 - share, "shares_gpus_with": "prefill"},
    ]
    slow = {"rollout.kv_link_bytes_per_second": 1.0}
    log, _ = run_with_plan({**SHARED, **slow, "seed": seed, "rollout.pools": groups})
    assert ledger_is_closed(log)
    at: dict[int, int] = {}
    for _, call in submissions(log):
        if call.made_tokens == 1:
            assert call.replica == at[call.sample] + 2
        at[call.sample] = call.replica
    assert log.end < to_ticks(1000.0)


def test_shared_gpus_count_once() -> None:
    prefill, decode = SHARED["rollout.pools"]
    made = planned({**SHARED, "rollout.pools": [{**prefill, "price_usd_per_gpu_hour": 9.0}, decode]})
    found = metrics(FinishedRun(made, 0, simulate(made).log))
    assert found.gpus_used == 2 + 1
    assert sum(found.utilisation.rollout.values()) == pytest.approx(1)
    assert sum(pool.gpus for pool in found.pools.values()) == pytest.approx(2)
    assert found.pools["prefill"].gpus == pytest.approx(0.8)
    assert found.usd_per_step == pytest.approx((2 * 9.0 + 2.5) * found.step_seconds / 3600)
    assert sum(pool.usd_per_step for pool in found.pools.values()) == pytest.approx(2 * 9.0 * found.step_seconds / 3600)
    assert [pool.limits.kv_blocks for pool in made.pools] == [8000, 12000]


def test_money_counts_the_price_of_every_pool() -> None:
    groups = [
        {"name": "prefill", "gpus": 1, "device": "H800"},
        {"name": "decode", "gpus": 2, "device": "H20"},
        {"name": "spare", "gpus": 1, "price_usd_per_gpu_hour": 9.0},
    ]
    made = planned({**PD, "cluster.price_usd_per_gpu_hour": 2.0, "rollout.pools": groups})
    found = metrics(FinishedRun(made, 0, simulate(made).log))
    hourly = 1 * 2.3 + 2 * 1.5 + 1 * 9.0 + 1 * 2.0  # H800, H20, the spare, the trainer
    assert found.usd_per_step == pytest.approx(found.step_seconds / 3600 * hourly)
    assert found.price_usd_per_gpu_hour == pytest.approx(hourly / 5)
    parts = sum(pool.usd_per_step for pool in found.pools.values())
    assert parts == pytest.approx(found.step_seconds / 3600 * (hourly - 2.0))
    assert found.pools["spare"].utilisation["decode"] == 0


def test_gpu_seconds_weigh_replicas_by_their_gpus() -> None:
    groups = [{"name": "wide", "gpus": 2, "tensor_parallel": 2}, {"name": "small", "gpus": 2}]
    policy = {
        "preset": "sync-disaggregated",
        "parts": {"dispatch": {"use": "by-weight", "weights": {"wide": 2.0, "small": 1.0}}},
    }
    made = planned({**FOUR, "rollout.pools": groups, "policy": policy})
    log = simulate(made).log
    found = metrics(FinishedRun(made, 0, log))
    busy = Counter[int]()
    for row in log.windows:
        if row.end <= log.iterations[-1].end:
            busy[row.replica] += row.end - row.start
    used = found.utilisation.rollout["decode"] + found.utilisation.rollout["prefill"]
    assert used == pytest.approx((2 * busy[0] + busy[1] + busy[2]) / (4 * log.iterations[-1].end))
