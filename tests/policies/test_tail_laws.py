"""What schedules against the tail are worth: paired runs, t intervals over replications, and the list-scheduling bound.

Engine steps last the same whatever the batch, unless a test says otherwise: what is gained is the tail alone.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tail_runs import (
    STEP_SECONDS,
    gain,
    high,
    low,
    measured,
    ordered,
    planned,
    prefill_costs,
    ran,
    rollout_seconds,
)

from rlsim.core.events import Finished
from rlsim.core.log import RunLog
from rlsim.resolve import ResolvedScenario

SCARCE: dict[str, Any] = {
    "rollout__gpus": 4,
    "rollout__max_num_seqs": 4,
    "workload__prompts_per_step": 24,
    "workload__response_tokens": {"law": "lognormal", "median_tokens": 60, "sigma": 0.9, "cap_tokens": 400},
}
"""Twelve times as many samples as seats, and a cap: the work of all seats counts, not the longest response."""


# -- order ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [0.5, 0.9, 1.3])
def test_an_oracle_that_runs_the_longest_first_does_not_lose_to_fcfs_where_seats_are_few(sigma: float) -> None:
    fcfs = measured(ordered("fcfs"), rollout_seconds, sigma=sigma)
    longest = measured(ordered("longest-first", predictor="oracle"), rollout_seconds, sigma=sigma)
    assert low(gain(fcfs, longest)) > 1.0
    assert all(one <= other + STEP_SECONDS for one, other in zip(longest, fcfs, strict=True))


def test_the_shortest_first_ends_later_than_fcfs_but_its_first_groups_earlier() -> None:
    """The price of a short mean is a long tail."""
    fcfs = measured(ordered("fcfs"), rollout_seconds)
    shortest = ordered("shortest-first", predictor="oracle")
    assert high(gain(fcfs, measured(shortest, rollout_seconds))) < 1.0
    assert low(gain(measured(ordered("fcfs"), half_ended), measured(shortest, half_ended))) > 1.2


def half_ended(log: RunLog) -> float:
    ends = sorted(row.now for row in log.decisions if isinstance(row.event, Finished))
    return ends[len(ends) // 2] / 1e12


def test_with_seats_for_all_no_order_matters() -> None:
    seats = {"rollout__max_num_seqs": 128}
    runs = [
        measured(ordered(use, predictor="oracle"), rollout_seconds, 3, **seats)
        for use in ("longest-first", "shortest-first")
    ]
    assert runs[0] == runs[1] == measured(ordered("fcfs"), rollout_seconds, 3, **seats)


def test_what_siblings_tell_is_worth_nothing_without_correlation_and_something_with_it() -> None:
    """Against the same chunks and the same rule with one estimate for everyone."""
    found = []
    for rho in (0.0, 0.98):
        given = {**SCARCE, "workload__intra_group_correlation": rho}
        blind = ordered("tail_runs:Blind", expected_tokens=400, tokens_a_chunk=20)
        siblings = ordered("divided", prior_tokens=400, chunk_tokens=20)
        found.append(gain(measured(blind, rollout_seconds, **given), measured(siblings, rollout_seconds, **given)))
    assert low(found[0]) <= 1.0
    assert found[0].mean < 1.01
    assert low(found[1]) > 1.0
    assert found[1].mean > found[0].mean + 0.03


def test_knowing_prompts_is_worth_as_much_as_knowing_samples_when_groups_are_alike_and_less_when_they_are_not() -> None:
    lead = []
    for rho in (0.0, 0.98):
        given = {**SCARCE, "workload__intra_group_correlation": rho}
        prompt, oracle = (
            measured(ordered("longest-first", predictor=name), rollout_seconds, **given)
            for name in ("prompt-mean", "oracle")
        )
        lead.append(gain(prompt, oracle))
    assert low(lead[0]) > 1.005
    assert lead[1].mean == pytest.approx(1.0, abs=0.005)


def test_a_noisier_predictor_is_worth_less() -> None:
    fcfs = measured(ordered("fcfs"), rollout_seconds, **SCARCE)
    gains = [
        gain(fcfs, measured(ordered("longest-first", predictor="noisy", sigma=sigma), rollout_seconds, **SCARCE)).mean
        for sigma in (0.0, 0.7, 5.0)
    ]
    assert gains[0] > gains[1] > gains[2]
    assert gains[2] == pytest.approx(1.0, abs=0.05)


# -- the bound -----------------------------------------------------------------------------------------


def lengths(log: RunLog) -> list[int]:
    made: Counter[int] = Counter()
    for row in log.decisions:
        if isinstance(row.event, Finished):
            made[row.event.sample] += row.event.tokens
    return list(made.values())


def above_bound(made: ResolvedScenario, log: RunLog) -> float:
    """Rollout time over that of list scheduling at its best: the mean work of a seat, or the longest response."""
    tokens, seats = lengths(log), made.shape.replicas * made.shape.max_num_seqs
    return rollout_seconds(log) / (STEP_SECONDS * max(sum(tokens) / seats, max(tokens)))


def test_chunks_with_free_kv_and_an_oracle_approach_the_list_scheduling_bound() -> None:
    worst = []
    for chunk in (20, 10, 5):
        made = planned(ordered("longest-first", predictor="oracle", chunk_tokens=chunk, shares_kv=True), **SCARCE)
        found = [above_bound(made, ran(made, replication)) for replication in range(3)]
        assert min(found) >= 1.0
        worst.append(max(found))
    assert worst == sorted(worst, reverse=True)
    assert worst[-1] < 1.02


def test_whole_calls_stay_within_grahams_bound_of_any_list_on_one_replica_and_away_from_the_best() -> None:
    one = {**SCARCE, "rollout__gpus": 1, "rollout__max_num_seqs": 16}
    made = planned(ordered("fcfs"), **one)
    for replication in range(4):
        log = ran(made, replication)
        tokens = lengths(log)
        bound = sum(tokens) / 16 + (1 - 1 / 16) * max(tokens)
        prefill_steps = 1 + len(tokens) / 16
        assert rollout_seconds(log) / STEP_SECONDS <= bound + prefill_steps
    spread = planned(ordered("fcfs"), **SCARCE)
    assert min(above_bound(spread, ran(spread, replication)) for replication in range(4)) > 1.1


def test_kv_that_has_to_be_fetched_or_computed_again_costs_the_chunks_their_gain() -> None:
    given: dict[str, Any] = {**SCARCE, "rollout__step_time": prefill_costs(0.01)}
    policies = [
        ordered("longest-first", predictor="oracle", chunk_tokens=20, shares_kv=shares) for shares in (True, False)
    ]
    pooled, computed = (measured(policy, rollout_seconds, 4, **given) for policy in policies)
    assert low(gain(computed, pooled)) > 1.5
