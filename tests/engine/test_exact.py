"""The jumping engine is exact: a cluster lives the same life, to the integer, however its steps are counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from typing import Any

import pytest
from cluster import Abort, Cluster, Outcome, Sample, Slow, Turn, Update, jumping, live, naive, stepping
from hypothesis import given, settings
from hypothesis import strategies as st
from seeded import disciplined_cluster, seeded_cluster

from rlsim.engine.discipline import VLLM, AgeingQueue, Conservative, Discipline, PastFuture, StepTarget
from rlsim.engine.requests import EngineLimits
from rlsim.engine.steptime import StepTime

SEEDS, DISCIPLINED_SEEDS = 1000, 600
CHUNK = 50


def assert_exact(cluster: Cluster) -> Outcome:
    """Jumped, stepped and walked agree; what the walk does not know, KV from the host, is left to the other two."""
    outcome = live(cluster, jumping(cluster))
    assert live(cluster, stepping(cluster)) == outcome
    if not cluster.offloads:
        assert live(cluster, naive(cluster)) == outcome
    return outcome


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_a_seeded_cluster_lives_the_same_life_on_every_engine(first: int) -> None:
    for seed in range(first, first + CHUNK):
        assert_exact(seeded_cluster(seed))


@pytest.mark.parametrize("first", range(0, DISCIPLINED_SEEDS, CHUNK))
def test_a_seeded_cluster_under_a_discipline_lives_the_same_life_on_every_engine(first: int) -> None:
    for seed in range(first, first + CHUNK):
        assert_exact(disciplined_cluster(seed))


# -- clusters too rare to wait for -------------------------------------------------------------------------


def one_engine(limits: EngineLimits, *samples: Sample, **more: Any) -> Cluster:
    """A single replica whose steps take two ticks each."""
    law = StepTime([2] * (limits.max_num_batched_tokens + 1), [0] * (limits.max_num_seqs + 1), [0] * 9, 0)
    return Cluster(limits, law, replicas=1, ranks=1, samples=samples, in_flight=1, **more)


def test_an_urgent_call_goes_before_one_that_waits_for_blocks_and_does_not_wait_for_the_end_of_the_jump() -> None:
    cluster = one_engine(
        EngineLimits(3, 64, 64, 4, 11, enable_prefix_caching=False, scheduling_policy="priority"),
        Sample(0, 4, (Turn(40),), arrival=0, priority=1),
        Sample(1, 40, (Turn(2),), arrival=3, priority=1),
        Sample(2, 4, (Turn(5),), arrival=41, priority=0),
    )
    ends = [event[2] for event in assert_exact(cluster).events if event[1] == "finished"]
    assert ends == [2, 0, 1]


def test_after_a_reset_the_more_urgent_of_two_that_end_together_is_first() -> None:
    cluster = one_engine(
        EngineLimits(2, 64, 64, 4, 64, enable_prefix_caching=False, scheduling_policy="priority"),
        Sample(0, 4, (Turn(10),), arrival=0, priority=1),
        Sample(1, 4, (Turn(8),), arrival=3, priority=0),
        updates=(Update(at=9, ticks=0, scope="all", reset=True, publishes=True),),
    )
    ends = [event[1:3] for event in assert_exact(cluster).events if event[1] == "finished"]
    assert ends == [("finished", 1), ("finished", 0)]


def test_a_request_preempted_after_its_turn_gives_its_budget_to_the_prefill_behind_it() -> None:
    cluster = one_engine(
        EngineLimits(3, 4, 16, 1, 20, enable_prefix_caching=False, scheduling_policy="priority"),
        Sample(0, 1, (Turn(15),), arrival=0, priority=2),
        Sample(1, 1, (Turn(15),), arrival=1, priority=0),
        Sample(2, 11, (Turn(2),), arrival=3, priority=0),
    )
    chunks = (2, 2, 2, 2, 3)
    first_tokens = {sample: first_token for sample, first_token, *_ in assert_exact(cluster).calls}
    assert sum(chunks) == 11
    assert first_tokens[2] == 4 + 2 * len(chunks)


def test_a_call_refused_enters_when_another_outlives_its_prediction_not_when_it_ends() -> None:
    """Outputs of 10 and 12 are known. At 66 one call has made 3: with 10 each, the peak is 8 + 2 * 7 = 22 tokens.

    At 80 it has made 10, so 12 are predicted, and the peak is 15 + 2 * 2 = 19; it ends at 86.
    """
    rule = PastFuture(quantile=0.5, reserved_fraction=0, initial_calls=0)
    cluster = one_engine(
        EngineLimits(2, 64, 20, 1, 21, enable_prefix_caching=False, discipline=Discipline(rule)),
        Sample(0, 1, (Turn(10),), arrival=0),
        Sample(0, 1, (Turn(12),), arrival=30),
        Sample(1, 4, (Turn(13),), arrival=60),
        Sample(2, 1, (Turn(5),), arrival=64),
    )
    outcome = assert_exact(cluster)
    assert {sample: first_token for sample, first_token, *_ in outcome.calls}[3] == 82
    assert [(event[0], event[2]) for event in outcome.events if event[1] == "finished"] == [
        (20, 0), (54, 1), (86, 2), (90, 3)
    ]  # fmt: skip


# -- clusters drawn by hypothesis, which shrinks them ------------------------------------------------------

small_ticks = st.integers(0, 40)


@st.composite
def engine_limits(draw: st.DrawFn) -> EngineLimits:
    length, seats, size = draw(st.integers(2, 24)), draw(st.integers(1, 4)), draw(st.sampled_from((1, 2, 4)))
    chunked = draw(st.booleans())
    spare = draw(st.integers(0, 8)) + (0 if chunked else length)
    return EngineLimits(
        max_num_seqs=seats,
        max_num_batched_tokens=seats + spare,
        max_model_len=length,
        block_size=size,
        kv_blocks=-(-length // size) + draw(st.integers(0, 12)),
        enable_prefix_caching=draw(st.booleans()),
        enable_chunked_prefill=chunked,
        scheduling_policy=draw(st.sampled_from(("fcfs", "priority"))),
    )


@st.composite
def step_times(draw: st.DrawFn, limits: EngineLimits) -> StepTime:
    tokens, seats = limits.max_num_batched_tokens + 1, limits.max_num_seqs + 1
    dense = draw(st.lists(st.integers(1, 9), min_size=tokens, max_size=tokens))
    sequence, kv, mixed = (draw(st.lists(st.integers(0, 2), min_size=seats, max_size=seats)) for _ in range(3))
    return StepTime(dense, sequence, kv, draw(st.integers(0, 2)), mixed_kv_ps=draw(st.sampled_from(([], mixed))))


@st.composite
def samples(draw: st.DrawFn, length: int) -> Sample:
    first = Turn(draw(st.integers(1, length)))
    later = st.builds(Turn, st.integers(1, length), st.integers(0, 4), small_ticks)
    return Sample(
        prompt=draw(st.integers(0, 1)),
        prompt_tokens=draw(st.integers(1, length - 1)),
        turns=(first, *draw(st.lists(later, max_size=2))),
        arrival=draw(st.none() | small_ticks),
        priority=draw(st.integers(0, 2)),
    )


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    limits = draw(engine_limits())
    aborts = st.builds(Abort, small_ticks, st.integers(1, 3), st.none() | small_ticks)
    updates = st.builds(
        Update, small_ticks, small_ticks, st.sampled_from(("all", "each")), reset=st.booleans(), publishes=st.booleans()
    )
    return Cluster(
        limits=limits,
        law=draw(step_times(limits)),
        replicas=draw(st.integers(1, 3)),
        ranks=draw(st.integers(1, 3)),
        samples=tuple(draw(st.lists(samples(limits.max_model_len), min_size=1, max_size=12))),
        in_flight=draw(st.integers(1, 12)),
        aborts=tuple(draw(st.lists(aborts, max_size=3))),
        updates=tuple(draw(st.lists(updates, max_size=3))),
        slow=tuple(draw(st.lists(st.builds(Slow, small_ticks, small_ticks, st.sampled_from((1.5, 2.0))), max_size=2))),
        round_robin=draw(st.booleans()),
        sticky=draw(st.booleans()),
        forgets=draw(st.booleans()),
        offloads=draw(st.booleans()),
        drift=draw(st.integers(0, 2)),
        close_at=draw(st.none() | st.integers(0, 120)),
    )


@st.composite
def disciplines(draw: st.DrawFn) -> Discipline:
    fractions = st.sampled_from((0.0, 0.1, 0.5))
    quantiles = st.none() | st.sampled_from((0.1, 0.5, 1.0))
    past_future = st.builds(PastFuture, quantiles, fractions, st.integers(1, 5), st.integers(0, 2))
    return Discipline(
        admission=draw(st.none() | st.builds(Conservative, fractions) | past_future),
        step_target=draw(st.none() | st.builds(StepTarget, st.integers(1, 20), st.integers(1, 4))),
        max_concurrent_prefills=draw(st.none() | st.integers(1, 3)),
        ageing=draw(st.none() | st.builds(AgeingQueue, st.integers(0, 2), st.integers(0, 9))),
    )


@st.composite
def disciplined_clusters(draw: st.DrawFn) -> Cluster:
    """A step law that has a target to meet is one: more tokens never take less time."""
    cluster, discipline = draw(clusters()), draw(disciplines())
    limits = replace(cluster.limits, discipline=discipline)
    if discipline.ageing is not None:
        limits = replace(limits, scheduling_policy="fcfs")
    if discipline.step_target is not None:
        limits = replace(limits, enable_chunked_prefill=True)
    law = replace(cluster.law, dense_ps=sorted(cluster.law.dense_ps))
    return replace(cluster, limits=limits, law=law, states_longest=draw(st.booleans()))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(clusters())
def test_a_drawn_cluster_lives_the_same_life_on_every_engine(cluster: Cluster) -> None:
    assert_exact(cluster)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(disciplined_clusters())
def test_a_drawn_cluster_under_a_discipline_lives_the_same_life_on_every_engine(cluster: Cluster) -> None:
    assert_exact(cluster)


# -- what the comparison would not notice if it were not there ---------------------------------------------


def happenings(cluster: Cluster) -> Counter[str]:
    """How often the things happened that make an engine hard to get right."""
    replicas = jumping(cluster)
    outcome, limits, counts = live(cluster, replicas), cluster.limits, Counter[str]()
    counts["steps jumped over"] = sum(replica.total_steps - replica.windows for replica in replicas)
    counts["preemptions"] = sum(rank.preemptions for replica in replicas for rank in replica.ranks)
    counts["calls cut short"] = sum(len(event[2:]) for event in outcome.events if event[1] == "aborted")
    counts["weight updates"] = sum(event[1] == "updated" for event in outcome.events)
    counts["calls under two versions"] = sum(len(segments) > 1 for _, _, _, segments, _ in outcome.calls)
    counts["turns after the first"] = len(outcome.calls) - len({call[0] for call in outcome.calls})
    counts["finishes at one instant"] = len(outcome.events) - len({event[0] for event in outcome.events})
    counts["prefill tokens"] = sum(prefill for _, _, prefill, *_ in outcome.replicas)
    uncached = replace(cluster, limits=replace(limits, enable_prefix_caching=False))
    if limits.enable_prefix_caching:
        without = live(uncached, jumping(uncached))
        counts["cases with prefix hits"] = sum(r[2] for r in without.replicas) > counts["prefill tokens"]
    counts["unfinished chunks"] = sum(replica[6] for replica in outcome.replicas) - len(outcome.calls)
    counts["cases in lockstep"] = cluster.ranks > 1
    return counts


def test_the_seeds_reach_what_they_are_meant_to_compare() -> None:
    counts = sum((happenings(seeded_cluster(seed)) for seed in range(100)), Counter[str]())
    assert counts["steps jumped over"] > 5000
    for happening in ("preemptions", "calls cut short", "weight updates", "calls under two versions"):
        assert counts[happening] > 50, counts
    for happening in ("turns after the first", "finishes at one instant", "unfinished chunks"):
        assert counts[happening] > 100, counts
    for kind in ("cases with prefix hits", "cases in lockstep"):
        assert counts[kind] > 25, counts


def rule_by_rule(cluster: Cluster) -> Counter[str]:
    """Which rules of a cluster's discipline change its life, each on its own, and what admission tests decided."""
    rules, counts = cluster.limits.discipline, Counter[str]()
    plain = replace(cluster, limits=replace(cluster.limits, discipline=VLLM))
    untouched = live(plain, jumping(plain))
    for field in fields(Discipline):
        one = Discipline(**{field.name: getattr(rules, field.name)})
        alone = replace(cluster, limits=replace(cluster.limits, discipline=one))
        counts[field.name] += live(alone, jumping(alone)) != untouched
    walked = naive(cluster)
    live(cluster, walked)
    for rank in (rank for replica in walked for rank in replica.ranks):
        counts["admissions refused"] += rank.scheduler.refusals
        counts["refusals taken again for a surprise"] += rank.scheduler.retaken
    jumped = jumping(cluster)
    live(cluster, jumped)
    counts["steps jumped over"] = sum(replica.total_steps - replica.windows for replica in jumped)
    return counts


def test_the_seeds_reach_every_rule_of_a_discipline() -> None:
    counts = sum((rule_by_rule(disciplined_cluster(seed)) for seed in range(200)), Counter[str]())
    assert counts["steps jumped over"] > 5000
    assert counts["admissions refused"] > 100, counts
    assert counts["refusals taken again for a surprise"] > 20, counts
    for field in fields(Discipline):
        assert counts[field.name] > 10, counts
