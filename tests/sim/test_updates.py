"""New weights under running samples, training in parts, ranks in lockstep and steps with noise."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_runs import (
    BASE,
    FEW,
    STEP,
    UNIFORM,
    commands,
    finishes,
    intervals,
    planned,
    ran,
    spans,
    spread,
    submissions,
    train_ticks,
    turns,
)

from rlsim.core.commands import Submit, Train
from rlsim.core.events import Aborted, Finished
from rlsim.core.log import RunLog
from rlsim.core.ticks import Ticks, to_seconds, to_ticks
from rlsim.engine.steptime import StepTime
from rlsim.resolve import ResolveError
from rlsim.sim.simulation import simulate

UNEVEN = {"source": "coefficients", "base_seconds": 0.01, "per_sequence_seconds": 0.001}
IN_FLIGHT = {
    "policy": {"preset": "pipelinerl", "llm_max_rollouts": 6},
    "rollout.gpus": 3,
    "rollout.step_time": UNEVEN,
    "workload.response_tokens": UNIFORM,
    "run.steps": 6,
}


def step_ends(log: RunLog, replica: int) -> list[Ticks]:
    """The end of every engine step of a replica whose steps do not depend on the KV."""
    ends: list[Ticks] = []
    for row in log.windows:
        if row.replica == replica:
            one, odd = divmod(row.end - row.start, row.steps)
            assert odd == 0
            ends += range(row.start + one, row.end + 1, one)
    return ends


def segments_by_the_clock(log: RunLog, event: Finished) -> tuple[tuple[int, int], ...]:
    """One token a step from the first token on, each by the weights of the replica's last update before the step."""
    updates = spans(log, "sync", event.replica)
    at = [row.end for row in updates]
    versions = [0, *(row.step for row in updates)]
    ends = step_ends(log, event.replica)
    first = bisect_left(ends, event.first_token_at)
    counts: dict[int, int] = defaultdict(int)
    for end in ends[first : first + event.tokens]:
        counts[versions[bisect_left(at, end)]] += 1
    return tuple(counts.items())


@pytest.mark.parametrize("scope", ["global", "per_replica"])
@pytest.mark.parametrize("several", [False, True])
def test_every_token_bears_the_version_its_replica_served_at_that_step(scope: str, several: bool) -> None:
    more = {"workload.turns": turns(spread(1, 3), {"law": "exponential", "mean_seconds": 0.5})} if several else {}
    log = ran({**IN_FLIGHT, **more, "sync.scope": scope})
    events = [event for _, event in finishes(log)]
    assert [event.segments for event in events] == [segments_by_the_clock(log, event) for event in events]
    assert any(len(event.segments) > 1 for event in events)


def test_replicas_that_update_alone_do_so_at_their_own_boundaries() -> None:
    made = planned({**IN_FLIGHT, "sync.scope": "per_replica"})
    log = simulate(made).log
    sync = to_ticks(made.sync.seconds())
    starts = defaultdict(set)
    for replica in range(3):
        boundaries = {0, *step_ends(log, replica)}
        for row in spans(log, "sync", replica):
            assert row.end - row.start == sync
            assert row.start in boundaries
            starts[row.step].add(row.start)
    assert max(len(found) for found in starts.values()) > 1


def test_a_global_update_stops_every_replica_for_the_same_time() -> None:
    made = planned(IN_FLIGHT)
    log = simulate(made).log
    updates = [[(row.start, row.end, row.step) for row in spans(log, "sync", replica)] for replica in range(3)]
    assert updates[0] == updates[1] == updates[2]
    assert {end - start for start, end, _ in updates[0]} == {to_ticks(made.sync.seconds())}
    for start, end, _ in updates[0]:
        assert not any(row.start < end and row.end > start for row in log.windows)


@pytest.mark.parametrize("scope", ["global", "per_replica"])
def test_clients_of_cut_calls_wait_for_their_poll_before_they_go_on(scope: str) -> None:
    changes = {**IN_FLIGHT, "policy": {"preset": "areal", "pause_poll_seconds": 0.35}, "sync.scope": scope}
    made = planned(changes)
    pauses = {row.end - row.start for replica in range(3) for row in spans(simulate(made).log, "sync", replica)}
    assert pauses == {to_ticks(made.sync.seconds()) + to_ticks(0.35)}


@pytest.mark.parametrize("preset", ["pipelinerl", "slime-april"])
@pytest.mark.parametrize("growth", [0.2, -0.2])
def test_drift_keeps_the_quantile_and_takes_the_version_of_the_first_token(preset: str, growth: float) -> None:
    """A resumed call keeps its length though the weights have moved on."""
    changes = {
        **IN_FLIGHT,
        "workload.response_tokens": spread(5, 120),
        "workload.turns": turns(spread(1, 2), {"law": "exponential", "mean_seconds": 0.5}),
        "policy": {"preset": preset} | ({"over_sampling_batch_size": 9} if preset == "slime-april" else {}),
        "cluster.gpus": 6,
        "trainer.gpus": 3 if preset == "slime-april" else 1,
    }
    made = planned({**changes, "workload.drift": {"growth_per_version": growth, "max_factor": 4.0}})
    log = simulate(made).log
    workload, steady = made.workload_of(0), planned(changes).workload_of(0)
    begun: dict[tuple[int, int], int] = {}
    total: dict[tuple[int, int], int] = defaultdict(int)
    calls: dict[int, Submit] = {}
    drifted = 0
    for row in log.decisions:
        event = row.event
        for ended in event.cuts if isinstance(event, Aborted) else [event] if isinstance(event, Finished) else []:
            command = calls[ended.sample]
            if ended.tokens:
                begun.setdefault((ended.sample, command.turn), ended.segments[0][0])
            total[ended.sample, command.turn] += ended.tokens
            if isinstance(ended, Finished):
                prompt, attempt = workload.prompt_at(command.draw)
                place = (prompt, attempt, command.member, command.turn)
                version = begun[ended.sample, command.turn]
                assert total[ended.sample, command.turn] == workload.response_tokens(*place, version)
                drifted += workload.response_tokens(*place, version) != steady.response_tokens(*place)
        calls |= {made.sample: made for made in row.commands if isinstance(made, Submit)}
    assert drifted > 0


# -- training in parts --------------------------------------------------------------------------------

STREAM = {
    "policy": {"preset": "one-step-off", "parts": {"batching": {"use": "micro-batch-stream", "min_groups": 1}}},
    "workload.response_tokens": UNIFORM,
    "trainer.reference": True,
    "trainer.fixed_seconds_per_step": 0.5,
}


def trainings(log: RunLog) -> list[Train]:
    """In the order in which they were asked for."""
    return [made for _, made in commands(log) if isinstance(made, Train)]


def test_a_streamed_batch_is_trained_once_and_steps_the_optimizer_once() -> None:
    log = ran(STREAM)
    trained = [sample for command in trainings(log) for sample in command.samples]
    assert len(trained) == len(set(trained)) == 3 * 8
    assert set(trained) == {row.sample for row in log.final if row.outcome == "trained"}
    assert [command.step for command in trainings(log)] == [0] * 4 + [1] * 4 + [2] * 4
    assert [command.last for command in trainings(log)] == [False, False, False, True] * 3


def test_more_than_one_update_a_step_is_refused_for_a_stream() -> None:
    with pytest.raises(ResolveError, match=r"trainer\.updates_per_step: found 2"):
        planned({**STREAM, "trainer.updates_per_step": 2})


def test_streamed_parts_cost_their_own_passes_and_one_optimizer_step_and_overhead() -> None:
    made = planned(STREAM)
    log = simulate(made).log
    tokens = {event.sample: event.tokens for _, event in finishes(log)}
    cost = made.training
    busy: dict[str, Ticks] = defaultdict(int)
    for row in log.spans:
        if row.who == -1 and row.what != "sync":
            busy[row.what] += row.end - row.start
    parts = [[(40, tokens[sample]) for sample in command.samples] for command in trainings(log)]
    passes = [
        to_ticks(cost.micro_batch_seconds(part) + (cost.optimizer_seconds() if command.last else 0.0))
        for part, command in zip(parts, trainings(log), strict=True)
    ]
    forward = sum(to_ticks(dict(cost.phases(part))["reference"]) for part in parts)
    assert busy == {
        "update_actor": sum(passes),
        "reference": forward,
        "old_log_prob": forward,
        "overhead": 3 * to_ticks(0.5),
    }


def test_a_stream_of_whole_batches_costs_what_a_batch_costs() -> None:
    whole = {**STREAM["policy"], "parts": {"batching": {"use": "micro-batch-stream", "min_groups": 4}}}  # type: ignore[dict-item]
    plain = {**STREAM, "policy": {"preset": "one-step-off"}}
    assert intervals(ran({**STREAM, "policy": whole})) == intervals(ran(plain))


# -- ranks in lockstep --------------------------------------------------------------------------------


Call = tuple[int, int]
"""(prompt tokens, response tokens)."""


def lockstep_ticks(law: StepTime, ranks: list[list[Call]]) -> Ticks:
    """Walk the steps: each lasts as long as its slowest rank; prompts are computed in the first."""
    total = 0
    for rank in ranks:
        prompts = [prompt for prompt, _ in rank]
        pairs = sum(prompt * (prompt + 1) // 2 for prompt in prompts)
        total = max(total, law.mixed(0, 0, len(rank), sum(prompts), pairs))
    for done in range(1, max(length for rank in ranks for _, length in rank)):
        running = [[prompt + done for prompt, length in rank if length > done] for rank in ranks]
        total += max(law.decode(len(contexts), sum(contexts)) for contexts in running if contexts)
    return total


@pytest.mark.parametrize("ranks", [2, 4])
@FEW
@given(seed=st.integers(0, 10_000))
def test_ranks_in_lockstep_wait_for_the_slowest_at_every_step(ranks: int, seed: int) -> None:
    """Also where the rank with the longer contexts is overtaken by the one with more sequences."""
    made = planned(
        {
            "seed": seed,
            "rollout.gpus": ranks,
            "rollout.data_parallel": ranks,
            "rollout.step_time": {**UNEVEN, "per_sequence_seconds": 0.0, "per_kv_token_seconds": 1e-5},
            "cluster.gpus": 8,
            "workload.prompts_per_step": 7,
            "workload.group_size": 1,
            "workload.prompt_tokens": spread(10, 200),
            "workload.response_tokens": UNIFORM,
            "run.steps": 2,
        }
    )
    log = simulate(made).log
    law = made.pools[0].law.quantise(8192, 64)
    prompts = {command.sample: command.context_tokens for _, command in submissions(log)}
    calls = {event.sample: (prompts[event.sample], event.tokens) for _, event in finishes(log)}
    sync = to_ticks(made.sync.seconds())
    for step, (took, train) in enumerate(zip(intervals(log), train_ticks(made, log), strict=True)):
        batch = [calls[7 * step + place] for place in range(7)]
        assert took - train - sync == lockstep_ticks(law, [batch[rank::ranks] for rank in range(ranks)])


# -- noise --------------------------------------------------------------------------------------------


def noisy(cv: float) -> dict[str, object]:
    """Steps with noise."""
    return {"source": "coefficients", "base_seconds": 0.01, "noise_cv": cv}


@pytest.mark.parametrize("cv", [0.3, 1.0, 2.5])
def test_noise_leaves_the_mean_step_time_and_gives_it_its_deviation(cv: float) -> None:
    made = planned({"rollout.step_time": noisy(cv), "run.steps": 400})
    log = simulate(made).log
    other = train_ticks(made, log)[0] + to_ticks(made.sync.seconds())
    waits = [to_seconds(took - other) for took in intervals(log)]
    mean = sum(waits) / len(waits)
    deviation = (sum((wait - mean) ** 2 for wait in waits) / (len(waits) - 1)) ** 0.5
    expected = cv * 0.01 * 50**0.5
    assert mean == pytest.approx(0.5, abs=3 * expected / len(waits) ** 0.5)
    assert deviation == pytest.approx(expected, rel=0.2)


@pytest.mark.parametrize("cv", [0.3, 2.5])
def test_time_never_runs_back_however_large_the_noise(cv: float) -> None:
    log = ran({**IN_FLIGHT, "rollout.step_time": noisy(cv), "run.steps": 20})
    for replica in range(3):
        rows = [row for row in log.windows if row.replica == replica]
        assert all(row.start <= row.end for row in rows)
        assert all(earlier.end <= later.start for earlier, later in pairwise(rows))
    steps = sum(row.steps for row in log.windows)
    mean = sum(row.end - row.start for row in log.windows) / steps
    assert mean == pytest.approx(STEP, abs=4 * cv * STEP / steps**0.5)


def test_noise_is_the_replicas_own_and_the_same_every_time() -> None:
    changes = {**IN_FLIGHT, "rollout.step_time": noisy(0.5)}
    first, again = ran(changes), ran(changes)
    assert first.windows == again.windows
    lengths = {row.end - row.start for row in first.windows if row.start == 0}
    assert len(lengths) == 3


def test_a_step_without_noise_is_the_base() -> None:
    assert BASE["rollout"]["step_time"]["base_seconds"] == to_seconds(STEP)
    assert {row.end - row.start for row in ran().windows} == {STEP, 49 * STEP}
