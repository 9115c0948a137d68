"""A discipline in a whole run: it reaches the replicas, changes when calls run and never what they are."""

from __future__ import annotations

from typing import Any

import pytest
from small_runs import finishes, planned, ran

from rlsim.core.log import RunLog
from rlsim.core.ticks import to_ticks
from rlsim.engine.replica import Replica
from rlsim.engine.requests import Request
from rlsim.executor.run import make_controller, make_world
from rlsim.sim.simulation import Simulation

STEP_TIME = {
    "source": "coefficients",
    "base_seconds": 0.01,
    "per_kv_token_seconds": 1e-6,
    "per_prefill_token_seconds": 1e-4,
}
TIGHT: dict[str, Any] = {
    "rollout.step_time": STEP_TIME,
    "rollout.kv_blocks": 60,
    "rollout.max_model_len": 800,
    "workload.prompts_per_step": 16,
    "workload.group_size": 4,
    "workload.prompt_tokens": {"law": "uniform", "low_tokens": 10, "high_tokens": 200},
    "workload.response_tokens": {"law": "lognormal", "median_tokens": 60, "sigma": 1, "cap_tokens": 500},
    "run.steps": 2,
}
RULES = {
    "conservative": {"admission": "conservative"},
    "past_future": {"admission": "past_future"},
    "paced": {"target_step_seconds": 0.015, "min_chunk_tokens": 8},
    "capped": {"max_concurrent_prefills": 1},
    "aged": {"order": "ageing", "waiting_weight": 1, "prefill_weight": 0.01},
}


def under(rules: dict[str, object]) -> RunLog:
    return ran({**TIGHT, "rollout.discipline": rules})


def outputs(log: RunLog) -> list[tuple[int, int]]:
    """Tokens of every sample: what luck gave it."""
    return sorted((event.sample, event.tokens) for _, event in finishes(log))


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_changes_when_calls_run_and_not_how_long_they_are(rule: str) -> None:
    plain, ruled = under({}), under(RULES[rule])
    assert outputs(ruled) == outputs(plain)
    assert [row.end for row in ruled.windows] != [row.end for row in plain.windows]


def test_the_default_named_is_the_default() -> None:
    assert under({"admission": "aggressive"}).windows == ran(TIGHT).windows


def test_no_window_of_a_run_holds_more_prefills_than_the_cap_or_lasts_longer_than_the_target() -> None:
    assert all(row.chunks <= 1 for row in under(RULES["capped"]).windows)
    assert any(row.chunks > 1 for row in under({}).windows)
    mixed = [row for row in under(RULES["paced"]).windows if row.chunks]
    assert all(row.end - row.start <= to_ticks(0.015) or row.prefill_tokens <= 8 for row in mixed)
    assert sum(row.end - row.start > to_ticks(0.0145) for row in mixed) > 10, "targets are made use of"


def lived(changes: dict[str, Any]) -> tuple[int, list[Request]]:
    """Preemptions of a run, and all calls as the engine was asked for them."""
    plan = planned(changes)
    workload = plan.workload_of(0)
    world = make_world(plan, workload)
    (replica,) = world.replicas
    asked: list[Request] = []

    def submit(request: Request) -> bool:
        asked.append(request)
        return Replica.submit(replica, request)

    replica.submit = submit  # type: ignore[method-assign]
    Simulation(make_controller(plan, workload), world).run(plan.scenario.run.steps)
    return replica.ranks[0].preemptions, asked


@pytest.mark.interpreted
def test_a_conservative_run_preempts_nothing_and_a_predicting_one_less_than_a_greedy_one() -> None:
    greedy, predicting, conservative = (
        lived({**TIGHT, "rollout.discipline": {"admission": rule}})[0]
        for rule in ("aggressive", "past_future", "conservative")
    )
    assert greedy > predicting >= conservative == 0


@pytest.mark.interpreted
def test_an_engine_is_told_what_a_call_may_make_and_not_what_it_will() -> None:
    _, asked = lived(TIGHT)
    assert {call.max_tokens for call in asked} == {500}
    assert len({call.target_tokens for call in asked}) > 20


@pytest.mark.interpreted
def test_a_call_that_ends_early_by_the_policy_tells_the_engine_so() -> None:
    """Seer divides a rollout into calls of at most a chunk; the rest of the cap bounds the last."""
    seer = {"policy": {"preset": "seer", "chunk_tokens": 120}, "rollout.scheduling_policy": "priority"}
    _, asked = lived({**TIGHT, **seer})
    assert all(call.target_tokens <= call.max_tokens <= 120 for call in asked)
    made = {call.max_tokens for call in asked}
    assert made == {120, 20}
