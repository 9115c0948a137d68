"""Replicas that die at any instant: nothing is lost from the books, and the run goes on where that is possible."""

from __future__ import annotations

from functools import cache

import pytest
from faulty_runs import hold, lived, losing, losses, planned
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_runs import AGENTS, POLICIES

from rlsim.core.commands import Submit, Sync
from rlsim.core.events import Aborted, ReplicaLost, Synced
from rlsim.core.log import RunLog
from rlsim.live.protocols import EngineLostError
from rlsim.resolve import ResolvedScenario

EVERY = pytest.mark.parametrize("preset", POLICIES)
NEED_THE_FIRST = {
    "vllm-pd-disaggregation",
    "p-d-serve",
    "roll-agentic-partial-gpu",
    "verl-v1-separate-async-hybrid",
    "verl-fully-async-dynamic",
}
"""Their first replica is the only prefill replica, or the only one that the trainer does not lend."""


@cache
def world(preset: str, agents: bool) -> tuple[ResolvedScenario, RunLog]:
    """A preset and its run without faults."""
    made = planned(preset, **(AGENTS if agents else {}))
    return made, lived(made, losing({})).log


@EVERY
@given(agents=st.booleans(), share=st.floats(0, 1), data=st.data())
@settings(max_examples=4)
def test_one_lost_replica_ends_no_run_that_does_not_need_it(
    preset: str, agents: bool, share: float, data: st.DataObject
) -> None:
    made, whole = world(preset, agents)
    replica = data.draw(st.integers(int(preset in NEED_THE_FIRST), made.shape.replicas - 1))
    ending = lived(made, losing({replica: int(share * whole.end)}))
    assert ending.fault is None
    assert len(ending.log.iterations) == len(whole.iterations)
    hold(made, ending.log)
    assert {event.replica for event in losses(ending.log)} <= {replica}


@given(
    preset=st.sampled_from(sorted(POLICIES)),
    agents=st.booleans(),
    shares=st.lists(st.floats(0, 1), min_size=2, max_size=4),
    data=st.data(),
)
@settings(max_examples=60)
def test_any_losses_at_any_instants_leave_a_whole_log(
    preset: str, agents: bool, shares: list[float], data: st.DataObject
) -> None:
    made, whole = world(preset, agents)
    replicas = data.draw(st.permutations(range(made.shape.replicas)))
    ending = lived(made, losing({r: int(s * whole.end) for r, s in zip(replicas, shares, strict=False)}))
    assert ending.fault is None or isinstance(ending.fault, EngineLostError)
    hold(made, ending.log)


@EVERY
def test_when_all_are_lost_the_run_stops_and_says_so(preset: str) -> None:
    made, whole = world(preset, True)
    middle = whole.end // 2
    ending = lived(made, losing({replica: middle + replica for replica in range(made.shape.replicas)}))
    assert isinstance(ending.fault, EngineLostError)
    hold(made, ending.log)


def test_the_message_says_that_no_replica_is_left() -> None:
    made, whole = world("sync-disaggregated", False)
    ending = lived(made, losing({0: whole.end // 3, 1: whole.end // 2, 2: whole.end // 2 + 1}))
    assert str(ending.fault) == "no replica is left: all 3 were lost"


def test_a_policy_that_needs_what_was_lost_says_which_and_why() -> None:
    made, whole = world("p-d-serve", False)
    ending = lived(made, losing({0: whole.end // 2}))
    assert "cannot go on without the replicas that were lost (0)" in str(ending.fault)
    assert "gate: lost" in str(ending.fault)


# -- what becomes of the calls ------------------------------------------------------------------------


def test_a_lost_call_goes_on_elsewhere_from_its_tokens() -> None:
    made, whole = world("one-step-off", False)
    log = lived(made, losing({1: whole.end // 2})).log
    place, lost = next((n, row.event) for n, row in enumerate(log.decisions) if isinstance(row.event, ReplicaLost))
    again = {command.sample: command for command in log.decisions[place].commands if isinstance(command, Submit)}
    assert lost.cuts
    assert any(cut.tokens for cut in lost.cuts)
    for cut in lost.cuts:
        assert again[cut.sample].replica != 1
        assert again[cut.sample].made_tokens >= cut.tokens
        assert again[cut.sample].context_tokens > again[cut.sample].made_tokens
    later = [c for row in log.decisions[place:] for c in row.commands if isinstance(c, Submit)]
    assert all(command.replica != 1 for command in later)


def test_a_sample_that_loses_its_replica_twice_fails_with_its_group_and_the_group_is_replaced() -> None:
    made, whole = world("nemo-rl-async", False)
    soon = whole.end // 3
    ending = lived(made, losing({0: soon, 1: soon + 10**10}))
    outcomes = {row.sample: row.outcome for row in ending.log.final}
    failed = {sample for sample, outcome in outcomes.items() if outcome == "failed"}
    assert failed
    assert all(outcomes[sample ^ 1] == "failed" for sample in failed)
    assert ending.fault is None
    hold(made, ending.log)


# -- at what moment -----------------------------------------------------------------------------------


def instants(log: RunLog, kind: type, reply: type) -> list[int]:
    """Midway between a command and its reply."""
    asked = [row.now for row in log.decisions for command in row.commands if isinstance(command, kind)]
    told = [row.now for row in log.decisions if isinstance(row.event, reply)]
    return [(start + end) // 2 for start, end in zip(asked, told, strict=False) if end > start]


@pytest.mark.parametrize("preset", ["areal", "pipelinerl", "slime-april", "laminar", "verl-sync", "laminar-repack"])
def test_while_weights_are_published_or_loaded(preset: str) -> None:
    made, whole = world(preset, True)
    loading = [(row.start + row.end) // 2 for row in whole.spans if row.who == 2 and row.what == "sync"]
    for instant in [*instants(whole, Sync, Synced)[:3], *loading[:3]]:
        ending = lived(made, losing({2: instant}))
        assert ending.fault is None
        hold(made, ending.log)


@pytest.mark.parametrize("preset", ["seer", "slime-april", "copris", "miles-fully-async"])
def test_while_calls_are_being_cut(preset: str) -> None:
    made, whole = world(preset, False)
    cut = [row.now for row in whole.decisions if isinstance(row.event, Aborted) and row.event.cuts]
    for instant in cut[:5]:
        for early in (0, 1, 10**9):
            ending = lived(made, losing({1: instant - early}))
            assert ending.fault is None
            hold(made, ending.log)


@pytest.mark.parametrize("preset", ["roll-agentic-partial-gpu", "verl-v1-separate-async-hybrid"])
def test_a_lent_replica_that_was_lost_is_never_used_again(preset: str) -> None:
    made, whole = world(preset, True)
    lent = made.shape.lent_replicas[-1]
    spans = [(row.start, row.end) for row in whole.spans if row.what == "lent"]
    assert spans
    for start, end in spans[:3]:
        log = lived(made, losing({lent: (start + end) // 2})).log
        hold(made, log)
        assert {event.replica for event in losses(log)} <= {lent}
        told = next((n for n, row in enumerate(log.decisions) if isinstance(row.event, ReplicaLost)), None)
        if told is not None:
            later = [c for row in log.decisions[told:] for c in row.commands if isinstance(c, Submit)]
            assert all(command.replica != lent for command in later)


def test_an_idle_replica_is_missed_when_it_is_next_needed() -> None:
    made, whole = world("sync-disaggregated", False)
    trained = [row.start for row in whole.spans if row.who == -1 and row.what != "sync"]
    log = lived(made, losing({0: trained[0] + 1})).log
    assert losses(log)
    assert all(not cut.tokens for cut in losses(log)[0].cuts)
    hold(made, log)
