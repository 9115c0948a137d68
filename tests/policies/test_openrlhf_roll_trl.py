"""What OpenRLHF, ROLL and TRL publish about their scheduling, held against recorded decisions."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from group_runs import books
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_runs import AGENTS, commands, ends, moments, outcomes, ran, run_of, start_lags

from rlsim.core.commands import Abort, Submit, Sync, Train
from rlsim.core.errors import DeadlockError
from rlsim.core.events import Synced
from rlsim.core.log import RunLog
from rlsim.policies.admission.fixed_concurrency import SampleSlots, Slots

few = settings(max_examples=10, deadline=None)
seeds = st.integers(0, 10_000)
sizes = st.integers(1, 4)
overheads = st.sampled_from([0.0, 0.3, 1.5, 6.0])


# -- OpenRLHF -----------------------------------------------------------------------------------------

openrlhf = st.sampled_from(["openrlhf-async", "openrlhf-async-partial"])


def queue(preset: str, slots: int, seed: int, overhead: float, **more: Any) -> RunLog:
    given = {"async_queue_size": slots}
    return run_of(preset, given, seed=seed, trainer__fixed_seconds_per_step=overhead, **more)


@few
@given(preset=openrlhf, slots=st.integers(1, 3), seed=seeds, size=sizes, overhead=overheads)
def test_openrlhf_generates_one_batch_at_a_time_and_no_more_batches_than_slots(
    preset: str, slots: int, seed: int, size: int, overhead: float
) -> None:
    for book in books(queue(preset, slots, seed, overhead, workload__prompts_per_step=size)):
        assert len({group // size for group in book.under_way}) <= 1
        assert len(book.begun) <= len(book.taken) + slots * size


@few
@given(preset=openrlhf, slots=st.integers(1, 3), seed=seeds, overhead=overheads)
def test_openrlhf_trains_a_batch_at_most_as_many_updates_later_as_there_are_slots(
    preset: str, slots: int, seed: int, overhead: float
) -> None:
    log = queue(preset, slots, seed, overhead)
    assert max(start_lags(log)) <= slots
    for book in books(log):
        assert all(book.version - book.begun[group] <= slots for group in book.taken[book.taken_before :])


def test_openrlhf_uses_all_its_slots_when_the_trainer_is_slow() -> None:
    assert max(start_lags(queue("openrlhf-async", 3, 0, 9.0, run__steps=7))) == 3


@few
@given(seed=seeds, overhead=overheads)
def test_openrlhf_with_one_slot_is_one_step_off(seed: int, overhead: float) -> None:
    one = queue("openrlhf-async", 1, seed, overhead)
    other = run_of("one-step-off", seed=seed, trainer__fixed_seconds_per_step=overhead)
    assert one.iterations == other.iterations


@few
@given(slots=st.integers(1, 3), seed=seeds, overhead=overheads)
def test_openrlhf_never_generates_while_it_broadcasts(slots: int, seed: int, overhead: float) -> None:
    broadcasting = False
    for moment in moments(queue("openrlhf-async", slots, seed, overhead)):
        broadcasting = (broadcasting and not isinstance(moment.event, Synced)) or any(
            isinstance(made, Sync) for made in moment.commands
        )
        assert not (broadcasting and moment.calls)


@few
@given(seed=seeds)
def test_openrlhf_with_partial_rollout_broadcasts_under_running_samples_that_keep_their_kv(seed: int) -> None:
    log = queue("openrlhf-async-partial", 2, seed, 0.0, workload__response_tokens=300)
    begun = {made.sample for _, made in commands(log, Submit)}
    assert any(made.calls for made in moments(log) if any(isinstance(told, Sync) for told in made.commands))
    assert log.prefill_tokens <= len(begun) * 24


# -- ROLL, RLVR ---------------------------------------------------------------------------------------


def roll(ratio: float, seed: int, overhead: float = 0.2, **more: Any) -> RunLog:
    given = {"async_generation_ratio": ratio}
    return run_of("roll-rlvr-async", given, seed=seed, trainer__fixed_seconds_per_step=overhead, run__steps=8, **more)


@few
@given(ratio=st.sampled_from([0.5, 1.0, 1.3, 2.0, 2.75]), size=sizes, members=sizes, seed=seeds, overhead=overheads)
def test_roll_trains_on_nothing_that_began_more_than_the_ratio_ago(
    ratio: float, size: int, members: int, seed: int, overhead: float
) -> None:
    log = roll(ratio, seed, overhead, workload__prompts_per_step=size, workload__group_size=members)
    for book in books(log, members):
        for group in book.taken[book.taken_before :]:
            assert book.version - book.begun[group] <= math.ceil(ratio)
        assert len(book.begun) <= math.ceil(ratio * size) + (book.version + 1) * size + dropped(log, members)


def dropped(log: RunLog, members: int) -> int:
    return len({row.sample // members for row in log.final if row.outcome == "dropped_stale"})


@few
@given(ratio=st.sampled_from([0.5, 1.25, 1.5, 2.75]), seed=seeds, overhead=overheads)
def test_roll_takes_the_fraction_of_its_ratio_from_the_oldest_step_and_wastes_nothing(
    ratio: float, seed: int, overhead: float
) -> None:
    log = roll(ratio, seed, overhead, workload__prompts_per_step=4)
    age, old = math.ceil(ratio), int(4 * (ratio % 1))
    for book in books(log):
        new = book.taken[book.taken_before :]
        if new and book.version >= age:
            assert [book.begun[group] for group in new].count(book.version - age) == old
    assert "dropped_stale" not in outcomes(log)


@few
@given(seed=seeds, overhead=overheads)
def test_roll_with_ratio_one_trains_each_step_on_the_groups_of_the_step_before(seed: int, overhead: float) -> None:
    for book in books(roll(1.0, seed, overhead)):
        for group in book.taken[book.taken_before :]:
            assert book.begun[group] == max(0, book.version - 1)


def test_roll_counts_what_a_ratio_that_does_not_divide_the_batch_wastes() -> None:
    log = roll(1.5, 0, workload__group_size=1)
    lost = [row for row in log.final if row.outcome == "dropped_stale"]
    assert lost
    assert sum(row.tokens for row in log.final) + log.undelivered_tokens == log.generated_tokens


# -- ROLL, synchronous with queue scheduling ----------------------------------------------------------


@few
@given(seed=seeds, extra=st.integers(0, 4), size=sizes)
def test_roll_sync_keeps_its_additional_prompts_running_until_the_batch_is_complete(
    seed: int, extra: int, size: int
) -> None:
    given = {"max_additional_running_prompts": extra}
    log = run_of("roll-rlvr-sync-queue", given, seed=seed, workload__prompts_per_step=size)
    over = False
    for book in list(books(log))[:-1]:
        over = (over and not isinstance(book.event, Synced)) or not all(
            isinstance(made, Submit) for made in book.commands
        )
        mine = [group for group, version in book.begun.items() if version == book.version]
        done = len(set(mine) & set(book.complete))
        assert over or len(mine) - done == max(size - done, extra)
    assert set(start_lags(log)) == {0}
    assert outcomes(log) <= {"trained", "dropped_surplus"}


@few
@given(seed=seeds)
def test_roll_sync_without_additional_prompts_is_the_barrier(seed: int) -> None:
    spread = {"preset": "sync-colocated", "parts": {"dispatch": {"use": "group-affinity"}}}
    assert run_of("roll-rlvr-sync-queue", {}, seed=seed).iterations == ran(spread, seed=seed).iterations


# -- ROLL, agentic ------------------------------------------------------------------------------------


@few
@given(spare=st.integers(0, 2), ratio=st.integers(0, 2), groups=st.none() | st.integers(1, 5), seed=seeds)
def test_roll_agentic_runs_one_episode_in_each_environment(
    spare: int, ratio: int, groups: int | None, seed: int
) -> None:
    given = {"group_size_redundancy": spare, "async_generation_ratio": ratio, "num_env_groups": groups}
    log = run_of("roll-agentic", given, seed=seed, **AGENTS)
    environments = (groups or 3) * (2 + spare)
    full = [len(moment.calls) + len(moment.held) for moment in moments(log)]
    assert max(full) <= environments
    assert full[0] == min(environments, (ratio + 1) * 3 * (2 + spare))


@few
@given(spare=st.integers(1, 3), seed=seeds)
def test_roll_agentic_completes_a_group_with_its_first_episodes_and_lets_the_spare_ones_run_on(
    spare: int, seed: int
) -> None:
    log = run_of("roll-agentic", {"group_size_redundancy": spare, "async_generation_ratio": 2}, seed=seed)
    outcome, place = {row.sample: row.outcome for row in log.final}, ends(log)
    ended = {sample for sample in place if outcome[sample] == "dropped_surplus"}
    assert ended
    for sample in ended:
        first = sample - sample % (2 + spare)
        mates = range(first, first + 2 + spare)
        assert sum(place.get(mate, math.inf) < place[sample] for mate in mates) >= 2
    cut = {sample for _, made in commands(log, Abort) for sample in made.samples}
    assert {outcome[sample] for sample in cut} <= {"dropped_stale", "dropped_surplus"}


@few
@given(ratio=st.integers(0, 2), seed=seeds, overhead=st.sampled_from([0.0, 0.2]))
def test_roll_agentic_gives_up_what_is_older_than_its_ratio_and_begins_something_new(
    ratio: int, seed: int, overhead: float
) -> None:
    given = {"async_generation_ratio": ratio, "num_env_groups": 6}
    log = run_of("roll-agentic", given, seed=seed, trainer__fixed_seconds_per_step=overhead, run__steps=8)
    for before, book in pairwise(books(log)):
        assert all(book.version - book.begun[group] <= ratio for group in book.taken[book.taken_before :])
        if isinstance(book.event, Synced):
            old = [g for g in before.begun if book.version - before.begun[g] > ratio and g not in before.taken]
            assert {row.outcome for row in log.final if row.sample // 2 in old} <= {"dropped_stale", "in_flight"}
    assert len(log.iterations) == 8


def test_roll_agentic_does_give_groups_up() -> None:
    given = {"async_generation_ratio": 1, "num_env_groups": 6}
    assert any("dropped_stale" in outcomes(run_of("roll-agentic", given, seed=seed)) for seed in range(5))


# -- TRL ----------------------------------------------------------------------------------------------


@few
@given(preset=st.sampled_from(["trl-colocate", "trl-server"]), seed=seeds, size=sizes)
def test_trl_alternates_between_generation_and_training(preset: str, seed: int, size: int) -> None:
    log = run_of(preset, seed=seed, workload__prompts_per_step=size)
    for moment in moments(log):
        assert not (moment.calls and any(isinstance(made, Train) for made in moment.commands))
    assert set(start_lags(log)) == {0}


@few
@given(staleness=st.integers(1, 3), members=sizes, seed=seeds, size=sizes)
def test_trl_async_fills_max_staleness_batches_of_slots(staleness: int, members: int, seed: int, size: int) -> None:
    workload = {"workload__prompts_per_step": size, "workload__group_size": members}
    for moment in moments(run_of("trl-async-grpo", {"max_staleness": staleness}, seed=seed, **workload)):
        assert len(moment.calls) == staleness * size * members


@few
@given(staleness=st.integers(1, 3), slots=st.integers(1, 20), seed=seeds, overhead=overheads)
def test_trl_async_trains_on_nothing_dispatched_more_than_max_staleness_versions_ago(
    staleness: int, slots: int, seed: int, overhead: float
) -> None:
    given = {"max_staleness": staleness, "max_inflight_tasks": slots}
    log = run_of("trl-async-grpo", given, seed=seed, trainer__fixed_seconds_per_step=overhead)
    for book in books(log):
        assert all(book.version - book.begun[group] <= staleness for group in book.taken[book.taken_before :])


def test_trl_async_drops_stale_groups_that_waited_too_long() -> None:
    log = run_of("trl-async-grpo", {"max_staleness": 1}, trainer__fixed_seconds_per_step=3.0)
    assert "dropped_stale" in outcomes(log)


def test_trl_async_begins_nothing_while_its_buffer_is_full_and_the_trainer_busy() -> None:
    given = {"max_inflight_tasks": 4, "queue_maxsize": 8}
    log = run_of("trl-async-grpo", given, trainer__fixed_seconds_per_step=9.0)
    assert "buffer" in {row.gate for row in log.gates}
    busy = False
    for book in books(log):
        busy = (busy and not isinstance(book.event, Synced)) or bool(book.trains)
        if busy and (len(book.complete) - len(book.taken)) * 2 >= 8:
            assert not [made for made in book.commands if isinstance(made, Submit)]


def test_trl_async_without_staleness_has_no_slots_and_would_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    def unchecked(part: SampleSlots, shape: Any) -> Slots:
        return Slots(part.max_staleness * shape.prompts_per_step * shape.group_size, part.queue_maxsize)

    monkeypatch.setattr(SampleSlots, "start", unchecked)
    with pytest.raises(DeadlockError, match="gate: concurrency"):
        run_of("trl-async-grpo", {"max_staleness": 0})
