"""Where calls go, and where running ones move: routers, repacking and balancing on recorded decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_runs import ran

from rlsim.core.commands import Abort, Submit
from rlsim.core.errors import ParameterError
from rlsim.core.events import Aborted, Finished
from rlsim.core.hashing import normal, uniform
from rlsim.core.loads import Loads
from rlsim.core.log import RunLog
from rlsim.core.ticks import TICKS_PER_SECOND
from rlsim.core.view import Group, RunSizes, Sample, View
from rlsim.policies.dispatch.pools import TailSplit, tail_replicas, work_of
from rlsim.policies.dispatch.routers import ConsistentHash, LeastTokens, PowerOfTwo, PrefixAware
from rlsim.policies.migration import Balance, Repack, best_fit

few = settings(max_examples=10, deadline=None)
FOUR: dict[str, Any] = {"cluster__gpus": 6, "rollout__gpus": 4, "workload__prompts_per_step": 8, "run__steps": 3}
WIDE: dict[str, Any] = {**FOUR, "workload__group_size": 4}


def part(choice: str, use: str, **given: Any) -> dict[str, Any]:
    return {"preset": "sync-disaggregated", "parts": {choice: {"use": use, **given}}}


def placed(log: RunLog) -> Iterator[tuple[Submit, list[int]]]:
    """Every call with the calls in flight by replica just before it."""
    load: Counter[int] = Counter()
    for row in log.decisions[:-1]:
        if isinstance(row.event, Finished):
            load[row.event.replica] -= 1
        elif isinstance(row.event, Aborted):
            load.subtract(cut.replica for cut in row.event.cuts)
        for call in row.commands:
            if isinstance(call, Submit):
                yield call, [load[replica] for replica in range(4)]
                load[call.replica] += 1


def loaded(calls: list[int], tokens: int = 10) -> View:
    """A view with so many calls in flight by replica, each of a group of its own."""
    view = View(RunSizes(2, 2, len(calls), 8), Loads(len(calls)))
    for replica, count in enumerate(calls):
        for _ in range(count):
            fly(view, replica, tokens)
    return view


def fly(view: View, replica: int, tokens: int = 10) -> Sample:
    number = len(view.generating_samples)
    group = Group(number, number, 0, tokens, view.version, 0)
    sample = Sample(number, group, 0)
    group.members.append(sample)
    sample.replica, sample.state = replica, "running"
    view.generating_samples[number] = sample
    view.loads.add(replica, 1, tokens)
    return sample


def newcomer(draw: int = 99, members: int = 1) -> Sample:
    group = Group(draw, draw, 0, 10, 0, 0)
    group.members = [Sample(1000 + member, group, member) for member in range(members)]
    return group.members[0]


# -- routers -------------------------------------------------------------------------------------------


@few
@given(seed=st.integers(0, 9999))
def test_least_tokens_puts_each_call_where_the_fewest_context_tokens_are_in_flight(seed: int) -> None:
    prompts = {"law": "uniform", "low_tokens": 1, "high_tokens": 200}
    log = ran(part("dispatch", "least-tokens"), workload__prompt_tokens=prompts, seed=seed, **FOUR)
    context: dict[int, int] = {}
    tokens = [0] * 4
    for row in log.decisions[:-1]:
        if isinstance(row.event, Finished):
            tokens[row.event.replica] -= context.pop(row.event.sample)
        for call in row.commands:
            if isinstance(call, Submit):
                assert tokens[call.replica] == min(tokens)
                tokens[call.replica] += call.context_tokens
                context[call.sample] = call.context_tokens
    assert not context
    assert tokens == [0] * 4


@few
@given(seed=st.integers(0, 9999))
def test_power_of_two_never_takes_the_most_loaded_replica_of_several(seed: int) -> None:
    log = ran(part("dispatch", "power-of-two", seed=seed), **WIDE)
    for call, load in placed(log):
        assert load[call.replica] < max(load) or load.count(max(load)) > 1 or len(set(load)) == 1


def test_power_of_two_looks_at_every_pair_alike() -> None:
    started = PowerOfTwo().start(RunSizes(2, 2, 4, 8))
    view, sample = loaded([0, 1, 2, 3]), newcomer()
    chosen = Counter(started.replica(view, sample) for _ in range(6000))
    for replica, share in enumerate((1 / 2, 1 / 3, 1 / 6, 0)):
        assert chosen[replica] / 6000 == pytest.approx(share, abs=0.02)


@few
@given(seed=st.integers(0, 9999), extra=st.integers(0, 3))
def test_prefix_aware_follows_a_mate_within_its_bound_and_else_the_least_loaded(seed: int, extra: int) -> None:
    log = ran(part("dispatch", "prefix-aware", max_extra_calls=extra), seed=seed, **WIDE)
    homes: dict[int, set[int]] = {}
    for call, load in placed(log):
        near = {home for home in homes.get(call.draw, set()) if load[home] <= min(load) + extra}
        if near:
            assert call.replica in near
        else:
            assert load[call.replica] == min(load)
        homes.setdefault(call.draw, set()).add(call.replica)


def test_consistent_hash_keeps_a_prompt_in_its_place_and_moves_few_when_a_replica_is_added() -> None:
    four, five = (ConsistentHash(max_load_ratio=99.0).start(RunSizes(2, 2, n, 8)) for n in (4, 5))
    before = [four.replica(loaded([0] * 4), newcomer(draw)) for draw in range(1000)]
    after = [five.replica(loaded([0] * 5), newcomer(draw)) for draw in range(1000)]
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    assert set(moved) == {4}
    assert 0.1 < len(moved) / 1000 < 0.3
    assert min(Counter(before).values()) > 150


@few
@given(seed=st.integers(0, 9999), ratio=st.sampled_from([1.0, 1.25, 2.0]))
def test_consistent_hash_never_exceeds_its_share_of_the_mean_load(seed: int, ratio: float) -> None:
    log = ran(part("dispatch", "consistent-hash", max_load_ratio=ratio), seed=seed, **WIDE)
    for call, load in placed(log):
        assert load[call.replica] + 1 <= -(-ratio * (sum(load) + 1) // 4)


Responses = list[tuple[int, int]]
"""(prompt tokens, response tokens) of some samples."""


def batches(log: RunLog, tokens: int) -> Iterator[tuple[set[int], Responses, Responses]]:
    """Of each batch of eight groups of four: samples of the tail, and the responses of the bulk and of the tail."""
    prompt = {call.sample: call.context_tokens for call, _ in placed(log)}
    made = {row.event.sample: row.event.tokens for row in log.decisions if isinstance(row.event, Finished)}
    for first in range(0, len(made), 32):
        groups = [range(group, group + 4) for group in range(first, first + 32, 4)]
        tail = {sample for group in groups if max(made[n] for n in group) >= tokens for sample in group}
        parts: tuple[Responses, Responses] = ([], [])
        for sample in range(first, first + 32):
            parts[sample in tail].append((prompt[sample], made[sample]))
        yield tail, *parts


def walked(responses: Responses, replicas: int, empty_step: int) -> Fraction:
    """Time of a static batch on some replicas, step by step: an empty step, and the contexts that it reads."""
    steps = range(max(tokens for _, tokens in responses))
    reads = sum(context + step for step in steps for context, tokens in responses if tokens > step)
    return empty_step * len(steps) + Fraction(reads, replicas)


def best_split(bulk: Responses, tail: Responses, empty_step: int) -> int:
    """Replicas of four for the tail with which the slower part ends first."""
    if not bulk or not tail:
        return 4 if tail else 0
    return min(
        range(1, 4),
        key=lambda count: max(walked(tail, count, empty_step), walked(bulk, 4 - count, empty_step)),
    )


@few
@given(seed=st.integers(0, 9999), tokens=st.integers(20, 59), empty_step=st.sampled_from([0, 30, 3000]))
def test_each_batch_is_split_so_that_its_slower_part_ends_first(seed: int, tokens: int, empty_step: int) -> None:
    """Groups whose longest member is long on replicas of their own, as many as the batch needs."""
    given = {"tail_tokens": tokens, "predictor": "oracle", "empty_step_tokens": empty_step}
    log = ran({"preset": "tailsieve", **given}, seed=seed, **{**WIDE, "trainer__gpus": 4})
    calls = list(placed(log))
    assert len(calls) == 3 * 32
    for step, (tail, bulk_work, tail_work) in enumerate(batches(log, tokens)):
        count = best_split(bulk_work, tail_work, empty_step)
        for call, load in calls[32 * step : 32 * (step + 1)]:
            mine = range(4 - count, 4) if call.sample in tail else range(4 - count)
            assert call.replica in mine
            assert load[call.replica] == min(load[replica] for replica in mine)


def test_a_longer_tail_is_given_more_replicas_and_a_batch_without_one_none() -> None:
    bulk, none = work_of([(10, 100.0)] * 60), work_of([])
    splits = [tail_replicas(bulk, work_of([(10, tokens)] * 8), 8, 20) for tokens in (50.0, 100.0, 250.0, 400.0, 999.0)]
    assert splits == sorted(splits)
    assert (splits[0], splits[-1]) == (1, 7)
    assert tail_replicas(bulk, none, 8, 20) == 0
    assert tail_replicas(none, bulk, 8, 20) == 8


@pytest.mark.parametrize(
    ("made", "field"),
    [
        (PrefixAware(max_extra_calls=-1), "max_extra_calls"),
        (ConsistentHash(virtual_nodes=0), "virtual_nodes"),
        (ConsistentHash(max_load_ratio=0.9), "max_load_ratio"),
        (TailSplit(tail_tokens=0), "tail_tokens"),
        (TailSplit(tail_tokens=5, empty_step_tokens=-1), "empty_step_tokens"),
        (TailSplit(tail_tokens=5, predictor="siblings-max"), "predictor"),
        (Balance(max_gap_calls=0), "max_gap_calls"),
        (Repack(below_calls=1), "below_calls"),
        (Repack(every_seconds=-1.0), "every_seconds"),
        (Repack(below_calls=8, capacity_calls=7), "capacity_calls"),
    ],
)
def test_parameters_out_of_range_are_named(made: Any, field: str) -> None:
    with pytest.raises(ParameterError) as caught:
        made.start(RunSizes(2, 2, 2, 8))
    assert caught.value.path == field


def test_a_single_replica_cannot_be_split() -> None:
    with pytest.raises(ParameterError, match="two replicas"):
        TailSplit(tail_tokens=5).start(RunSizes(2, 2, 1, 8))


def test_least_tokens_is_not_least_in_flight() -> None:
    view = loaded([0, 3])
    fly(view, 0, 100)
    assert view.loads.least() == 0
    assert LeastTokens().replica(view, newcomer()) == 1


# -- chance --------------------------------------------------------------------------------------------


def test_hashed_chance_is_uniform_and_normal_and_the_same_every_time() -> None:
    scores = [normal("test", number) for number in range(4000)]
    assert sum(scores) / 4000 == pytest.approx(0, abs=0.06)
    assert sum(score**2 for score in scores) / 4000 == pytest.approx(1, abs=0.08)
    assert sum(uniform("test", number) < 0.25 for number in range(4000)) / 4000 == pytest.approx(0.25, abs=0.03)
    assert scores[:9] == [normal("test", number) for number in range(9)] != [normal("other", n) for n in range(9)]


# -- balance -------------------------------------------------------------------------------------------


def test_balance_moves_half_the_difference_the_calls_begun_last_and_one_move_at_a_time() -> None:
    view = loaded([7, 1, 2])
    balance = Balance(max_gap_calls=3).start(view.shape)
    moves = balance.moves(view)
    assert [(sample.sample, to) for sample, to in moves] == [(4, 1), (5, 1), (6, 1)]
    for sample, _ in moves:
        sample.aborting = True
    assert not balance.moves(view)
    assert not Balance(max_gap_calls=6).start(view.shape).moves(view)


@few
@given(seed=st.integers(0, 9999), gap=st.integers(1, 3), transfer=st.booleans())
def test_calls_that_move_go_on_from_their_tokens_where_they_were_sent(seed: int, gap: int, transfer: bool) -> None:
    policy = part("migration", "balance", max_gap_calls=gap, transfers_kv=transfer)
    policy["parts"]["dispatch"] = {"use": "group-affinity"}
    log = ran(policy, seed=seed, **{**FOUR, "workload__prompts_per_step": 5, "workload__group_size": 6})
    made: Counter[int] = Counter()
    at: dict[int, int] = {}
    moved = 0
    for row in log.decisions[:-1]:
        cuts = row.event.cuts if isinstance(row.event, Aborted) else ()
        made.update({cut.sample: cut.tokens for cut in cuts})
        for call in row.commands:
            if isinstance(call, Submit) and call.sample in {cut.sample for cut in cuts}:
                assert call.made_tokens == made[call.sample]
                assert call.kv_from_pool == (transfer and call.made_tokens > 0)
                assert call.replica != at[call.sample]
                moved += 1
            if isinstance(call, Submit):
                at[call.sample] = call.replica
    assert moved
    assert len(log.iterations) == 3


# -- repack --------------------------------------------------------------------------------------------


@few
@given(calls=st.lists(st.integers(1, 9), min_size=2, max_size=12), spare=st.integers(0, 12))
def test_a_best_fit_merger_overfills_nobody_and_leaves_nothing_that_could_still_merge(
    calls: list[int], spare: int
) -> None:
    held = dict(enumerate(calls))
    capacity = max(calls) + spare
    merged = best_fit(held, capacity)
    assert not set(merged) & set(merged.values())
    after = {replica: count for replica, count in held.items() if replica not in merged}
    for source, to in merged.items():
        after[to] += held[source]
    assert max(after.values()) <= capacity
    untouched = sorted(count for replica, count in held.items() if replica in after and replica not in merged.values())
    if len(untouched) > 1:
        assert untouched[0] + untouched[1] > capacity


def test_repack_merges_replicas_that_run_low_and_leaves_full_ones_alone() -> None:
    view = loaded([1, 9, 3, 2])
    moves = Repack(below_calls=4, capacity_calls=5).start(view.shape).moves(view)
    assert {sample.replica for sample, _ in moves} == {0, 3} or {sample.replica for sample, _ in moves} == {0}
    assert {to for _, to in moves} <= {2, 3}
    assert all(sample.replica != to for sample, to in moves)


def test_repack_never_mixes_replicas_of_different_versions() -> None:
    view = loaded([2, 1, 1])
    view.replica_versions = {0: 3, 1: 4, 2: 4}
    repack = Repack(below_calls=4, capacity_calls=9, every_seconds=0.0).start(view.shape)
    assert [(sample.replica, to) for sample, to in repack.moves(view)] == [(1, 2)]
    view.replica_versions = {0: 4, 1: 3, 2: 4}
    assert [(sample.replica, to) for sample, to in repack.moves(view)] == [(2, 0)]


def test_repack_waits_its_period_unless_weights_have_changed() -> None:
    view = loaded([1, 9, 9])
    repack = Repack(below_calls=3, capacity_calls=9, every_seconds=5.0).start(view.shape)
    view.version = 1
    assert not repack.moves(view)
    fly(view, 2)
    view.loads.add(2, -9)
    view.generating_samples = {n: s for n, s in view.generating_samples.items() if s.replica != 2 or n == 19}
    assert not repack.moves(view)
    view.now = 5 * TICKS_PER_SECOND
    assert len(repack.moves(view)) == 1
    view.version = 2
    assert len(repack.moves(view)) == 1


@few
@given(seed=st.integers(0, 9999), below=st.integers(4, 6))
def test_repack_empties_replicas_in_a_run_that_ends_like_any_other(seed: int, below: int) -> None:
    policy = part("migration", "repack", below_calls=below, capacity_calls=6, every_seconds=0.0)
    log = ran(policy, seed=seed, **WIDE)
    sent = [(call.sample, call.replica) for call, _ in placed(log)]
    assert len(sent) > len({sample for sample, _ in sent})
    assert any(isinstance(made, Abort) for row in log.decisions for made in row.commands)
    assert sum(row.tokens for row in log.final) + log.undelivered_tokens == log.generated_tokens
    assert {row.outcome for row in log.final} <= {"trained", "in_flight", "buffered"}
