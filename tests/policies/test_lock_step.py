"""Turns taken together: nothing generates while a tool runs, and a turn lasts as long as its slowest call and tool."""

from __future__ import annotations

from typing import Any

import pytest
from policy_runs import AGENTS, TOOLS, moments, outcomes, ran

from rlsim.core.commands import CallTool, Submit
from rlsim.core.events import ToolReturned
from rlsim.core.log import RunLog
from rlsim.core.ticks import to_seconds

LOCK_STEP: dict[str, Any] = {"preset": "sync-colocated", "parts": {"turns": {"use": "lock-step"}}}
ALONE: dict[str, Any] = {"preset": "sync-colocated"}
ENGINE_STEP_SECONDS = 0.01
SHARED: dict[str, Any] = {
    "rollout__gpus": 4,
    "trainer__gpus": 4,
    "rollout__step_time": {"source": "coefficients", "base_seconds": ENGINE_STEP_SECONDS},
    "run__steps": 2,
}


def tools_and_calls(log: RunLog) -> list[tuple[int, int]]:
    """Tool calls and generate calls under way after every decision."""
    tools: set[int] = set()
    found = []
    for moment in moments(log):
        if isinstance(moment.event, ToolReturned):
            tools.discard(moment.event.sample)
        tools |= {made.sample for made in moment.commands if isinstance(made, CallTool)}
        found.append((len(tools), len(moment.calls)))
    return found


def test_nothing_generates_while_a_tool_runs() -> None:
    together = tools_and_calls(ran(LOCK_STEP, **SHARED, workload__turns=TOOLS))
    alone = tools_and_calls(ran(ALONE, **SHARED, workload__turns=TOOLS))
    assert max(tools for tools, _ in together) > 1
    assert not any(tools and calls for tools, calls in together)
    assert any(tools and calls for tools, calls in alone)


@pytest.mark.parametrize("turns", [1, 2, 4])
def test_a_rollout_is_the_sum_of_the_slowest_calls_and_the_slowest_tools(turns: int) -> None:
    latencies = {"law": "empirical", "values": [0.5, 3.0]}
    workload = {"count": turns, "tool_latency_seconds": latencies, "tool_output_tokens": 5}
    sizes = {"workload__prompts_per_step": 16, "workload__group_size": 4, "workload__response_tokens": 30}
    log = ran(LOCK_STEP, **SHARED, **sizes, workload__turns=workload)
    train = next(
        row.now for row in log.decisions if any(not isinstance(made, Submit | CallTool) for made in row.commands)
    )
    slowest = turns * 30 * ENGINE_STEP_SECONDS + (turns - 1) * 3.0
    assert to_seconds(train) == pytest.approx(slowest, abs=turns * 4 * ENGINE_STEP_SECONDS), "prefill steps aside"


def test_taking_turns_together_changes_no_sample_and_never_ends_a_step_sooner() -> None:
    together, alone = (ran(policy, **SHARED, workload__turns=TOOLS) for policy in (LOCK_STEP, ALONE))
    assert sorted(row.tokens for row in together.final) == sorted(row.tokens for row in alone.final)
    assert together.iterations[0].end >= alone.iterations[0].end


def test_one_turn_has_nobody_to_wait_for() -> None:
    together, alone = (ran(policy, **SHARED) for policy in (LOCK_STEP, ALONE))
    assert [row.end for row in together.iterations] == [row.end for row in alone.iterations]


def test_a_round_that_ends_parks_those_who_wait() -> None:
    policy = {
        "preset": "slime-april",
        "over_sampling_batch_size": 5,
        "parts": {"turns": {"use": "lock-step"}, "leftovers": {"use": "end-round", "keeps_unfinished": False}},
    }
    log = ran(policy, rollout__gpus=4, trainer__gpus=4, **AGENTS)
    assert len(log.iterations) == 5
    assert "dropped_surplus" in outcomes(log)
    assert sum(row.tokens for row in log.final) + log.undelivered_tokens == log.generated_tokens
