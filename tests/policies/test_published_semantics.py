"""What frameworks publish about their scheduling, held against recorded decisions: admission and staleness."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from policy_runs import (
    AGENTS,
    POLICIES,
    PROMPT_TOKENS,
    batches,
    commands,
    ends,
    groups_of,
    moments,
    outcomes,
    ran,
    run_of,
    start_lags,
)

from rlsim.core.commands import Submit, Train
from rlsim.core.events import Finished, Synced
from rlsim.core.log import RunLog
from rlsim.core.ticks import Ticks, to_ticks

few = settings(max_examples=8, deadline=None)
seeds = st.integers(0, 10_000)
batch_sizes = st.integers(1, 4)
group_sizes = st.integers(1, 4)


def step_ticks(log: RunLog) -> list[Ticks]:
    return [later - earlier for earlier, later in pairwise([0, *(row.end for row in log.iterations)])]


# -- synchronous --------------------------------------------------------------------------------------


@few
@given(preset=st.sampled_from(["sync-colocated", "sync-disaggregated", "nemo-rl-sync"]), seed=seeds, size=batch_sizes)
def test_synchronous_presets_train_on_what_the_served_weights_made(preset: str, seed: int, size: int) -> None:
    log = run_of(preset, seed=seed, workload__prompts_per_step=size)
    assert set(start_lags(log)) == {0}
    assert [groups_of(batch, 2) for batch in batches(log)] == [
        list(range(step * size, (step + 1) * size)) for step in range(5)
    ]
    for moment in moments(log):
        if any(isinstance(made, Train) for made in moment.commands):
            assert not moment.calls


# -- one step off -------------------------------------------------------------------------------------


@few
@given(seed=seeds, size=batch_sizes, members=group_sizes)
def test_one_step_off_lags_by_exactly_one_version_after_the_first_step(seed: int, size: int, members: int) -> None:
    log = run_of("one-step-off", seed=seed, workload__prompts_per_step=size, workload__group_size=members)
    lags, batch = start_lags(log), size * members
    assert lags == [0] * batch + [1] * (len(lags) - batch)


def test_one_step_off_launches_a_batch_when_training_on_the_one_before_begins() -> None:
    log = run_of("one-step-off")
    starts = {now for now, _ in commands(log, Train)}
    assert {now for now, _ in commands(log, Submit)} - {0} <= starts


# -- AReaL --------------------------------------------------------------------------------------------


@few
@given(eta=st.integers(0, 3), room=st.none() | st.integers(1, 9), size=batch_sizes, members=group_sizes, seed=seeds)
def test_areal_admits_at_most_eta_plus_version_plus_one_batches_and_drops_nothing(
    eta: int, room: int | None, size: int, members: int, seed: int
) -> None:
    given = {"max_head_offpolicyness": eta, "max_concurrent_rollouts": room}
    log = run_of("areal", given, seed=seed, workload__prompts_per_step=size, workload__group_size=members)
    for moment in moments(log):
        assert moment.begun <= (eta + moment.version + 1) * size * members
    assert not {outcome for outcome in outcomes(log) if outcome.startswith("dropped")}


@few
@given(room=st.integers(1, 6), members=group_sizes, seed=seeds)
def test_areal_never_has_more_groups_open_than_its_concurrency(room: int, members: int, seed: int) -> None:
    given = {"max_head_offpolicyness": 3, "max_concurrent_rollouts": room}
    for moment in moments(run_of("areal", given, seed=seed, workload__group_size=members)):
        assert len({sample // members for sample in moment.calls}) <= room


@few
@given(eta=st.integers(0, 3), trainer=st.sampled_from([0.01, 0.5, 3.0]))
def test_areal_start_lag_is_at_most_eta_when_groups_finish_in_order(eta: int, trainer: float) -> None:
    given = {"max_head_offpolicyness": eta}
    log = run_of("areal", given, workload__response_tokens=40, trainer__fixed_seconds_per_step=trainer)
    assert max(start_lags(log)) <= eta


def test_areal_uses_its_whole_bound_when_the_trainer_is_slow() -> None:
    log = run_of("areal", {"max_head_offpolicyness": 2}, trainer__fixed_seconds_per_step=9.0, run__steps=6)
    assert max(start_lags(log)) == 2


@few
@given(seed=seeds, size=batch_sizes, poll=st.sampled_from([0.0, 0.5, 2.0]))
def test_areal_with_eta_zero_takes_the_steps_of_the_barrier_and_one_poll_each(
    seed: int, size: int, poll: float
) -> None:
    sizes: dict[str, Any] = {"seed": seed, "workload__prompts_per_step": size}
    barrier = step_ticks(run_of("sync-disaggregated", **sizes))
    areal = run_of("areal", {"max_head_offpolicyness": 0, "pause_poll_seconds": poll}, **sizes)
    assert step_ticks(areal) == [ticks + to_ticks(poll) for ticks in barrier]


# -- NeMo-RL ------------------------------------------------------------------------------------------


@few
@given(age=st.integers(1, 3), size=batch_sizes, seed=seeds, in_flight=st.booleans())
def test_nemo_trains_step_t_on_exactly_the_groups_reserved_for_it(
    age: int, size: int, seed: int, in_flight: bool
) -> None:
    given = {"max_trajectory_age_steps": age, "in_flight_weight_updates": in_flight}
    log = run_of("nemo-rl-async", given, seed=seed, workload__prompts_per_step=size)
    targets = [list(range(step * size, (step + 1) * size)) for step in range(5)]
    assert [groups_of(batch, 2) for batch in batches(log)] == targets
    assert max(start_lags(log)) <= age


@few
@given(age=st.integers(1, 3), size=batch_sizes, seed=seeds)
def test_nemo_reserves_every_target_up_to_its_age_and_then_idles(age: int, size: int, seed: int) -> None:
    given = {"max_trajectory_age_steps": age, "in_flight_weight_updates": True}
    for moment in moments(run_of("nemo-rl-async", given, seed=seed, workload__prompts_per_step=size)):
        assert moment.begun == (moment.version + age + 1) * size * 2


def test_one_unfinished_group_stalls_a_nemo_step_although_a_batch_is_complete() -> None:
    given = {"max_trajectory_age_steps": 3, "in_flight_weight_updates": True}
    log = run_of("nemo-rl-async", given, trainer__fixed_seconds_per_step=0.0)
    stalled = [ready for ready, wanted in idle_trainer(log) if len(ready) >= 3 and not wanted <= ready]
    served = [ready for ready, wanted in idle_trainer(log) if wanted <= ready]
    assert stalled
    assert not served


def idle_trainer(log: RunLog) -> list[tuple[set[int], set[int]]]:
    """(complete groups, groups of the next step) at every decision that leaves the trainer without work."""
    members: dict[int, int] = {}
    taken: set[int] = set()
    step, busy, found = 0, False, []
    for row in log.decisions:
        if isinstance(row.event, Finished):
            members[row.event.sample // 2] = members.get(row.event.sample // 2, 0) + 1
        busy = busy and not isinstance(row.event, Synced)
        for command in row.commands:
            if isinstance(command, Train):
                busy, step = True, step + 1
                taken |= set(groups_of(command.samples, 2))
        if not busy:
            ready = {group for group, count in members.items() if count == 2} - taken
            found.append((ready, set(range(step * 3, step * 3 + 3))))
    return found[:-1]


# -- PipelineRL ---------------------------------------------------------------------------------------


@few
@given(seats=st.integers(1, 6), members=group_sizes, seed=seeds, gpus=st.integers(1, 2))
def test_pipelinerl_always_has_its_seats_in_flight(seats: int, members: int, seed: int, gpus: int) -> None:
    sizes = {"workload__group_size": members, "rollout__gpus": gpus}
    for moment in moments(run_of("pipelinerl", {"llm_max_rollouts": seats}, seed=seed, **sizes, **AGENTS)):
        assert len(moment.calls) + len(moment.held) == seats * gpus


@few
@given(
    lag=st.integers(0, 9),
    seats=st.integers(1, 6),
    members=st.integers(1, 5),
    interval=st.integers(1, 30),
    seed=seeds,
)
def test_pipelinerl_max_lag_bounds_samples_begun_in_whole_groups(
    lag: int, seats: int, members: int, interval: int, seed: int
) -> None:
    given = {"llm_max_rollouts": seats, "max_lag": lag, "weight_update_interval": interval}
    log = run_of("pipelinerl", given, seed=seed, workload__group_size=members, run__steps=6)
    for moment in moments(log):
        steps = -(-interval // (3 * members))
        groups = -(-lag // members) + (moment.version + 1) * steps * 3
        assert moment.begun <= groups * members


@few
@given(ring=st.integers(3, 6), seed=seeds)
def test_pipelinerl_ring_buffer_overwrites_its_oldest_groups(ring: int, seed: int) -> None:
    given = {"llm_max_rollouts": 8, "ring_buffer_groups": ring}
    log = run_of("pipelinerl", given, seed=seed, trainer__fixed_seconds_per_step=3.0)
    place, outcome = ends(log), {row.sample: row.outcome for row in log.final}
    groups = [group for group in range(max(place) // 2 + 1) if {2 * group, 2 * group + 1} <= place.keys()]
    in_order = sorted(groups, key=lambda group: max(place[2 * group], place[2 * group + 1]))
    left = [outcome[2 * group] for group in in_order if outcome[2 * group] != "trained"]
    kept = left.count("buffered")
    assert kept <= ring
    assert left == ["dropped_stale"] * (len(left) - kept) + ["buffered"] * kept
    assert len(left) > kept


@few
@given(seed=seeds)
def test_weights_that_change_under_kept_kv_charge_no_prefill(seed: int) -> None:
    log = run_of("pipelinerl", seed=seed)
    begun = len({made.sample for _, made in commands(log, Submit)})
    finished = len(ends(log))
    assert finished * PROMPT_TOKENS <= log.prefill_tokens <= begun * PROMPT_TOKENS


@few
@given(seed=seeds, mode=st.sampled_from(["abort", "rebuild"]))
def test_weights_that_drop_the_kv_charge_prompt_and_prefix_again(seed: int, mode: str) -> None:
    parts = {"update": {"use": "publish", "mode": mode}}
    log = ran({"preset": "pipelinerl", **POLICIES["pipelinerl"], "parts": parts}, seed=seed)
    again = 0
    for row in log.decisions:
        if isinstance(row.event, Finished):
            made = [tokens for _, tokens in row.event.segments]
            again += sum(PROMPT_TOKENS + sum(made[:cut]) for cut in range(1, len(made)))
    assert again
    assert log.prefill_tokens >= len(ends(log)) * PROMPT_TOKENS + again


# -- staleness bounds ---------------------------------------------------------------------------------


@few
@given(age=st.integers(0, 2), seats=st.integers(2, 12), seed=seeds, mode=st.sampled_from(["keep", "abort", "drain"]))
def test_dropping_by_age_bounds_the_start_lag_whatever_admission_does(
    age: int, seats: int, seed: int, mode: str
) -> None:
    parts = {
        "leftovers": {"use": "drop-old", "max_age_versions": age},
        "update": {"use": "publish", "mode": mode},
    }
    log = ran({"preset": "pipelinerl", "llm_max_rollouts": seats, "parts": parts}, seed=seed)
    assert max(start_lags(log)) <= age


@few
@given(seed=seeds, groups=st.integers(1, 3))
def test_a_micro_batch_stream_trains_every_batch_in_pieces_that_add_up(seed: int, groups: int) -> None:
    parts = {"batching": {"use": "micro-batch-stream", "min_groups": groups}}
    log = ran({"preset": "sync-disaggregated", "parts": parts}, seed=seed)
    pieces: dict[int, list[Train]] = {}
    for _, made in commands(log, Train):
        pieces.setdefault(made.step, []).append(made)
    for step, made in pieces.items():
        assert [piece.last for piece in made] == [False] * (len(made) - 1) + [True]
        assert sorted(sample for piece in made for sample in piece.samples) == list(range(step * 6, step * 6 + 6))
        assert all(len(piece.samples) == 2 * groups for piece in made[:-1])
