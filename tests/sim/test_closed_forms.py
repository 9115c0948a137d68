"""Step times against closed forms: list scheduling, static batches, barriers and one batch ahead.

The formulas are those of Graham (1969), TailSieve (static batch), DORA (the synchronous step), verl's one-step-off
policy, and the order statistics of the exponential and the uniform law.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_runs import MANY, STEP, finishes, intervals, planned, ran, spans, spread, submissions, train_ticks

from rlsim.core.ticks import Ticks, to_ticks
from rlsim.engine.replica import Replica
from rlsim.engine.requests import EngineLimits, Request
from rlsim.engine.steptime import StepTime
from rlsim.sim.simulation import simulate

PROMPT = 40
LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=24)


def limits(seats: int, priority: bool = False) -> EngineLimits:
    """An engine whose seats alone are scarce."""
    return EngineLimits(seats, 4096, 4096, 16, 10_000, False, True, "priority" if priority else "fcfs")


def constant_law(seats: int) -> StepTime:
    """Every step takes one tick."""
    return StepTime([1] * 4097, [0] * (seats + 1), [0] * (seats + 1), 0)


def makespan(replica: Replica, requests: Sequence[Request]) -> Ticks:
    """When the last of requests submitted at once has ended."""
    for request in requests:
        replica.submit(request)
    now = 0
    while (end := replica.begin(now)) is not None:
        replica.end(end)
        now = end
    return now


def requests_of(lengths: Sequence[int], longest_first: bool = False) -> list[Request]:
    """Calls of given lengths on prompts of their own."""
    return [
        Request(number, number, PROMPT, PROMPT, tokens, -tokens if longest_first else 0)
        for number, tokens in enumerate(lengths)
    ]


def list_schedule(lengths: Sequence[int], workers: int) -> int:
    """Each job in turn to the worker that is free first; the last end."""
    free = [0] * workers
    for length in lengths:
        heapq.heapreplace(free, free[0] + length)
    return max(free)


def optimum(lengths: Sequence[int], workers: int) -> int:
    """The least makespan of all assignments."""
    return min(
        max(
            sum(length for length, at in zip(lengths, places, strict=True) if at == worker) for worker in range(workers)
        )
        for places in product(range(workers), repeat=len(lengths))
    )


# -- list scheduling ----------------------------------------------------------------------------------


@MANY
@given(LENGTHS, st.integers(1, 6))
def test_seats_are_list_scheduling_machines_within_grahams_bounds(lengths: list[int], seats: int) -> None:
    steps = makespan(Replica(0, limits(seats), constant_law(seats)), requests_of(lengths))
    work, longest = Fraction(sum(lengths), seats), max(lengths)
    assert steps == list_schedule(lengths, seats)
    assert longest <= steps
    assert work <= steps <= work + (1 - Fraction(1, seats)) * longest


@MANY
@given(st.lists(st.integers(1, 30), min_size=1, max_size=7), st.integers(2, 3))
def test_longest_first_is_within_four_thirds_of_the_optimum(lengths: list[int], seats: int) -> None:
    replica = Replica(0, limits(seats, priority=True), constant_law(seats))
    steps = makespan(replica, requests_of(lengths, longest_first=True))
    assert steps <= (Fraction(4, 3) - Fraction(1, 3 * seats)) * optimum(lengths, seats)


@pytest.mark.parametrize("seats", [1, 3, 8])
def test_a_whole_round_obeys_grahams_bounds(seats: int) -> None:
    log = ran(
        {
            "rollout.max_num_seqs": seats,
            "workload.prompts_per_step": 24,
            "workload.group_size": 1,
            "workload.response_tokens": spread(1, 90),
            "run.steps": 1,
        }
    )
    tokens = {event.sample: event.tokens for _, event in finishes(log)}
    lengths = [tokens[command.sample] for _, command in submissions(log)]
    steps, odd = divmod(log.windows[-1].end, STEP)
    assert odd == 0
    assert steps == list_schedule(lengths, seats)
    assert steps <= Fraction(sum(lengths), seats) + (1 - Fraction(1, seats)) * max(lengths)


# -- a static batch -----------------------------------------------------------------------------------


@st.composite
def step_laws(draw: st.DrawFn, seats: int) -> StepTime:
    """Any law whose decode attention has one coefficient."""
    dense = sorted(draw(st.lists(st.integers(1, 10**10), min_size=seats + 1, max_size=seats + 1)))
    sequence = draw(st.lists(st.integers(0, 10**9), min_size=seats + 1, max_size=seats + 1))
    dense += [dense[-1] + 7 * tokens for tokens in range(1, 4097 - seats)]
    kv = draw(st.integers(0, 10**6))
    return StepTime(dense, sequence, [kv] * (seats + 1), draw(st.integers(0, 10**5)))


@MANY
@given(st.data(), st.lists(st.integers(1, 300), min_size=1, max_size=12))
def test_a_static_batch_takes_the_sum_of_its_batch_sizes(data: st.DataObject, lengths: list[int]) -> None:
    """T = prefill + sum over j of tau(j) (L_j - L_{j+1}), L descending, plus the KV that every decode reads."""
    count = len(lengths)
    law = data.draw(step_laws(count))
    decodes = [length - 1 for length in sorted(lengths, reverse=True)] + [0]
    pairs = count * PROMPT * (PROMPT + 1) // 2
    prefill = law.mixed(0, 0, count, count * PROMPT, pairs)
    alone = sum(law.decode(j, 0) * (decodes[j - 1] - decodes[j]) for j in range(1, count + 1))
    read = sum(PROMPT * steps + steps * (steps + 1) // 2 for steps in decodes)
    assert makespan(Replica(0, limits(count), law), requests_of(lengths)) == prefill + alone + law.kv_ps[1] * read


def test_a_batch_that_shares_its_prompt_prefills_the_full_blocks_once() -> None:
    log = ran({"rollout.enable_prefix_caching": True, "run.steps": 1, "workload.group_size": 4})
    shared = PROMPT // 16 * 16
    assert log.prefill_tokens == 4 * (PROMPT + 3 * (PROMPT - shared))


# -- barriers -----------------------------------------------------------------------------------------

WAVE = {
    "rollout.gpus": 2,
    "workload.response_tokens": spread(1, 90),
    "rollout.step_time": {"source": "coefficients", "base_seconds": 0.01, "per_prefill_token_seconds": 1e-4},
}


@pytest.mark.parametrize("seed", range(5))
def test_a_synchronous_step_is_prefill_longest_response_training_and_sync(seed: int) -> None:
    """T = T_train + T_prefill + tau * max L, for each replica of the same load in one wave."""
    made = planned({**WAVE, "seed": seed})
    log = simulate(made).log
    law = made.pools[0].law.quantise(8192, 64)
    size = 4
    prefill = law.mixed(0, 0, size, size * PROMPT, 0)
    tokens = {event.sample: event.tokens for _, event in finishes(log)}
    longest = [max(tokens[sample] for sample in range(step * 8, step * 8 + 8)) for step in range(3)]
    sync = to_ticks(made.sync.seconds())
    expected = [
        prefill + (most - 1) * law.decode(1, 0) + train + sync
        for most, train in zip(longest, train_ticks(made, log), strict=True)
    ]
    assert intervals(log) == expected


@pytest.mark.parametrize("seed", range(5))
def test_the_bubble_of_a_wave_is_the_gap_between_longest_and_mean(seed: int) -> None:
    log = ran({"workload.response_tokens": spread(1, 90), "seed": seed, "run.steps": 1})
    lengths = [event.tokens for _, event in finishes(log)]
    used = sum(row.steps * (row.decodes + row.chunks) for row in log.windows)
    idle = 1 - Fraction(used, len(lengths) * sum(row.steps for row in log.windows))
    assert idle == (max(lengths) - Fraction(sum(lengths), len(lengths))) / max(lengths)


@pytest.mark.parametrize("scope", ["global", "per_replica"])
def test_a_colocated_step_is_generation_switches_phases_and_sync_and_nothing_else(scope: str) -> None:
    made = planned(
        {
            **WAVE,
            "policy.preset": "sync-colocated",
            "trainer.gpus": 2,
            "sync.scope": scope,
            "switching": {"sleep_seconds": 1.5, "wake_seconds": 0.7},
        }
    )
    log = simulate(made).log
    to_training, to_rollout = (
        to_ticks(seconds) for seconds in (made.switching.to_training_seconds(), made.switching.to_rollout_seconds())
    )
    assert (to_training, to_rollout) == (to_ticks(1.5), to_ticks(0.7))
    ends = [0, *(row.end for row in log.iterations)]
    for step, (start, took) in enumerate(zip(ends, intervals(log), strict=False)):
        generation = max(row.end for row in log.windows if start <= row.start < ends[step + 1]) - start
        sync = to_ticks(made.sync.seconds())
        assert took == generation + to_training + train_ticks(made, log)[step] + to_rollout + sync
    assert [row.end - row.start for row in spans(log, "switch")] == [to_training, to_rollout] * 3


# -- one batch ahead ----------------------------------------------------------------------------------


@pytest.mark.parametrize("fixed_seconds", [0.0, 3.0])
def test_one_step_off_takes_the_longer_of_generation_and_training_and_the_sync(fixed_seconds: float) -> None:
    made = planned(
        {
            "policy.preset": "one-step-off",
            "run.steps": 6,
            "workload.response_tokens": 200,
            "trainer.fixed_seconds_per_step": fixed_seconds,
        }
    )
    log = simulate(made).log
    generation, train = 200 * STEP, train_ticks(made, log)[0]
    assert (train > generation) == (fixed_seconds == 3.0)
    sync = to_ticks(made.sync.seconds())
    assert intervals(log) == [generation + max(generation, train) + sync] + [max(generation, train) + sync] * 5


# -- order statistics ---------------------------------------------------------------------------------


def longest_of_groups(law: dict[str, object], size: int, steps: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Engine steps of many barriers of one group each."""
    made = planned(
        {
            "workload.prompts_per_step": 1,
            "workload.group_size": size,
            "workload.response_tokens": law,
            "run.steps": steps,
        }
    )
    log = simulate(made).log
    sync = to_ticks(made.sync.seconds())
    waits = [took - train - sync for took, train in zip(intervals(log), train_ticks(made, log), strict=True)]
    assert all(wait % STEP == 0 for wait in waits)
    return np.array([wait // STEP for wait in waits], dtype=np.float64)


@pytest.mark.parametrize("size", [1, 4, 8])
def test_a_barrier_waits_for_the_harmonic_number_of_exponential_means(size: int) -> None:
    law = {"law": "gamma", "mean_tokens": 400, "shape": 1, "cap_tokens": 16_000}
    steps = longest_of_groups(law, size, 500)
    harmonic = sum(1 / k for k in range(1, size + 1))
    error = 400 * sum(1 / k**2 for k in range(1, size + 1)) ** 0.5 / len(steps) ** 0.5
    assert steps.mean() == pytest.approx(400 * harmonic, abs=4 * error)


@pytest.mark.parametrize("size", [2, 8])
def test_a_barrier_waits_for_the_largest_of_uniform_lengths(size: int) -> None:
    steps = longest_of_groups(spread(1, 800), size, 500)
    mean = 801 / 2 * 2 * size / (size + 1)
    deviation = 800 * (size / (size + 2)) ** 0.5 / (size + 1)
    assert steps.mean() == pytest.approx(mean, abs=4 * deviation / len(steps) ** 0.5 + 1)
