"""Trajectories with tools: what is prefilled again, who waits for whom, and where a trajectory ends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_runs import (
    FEW,
    STEP,
    UNIFORM,
    finishes,
    intervals,
    planned,
    ran,
    ran_with_slow_restores,
    spread,
    submissions,
    train_ticks,
    turn_of,
    turns,
)

from rlsim.core.commands import CallTool, Submit
from rlsim.core.events import Aborted, Finished, Synced, ToolReturned
from rlsim.core.log import RunLog
from rlsim.core.ticks import to_ticks
from rlsim.engine.replica import Replica
from rlsim.engine.requests import EngineLimits, Request
from rlsim.engine.steptime import StepTime
from rlsim.executor.run import make_world
from rlsim.sim.clock import SimClock
from rlsim.sim.fleet import SimFleet
from rlsim.sim.simulation import simulate

BLOCK, PROMPT = 16, 40
HALF = to_ticks(0.5)
ONE_ROUND = {
    "run.steps": 1,
    "rollout.enable_prefix_caching": True,
    "workload.group_size": 1,
    "workload.turns": turns(spread(1, 4), 0.5, spread(1, 60)),
    "workload.response_tokens": UNIFORM,
}
PARTIAL = {
    "policy": {"preset": "slime-april", "over_sampling_batch_size": 12},
    "workload.group_size": 1,
    "workload.turns": turns(spread(1, 3), {"law": "exponential", "mean_seconds": 1.0}, 20),
    "workload.response_tokens": UNIFORM,
    "run.steps": 12,
}
SEEDS = st.integers(0, 10_000)


def full_blocks(tokens: int) -> int:
    """Tokens in full blocks."""
    return tokens // BLOCK * BLOCK


def prefilled(log: RunLog, kept: Callable[[int], int]) -> int:
    """Prompt tokens that are computed when a turn that ends with some tokens leaves ``kept(tokens)`` to the next."""
    cost, cached = 0, dict[int, int]()
    for command, event in turn_of(log):
        cost += command.context_tokens - cached.get(command.sample, 0)
        cached[command.sample] = kept(command.context_tokens + event.tokens)
    return cost


def all_computed(tokens: int) -> int:
    """The full blocks of all but the last token, which was sampled and never computed."""
    return full_blocks(tokens - 1)


@FEW
@given(SEEDS)
def test_kept_kv_leaves_only_new_tokens_and_the_partial_block_to_prefill(seed: int) -> None:
    log = ran({**ONE_ROUND, "seed": seed})
    assert log.prefill_tokens == prefilled(log, all_computed)


@FEW
@given(SEEDS)
def test_dropped_kv_leaves_the_whole_context_but_the_shared_prompt(seed: int) -> None:
    log = ran({**ONE_ROUND, "seed": seed, "rollout.kv_while_waiting": "drop"})
    assert log.prefill_tokens == prefilled(log, lambda _: full_blocks(PROMPT))


def test_dropped_kv_without_prefix_caching_leaves_the_whole_context() -> None:
    log = ran({**ONE_ROUND, "rollout.enable_prefix_caching": False, "rollout.kv_while_waiting": "drop"})
    assert log.prefill_tokens == prefilled(log, lambda _: 0)


@FEW
@given(SEEDS)
def test_offloaded_kv_leaves_the_last_token_of_each_later_turn(seed: int) -> None:
    log = ran({**ONE_ROUND, "seed": seed, "rollout.kv_while_waiting": "offload"})
    first, later = 0, 0
    for command, _ in turn_of(log):
        first += PROMPT if command.turn == 0 else 0
        later += command.turn > 0
    assert log.prefill_tokens == first + later


@pytest.mark.parametrize("kept", ["keep", "drop", "offload"])
def test_only_offloaded_kv_delays_the_first_token_by_its_way_back(kept: str) -> None:
    four = turns(4, 0.5, spread(1, 60))
    made = planned(
        {**ONE_ROUND, "workload.turns": four, "workload.prompts_per_step": 1, "rollout.kv_while_waiting": kept}
    )
    log = simulate(made).log
    ticks = make_world(made, made.workload_of(0)).restore_ticks_per_token
    assert ticks > 0
    firsts = [event.first_token_at for _, event in finishes(log)]
    asked = submissions(log)
    assert len(firsts) == 4
    for (now, command), first in zip(asked, firsts, strict=True):
        restored = command.context_tokens - 1 if kept == "offload" and command.turn else 0
        assert first - now == restored * ticks + STEP


def test_offloaded_kv_made_by_weights_that_are_gone_is_computed_again() -> None:
    """A publication that drops the KV drops the copies on the host too: a tool call across it costs a prefill."""
    log = ran({**PARTIAL, "rollout.kv_while_waiting": "offload"})
    submitted: dict[int, tuple[int, Submit]] = {}
    kept_at: dict[int, int] = {}
    expected, dropped, stale = 0, -1, 0
    for row in log.decisions:
        event = row.event
        if isinstance(event, Synced):
            dropped = row.now
        for ended in event.cuts if isinstance(event, Aborted) else [event] if isinstance(event, Finished) else []:
            begun, command = submitted.pop(ended.sample)
            fresh = command.turn > 0 and kept_at[command.sample] > begun
            if ended.tokens:
                expected += 1 if fresh else command.context_tokens
                stale += command.turn > 0 and not fresh and not command.made_tokens
            kept_at[ended.sample] = row.now
        submitted |= {made.sample: (dropped, made) for made in row.commands if isinstance(made, Submit)}
    assert log.prefill_tokens == expected
    assert stale > 0


@pytest.mark.parametrize("seed", range(3))
def test_kv_on_its_way_back_is_lost_to_an_update_that_rebuilds_it(seed: int) -> None:
    """One sample at a time, so that every prefill is known: of the new token, or of all that came before."""
    log = ran_with_slow_restores(
        {
            "seed": seed,
            "policy": {
                "preset": "pipelinerl",
                "llm_max_rollouts": 1,
                "parts": {"update": {"use": "publish", "mode": "rebuild"}},
            },
            "rollout.kv_while_waiting": "offload",
            "sync.link_bytes_per_second": 1e10,
            "trainer.fixed_seconds_per_step": 0.7,
            "workload.prompts_per_step": 1,
            "workload.group_size": 1,
            "workload.turns": turns(spread(1, 4), {"law": "exponential", "mean_seconds": 0.4}, 20),
            "workload.response_tokens": UNIFORM,
            "run.steps": 40,
        },
        0.005,
    )
    updates = [row.now for row in log.decisions if isinstance(row.event, Synced)]
    last = finishes(log)[-1][0]
    asked = {(command.sample, command.turn): now for now, command in submissions(log)}
    kept_at, expected, lost = 0, 0, 0
    for (now, _), (command, event) in zip(finishes(log), turn_of(log), strict=True):
        gone = any(kept_at < update < event.first_token_at for update in updates)
        lost += any(asked[event.sample, command.turn] < update < event.first_token_at for update in updates)
        expected += 1 if command.turn and not gone else command.context_tokens
        made = [tokens for _, tokens in event.segments]
        expected += sum(command.context_tokens + sum(made[:part]) for part in range(1, len(made)))
        kept_at = now
    assert sum(row.prefill_tokens for row in log.windows if row.end <= last) == expected
    assert lost > 0


@pytest.mark.parametrize("begun", [False, True])
def test_a_restored_call_computes_its_whole_context_once_its_kv_is_dropped(begun: bool) -> None:
    """Whether it runs or still waits for a seat."""
    replica = Replica(0, EngineLimits(1, 4096, 4096, 16, 1000), StepTime([1] * 4097, [0, 0], [0, 0], 0))
    fleet = SimFleet(SimClock(), [replica], RunLog(), NobodyCalls())
    request = Request(1, 1, PROMPT, 100, 10, restored_tokens=99)
    replica.submit(request)
    if begun:
        replica.begin(0)
        assert replica.window(1).prefill_tokens == 1
        replica.end(1)
    fleet.set_version(1, reset=True)
    replica.begin(2)
    assert replica.window(3).prefill_tokens == 100 + begun


class NobodyCalls:
    """For a fleet in which no call ends."""

    def finished(self, request: Request, replica: int) -> None:
        """Never."""
        raise AssertionError


# -- waiting ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("environments", [1, 3, None])
def test_a_finite_pool_of_environments_delays_turns(environments: int | None) -> None:
    log = ran({"workload.turns": turns(2, 0.5, 20, environments=environments), "run.steps": 1})
    width = environments or 8
    asked = 50 * STEP
    assert [(row.requested, row.start) for row in log.services] == [
        (asked, asked + place // width * HALF) for place in range(8)
    ]
    last = asked + -(-8 // width) * HALF
    again = max(now for now, command in submissions(log) if command.turn == 1)
    assert again == last


@pytest.mark.parametrize(("workers", "delay_seconds"), [(1, 8 * 0.3), (3, 3 * 0.3), (None, 0.3)])
def test_finite_reward_workers_delay_the_batch(workers: int | None, delay_seconds: float) -> None:
    made = planned({"workload.reward": {"latency_seconds": 0.3, "workers": workers}})
    log = simulate(made).log
    sync, generation = to_ticks(made.sync.seconds()), 50 * STEP
    expected = [generation + to_ticks(delay_seconds) + train + sync for train in train_ticks(made, log)]
    assert intervals(log) == expected


def test_a_tool_that_returns_while_the_round_is_over_parks_its_sample() -> None:
    """It is submitted no earlier than the engines wake, and goes on with the turn after its tool call."""
    log = ran(PARTIAL)
    syncs = [row.now for row in log.decisions if isinstance(row.event, Synced)]
    waiting: dict[int, int] = {}
    resumed = 0
    for row in log.decisions:
        if isinstance(row.event, ToolReturned) and not any(type(made) is Submit for made in row.commands):
            waiting[row.event.sample] = row.now
        for command in row.commands:
            if isinstance(command, Submit) and command.sample in waiting:
                since = waiting.pop(command.sample)
                assert command.turn > 0
                assert command.made_tokens == 0
                assert any(since <= sync <= row.now for sync in syncs)
                resumed += 1
    assert resumed > 0


def test_a_cut_turn_goes_on_from_its_tokens_and_no_token_is_made_twice() -> None:
    made = planned(PARTIAL)
    log = simulate(made).log
    workload = made.workload_of(0)
    tokens: dict[tuple[int, int], int] = defaultdict(int)
    place: dict[int, Submit] = {}
    cut = set()
    for row in log.decisions:
        if isinstance(row.event, Aborted):
            for one in row.event.cuts:
                tokens[one.sample, place[one.sample].turn] += one.tokens
                cut.add(one.sample)
        if isinstance(row.event, Finished):
            command, sample = place[row.event.sample], row.event.sample
            tokens[sample, command.turn] += row.event.tokens
            prompt, attempt = workload.prompt_at(command.draw)
            whole = workload.response_tokens(prompt, attempt, command.member, command.turn)
            assert tokens[sample, command.turn] == whole
        for again in (made for made in row.commands if isinstance(made, Submit)):
            assert again.made_tokens == tokens[again.sample, again.turn]
            place[again.sample] = again
    assert cut


@pytest.mark.parametrize("kept", ["keep", "drop", "offload"])
def test_an_abort_takes_every_call_whatever_happens_to_its_kv(kept: str) -> None:
    """Also one whose KV is on its way back from the host: nothing generates while the shared GPUs train."""
    log = ran_with_slow_restores({**PARTIAL, "rollout.kv_while_waiting": kept}, 0.002)
    running: set[int] = set()
    asked: set[int] = set()
    for row in log.decisions:
        if isinstance(row.event, Finished):
            running.discard(row.event.sample)
            asked.discard(row.event.sample)
        if isinstance(row.event, Aborted):
            running -= {one.sample for one in row.event.cuts}
            assert not asked - {one.sample for one in row.event.cuts}
            assert not running
            asked = set()
        for command in row.commands:
            if isinstance(command, Submit):
                running.add(command.sample)
            elif type(command).__name__ == "Abort":
                asked = set(running)
    assert any(isinstance(row.event, Aborted) for row in log.decisions)


# -- where a trajectory ends --------------------------------------------------------------------------


def test_the_context_limit_ends_a_trajectory_for_its_length() -> None:
    log = ran({"workload.turns": turns(3), "rollout.max_model_len": 80, "run.steps": 1})
    assert {(event.tokens, event.reason) for _, event in finishes(log)} == {(80 - PROMPT, "length")}
    assert not log.services


def test_a_tool_output_is_cut_to_leave_room_for_a_token() -> None:
    """Otherwise the next call could never be admitted: its context would be longer than the engine allows."""
    log = ran(
        {
            "workload.turns": turns(4, 0.1, 500),
            "rollout.max_model_len": 112,
            "rollout.kv_blocks": 7,
            "run.steps": 1,
        }
    )
    calls = [(command.turn, command.context_tokens, event.tokens, event.reason) for command, event in turn_of(log)]
    assert sorted(set(calls)) == [(0, PROMPT, 50, "tool"), (1, 111, 1, "length")]


@pytest.mark.parametrize(("cap", "reason"), [(0, "stop"), (50, "length")])
def test_a_response_at_its_cap_ends_for_its_length(cap: int, reason: str) -> None:
    law = {"law": "lognormal", "median_tokens": 5000, "sigma": 0.1, "cap_tokens": 50} if cap else spread(1, 49)
    log = ran({"workload.response_tokens": law, "run.steps": 1})
    assert {event.reason for _, event in finishes(log) if event.tokens != 49} == {reason}


@FEW
@given(SEEDS)
def test_the_context_of_a_turn_is_prompt_and_all_that_came_before(seed: int) -> None:
    log = ran({**ONE_ROUND, "seed": seed})
    output = {
        (row.event.sample, row.now): row.event.output_tokens
        for row in log.decisions
        if isinstance(row.event, ToolReturned)
    }
    calls: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for command, event in turn_of(log):
        calls[command.sample].append((command.context_tokens, event.tokens))
    tools: dict[int, list[int]] = defaultdict(list)
    for (sample, _), tokens in output.items():
        tools[sample].append(tokens)
    for sample, made in calls.items():
        assert made[0][0] == PROMPT
        growth = [later[0] - earlier[0] - earlier[1] for earlier, later in pairwise(made)]
        assert growth == tools[sample]


def test_every_turn_but_the_last_calls_a_tool_once() -> None:
    made = planned(ONE_ROUND)
    log = simulate(made).log
    workload = made.workload_of(0)
    calls = [made for row in log.decisions for made in row.commands if isinstance(made, CallTool)]
    for command, event in turn_of(log):
        prompt, attempt = workload.prompt_at(command.draw)
        count = workload.turn_count(prompt, attempt, command.member)
        assert (event.reason == "tool") == (command.turn + 1 < count)
    assert len(calls) == sum(event.reason == "tool" for _, event in finishes(log)) == len(log.services)
