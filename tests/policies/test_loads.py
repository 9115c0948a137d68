"""Loads: the least loaded open replica of all or of a range, against a scan."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rlsim.core.loads import Loads
from rlsim.core.view import Group, Pool, RequestClass, RunSizes, Sample, View
from rlsim.policies.admission.fixed_concurrency import RefillEmpty
from rlsim.policies.dispatch.pools import ByClass, ByContext, ByWeight
from rlsim.policies.migration import Balance, Repack
from rlsim.policies.registry import parts_of


class AgainstAScan(RuleBasedStateMachine):
    """Any order of calls, closings and questions."""

    @initialize(replicas=st.integers(1, 13))
    def begin(self, replicas: int) -> None:
        self.loads, self.closed = Loads(replicas), set[int]()
        self.calls, self.tokens = [0] * replicas, [0] * replicas

    @rule(place=st.integers(0, 999), change=st.sampled_from([1, 1, -1]), tokens=st.integers(0, 50))
    def call(self, place: int, change: int, tokens: int) -> None:
        replica = place % len(self.calls)
        self.loads.add(replica, change, tokens)
        self.calls[replica] += change
        self.tokens[replica] += change * tokens

    @rule(place=st.integers(0, 999))
    def close(self, place: int) -> None:
        self.loads.close(place % len(self.calls))
        self.closed.add(place % len(self.calls))

    @rule(place=st.integers(0, 999))
    def open(self, place: int) -> None:
        self.loads.open(place % len(self.calls))
        self.closed.discard(place % len(self.calls))

    @rule(first=st.integers(0, 12), count=st.integers(0, 13))
    def ask(self, first: int, count: int) -> None:
        within = range(min(first, len(self.calls)), min(first + count, len(self.calls)))
        self.same(within)

    @invariant()
    def books(self) -> None:
        assert self.loads.in_flight == self.calls
        assert self.loads.context_tokens == self.tokens
        assert [self.loads.is_open(replica) for replica in range(len(self.calls))] == [
            replica not in self.closed for replica in range(len(self.calls))
        ]
        assert self.loads.open_count == len(self.calls) - len(self.closed)

    @rule()
    def ask_all(self) -> None:
        self.same(None)

    def same(self, within: range | None) -> None:
        replicas = [n for n in (range(len(self.calls)) if within is None else within) if n not in self.closed]
        assert self.loads.any_open(within) == bool(replicas)
        if not replicas:
            with pytest.raises(LookupError, match="no open replica"):
                self.loads.least(within)
            return
        assert self.loads.least(within) == min(replicas, key=lambda n: (self.calls[n], n))
        assert self.loads.least_tokens(within) == min(replicas, key=lambda n: (self.tokens[n], n))


AgainstAScan.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestAgainstAScan = AgainstAScan.TestCase


class Counted(list[int]):
    """A tree that counts its reads."""

    reads = 0

    def __getitem__(self, place: Any) -> Any:
        Counted.reads += 1
        return super().__getitem__(place)


@pytest.mark.parametrize("replicas", [64, 4096])
def test_a_call_and_a_question_read_a_few_places_a_level(replicas: int) -> None:
    loads = Loads(replicas)
    loads.least()
    least = loads._calls
    least._tree, Counted.reads = Counted(least._tree), 0
    for step in range(100):
        loads.add(loads.least(range(replicas // 3, replicas)), 1)
        loads.add(step % replicas, 1)
    assert Counted.reads / 100 <= 10 * replicas.bit_length()


# -- closed replicas and every part ---------------------------------------------------------------------

POOLS = (Pool("prefill", 0, 3, 8), Pool("decode", 3, 3, 8))
SHAPE = RunSizes(2, 4, 6, 8, POOLS, (RequestClass("prefill"), RequestClass("decode")))
GIVEN: dict[str, dict[str, Any]] = {
    "tail-split": {"tail_tokens": 5},
    "by-context": {"context_tokens": 30},
}


def state(loads: list[int]) -> View:
    view = View(SHAPE, Loads(6), oracle_tokens=lambda sample: 3 * sample.member)
    for replica, calls in enumerate(loads):
        view.loads.add(replica, calls)
    return view


def samples(prompt_tokens: int, count: int = 4) -> list[Sample]:
    group = Group(7, 7, 0, prompt_tokens, 0, 0)
    group.members = [Sample(member, group, member) for member in range(count)]
    return group.members


@pytest.mark.parametrize("name", parts_of("dispatch"))
@settings(max_examples=40, deadline=None)
@given(
    loads=st.lists(st.integers(0, 5), min_size=6, max_size=6),
    closed=st.sets(st.integers(0, 5), max_size=5),
    held=st.integers(-1, 5),
    prompt_tokens=st.integers(1, 60),
    turns=st.integers(1, 6),
)
def test_no_dispatch_part_sends_a_call_to_a_closed_replica(
    name: str, loads: list[int], closed: set[int], held: int, prompt_tokens: int, turns: int
) -> None:
    if name == "prefill-decode":  # Each of its pools needs a replica that is open.
        closed -= {0, 5}
    part = parts_of("dispatch")[name](**GIVEN.get(name, {})).start(SHAPE)
    view = state(loads)
    for replica in closed:
        view.loads.close(replica)
    for sample in samples(prompt_tokens):
        sample.replica, sample.state = held, "running" if held >= 0 else "new"
        for _ in range(turns):
            sample.replica = part.replica(view, sample)
            assert sample.replica not in closed
            view.loads.add(sample.replica, 1, prompt_tokens)


@pytest.mark.parametrize("name", parts_of("dispatch"))
def test_a_replica_that_was_closed_and_is_open_again_is_used(name: str) -> None:
    part = parts_of("dispatch")[name](**GIVEN.get(name, {})).start(SHAPE)
    view = state([0] * 6)
    for replica in range(1, 6):
        view.loads.close(replica)
    for replica in range(1, 6):
        view.loads.open(replica)
    seen = set()
    for draw in range(200):
        group = Group(draw, draw, 0, 1 + draw % 60, 0, 0, draw % 2)
        group.members = [Sample(draw, group, draw % 4)]
        chosen = part.replica(view, group.members[0])
        view.loads.add(chosen, 1, group.prompt_tokens)
        seen.add(chosen)
    everywhere = set(POOLS[0].replicas) if name == "prefill-decode" else set(range(6))
    assert seen == everywhere


def test_calls_move_to_open_replicas_only() -> None:
    view = state([9, 0, 1, 5, 5, 5])
    view.loads.close(1)
    for number in range(9):
        sample = samples(10, 1)[0]
        sample.replica, sample.sample = 0, number
        view.generating_samples[number] = sample
    assert {to for _, to in Balance(max_gap_calls=2).start(SHAPE).moves(view)} == {2}
    repack = Repack(below_calls=4, capacity_calls=9, every_seconds=0.0).start(SHAPE)
    assert not repack.moves(view)
    for replica in range(6):
        view.loads.close(replica)
    assert not Balance(max_gap_calls=2).start(SHAPE).moves(view)


def test_an_empty_replica_that_is_closed_is_not_refilled() -> None:
    view, refill = state([0, 1, 1, 1, 1, 1]), RefillEmpty(replica_batch=4).start(SHAPE)
    assert refill.capacity(view)[0] == 4
    view.loads.close(0)
    assert refill.capacity(view)[0] == 0
    for replica in range(6):
        view.loads.close(replica)
    assert refill.capacity(view)[0] == 0


# -- routing by pool ------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(loads=st.lists(st.integers(0, 9), min_size=6, max_size=6), fast=st.sampled_from([0.5, 1.0, 2.0, 4.0]))
def test_by_weight_takes_the_replica_that_is_least_full_for_its_weight(loads: list[int], fast: float) -> None:
    part = ByWeight({"prefill": 1.0, "decode": fast}).start(SHAPE)
    chosen = part.replica(state(loads), samples(1)[0])
    fill = [(calls + 1) / (1.0 if replica < 3 else fast) for replica, calls in enumerate(loads)]
    assert fill[chosen] == min(fill)


def test_by_weight_fills_replicas_in_proportion() -> None:
    part, view = ByWeight({"prefill": 1.0, "decode": 3.0}).start(SHAPE), state([0] * 6)
    for _ in range(120):
        view.loads.add(part.replica(view, samples(1)[0]), 1)
    assert view.loads.in_flight == [10, 10, 10, 30, 30, 30]


@settings(max_examples=60, deadline=None)
@given(loads=st.lists(st.integers(0, 9), min_size=6, max_size=6), tokens=st.integers(1, 60))
def test_by_context_takes_the_least_loaded_of_the_pool_for_its_length(loads: list[int], tokens: int) -> None:
    part = ByContext(30).start(SHAPE)
    chosen = part.replica(state(loads), samples(tokens)[0])
    pool = POOLS[1] if tokens >= 30 else POOLS[0]
    assert chosen == min(pool.replicas, key=lambda replica: (loads[replica], replica))


@settings(max_examples=60, deadline=None)
@given(loads=st.lists(st.integers(0, 9), min_size=6, max_size=6), kind=st.integers(0, 1), closed=st.booleans())
def test_by_class_keeps_to_the_pool_of_the_class_however_busy_it_is(loads: list[int], kind: int, closed: bool) -> None:
    part, view, call = ByClass().start(SHAPE), state(loads), samples(1)[0]
    call.group.request_class = kind
    for replica in POOLS[kind].replicas if closed else ():
        view.loads.close(replica)
    allowed = POOLS[1 - kind].replicas if closed else POOLS[kind].replicas
    assert part.replica(view, call) == min(allowed, key=lambda replica: (loads[replica], replica))
