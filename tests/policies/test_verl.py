"""What verl publishes about its fully asynchronous policy and its V1 trainer, held against recorded decisions."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from group_runs import books
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_runs import PROMPT_TOKENS, batches, commands, ends, moments, outcomes, run_of, scenario, start_lags

from rlsim.core.commands import Abort, SetRole, Submit, Sync, Train
from rlsim.core.events import Finished, Started, Synced, Trained
from rlsim.core.loads import Loads
from rlsim.core.log import RunLog
from rlsim.core.view import Group, RunSizes, View
from rlsim.policies.admission.bounded_staleness import Budget, PerVersionBudget
from rlsim.resolve import resolve
from rlsim.results.tables import tables
from rlsim.results.utilisation import verl_rollouter_idle_ratio
from rlsim.sim.simulation import simulate

few = settings(max_examples=10, deadline=None)
seeds = st.integers(0, 10_000)
overheads = st.sampled_from([0.0, 0.3, 1.5])
thresholds = st.sampled_from([0.0, 0.1, 0.4, 1.0])
triggers = st.integers(1, 3)


def asynchronous(seed: int, size: int, overhead: float, **given: Any) -> RunLog:
    sizes = {"workload__prompts_per_step": size, "trainer__fixed_seconds_per_step": overhead}
    return run_of("verl-fully-async", given, seed=seed, **sizes)


def budget(size: int, trigger: int, staleness: float) -> int:
    return int(size // trigger * (staleness + 1) * trigger)


# -- fully asynchronous -------------------------------------------------------------------------------


@few
@given(seed=seeds, trigger=triggers, required=st.integers(1, 3), staleness=thresholds, overhead=overheads)
def test_a_version_submits_its_budget_less_what_was_in_flight_and_queued_when_it_began(
    seed: int, trigger: int, required: int, staleness: float, overhead: float
) -> None:
    size = trigger * required
    given = {"trigger_parameter_sync_step": trigger, "staleness_threshold": staleness}
    log = asynchronous(seed, size, overhead, **given)
    opened = [book for book in books(log) if isinstance(book.event, Started | Synced)]
    for book, after in pairwise(opened):
        carried = book.begun_before - book.taken_before
        assert after.begun_before - book.begun_before == budget(size, trigger, staleness) - carried


@few
@given(seed=seeds, staleness=thresholds, places=st.integers(1, 2), partial=st.booleans(), overhead=overheads)
def test_with_few_places_a_version_submits_at_most_one_prompt_more(
    seed: int, staleness: float, places: int, partial: bool, overhead: float
) -> None:
    given = {
        "trigger_parameter_sync_step": 1,
        "staleness_threshold": staleness,
        "concurrent_samples_per_replica": places,
        "partial_rollout": partial,
    }
    log = asynchronous(seed, 6, overhead, **given)
    opened = [book for book in books(log) if isinstance(book.event, Started | Synced)]
    for book, after in pairwise(opened):
        carried = book.begun_before - book.taken_before
        assert after.begun_before - book.begun_before <= budget(6, 1, staleness) - carried + 1
    assert all(len(book.under_way) <= 2 * places for book in books(log))


def test_a_prompt_that_waits_for_a_place_while_weights_change_is_in_neither_count() -> None:
    shape = RunSizes(prompts_per_step=3, group_size=2, replicas=1, max_num_seqs=8)
    part = PerVersionBudget(1.0, 1, concurrent_samples_per_replica=2).start(shape)
    view = View(shape, Loads(1), started_groups=5, steps_done=1, version=1)
    view.open = {number: Group(number, number, 0, 1, 0, 0) for number in (3, 4)}
    assert part.capacity(view) == (0, "concurrency")
    view.open = {}
    view.started_groups = 10
    assert part.capacity(view) == (0, "staleness")
    full = Budget(6, 2, 3)
    view.started_groups = 6
    view.open = {number: Group(number, number, 0, 1, 0, 0) for number in (4, 5)}
    assert full.capacity(view) == (0, "concurrency")
    view.started_groups, view.open = 9, {}
    assert full.capacity(view) == (0, "staleness")


@few
@given(seed=seeds, size=st.integers(1, 4), partial=st.booleans(), overhead=overheads)
def test_without_staleness_and_with_one_trigger_generation_and_training_alternate(
    seed: int, size: int, partial: bool, overhead: float
) -> None:
    sizes = {"workload__prompts_per_step": size, "trainer__fixed_seconds_per_step": overhead}
    log = run_of("verl-fully-async-on-policy", {"partial_rollout": partial}, seed=seed, **sizes)
    training = False
    for moment in moments(log):
        training = (training and not isinstance(moment.event, Synced)) or any(
            isinstance(made, Train) for made in moment.commands
        )
        assert not (training and moment.calls)
    assert set(start_lags(log)) == {0}


@few
@given(seed=seeds, trigger=triggers, batches_each=st.integers(1, 2), staleness=thresholds)
def test_a_step_is_as_many_local_batches_as_the_trigger_in_order_of_completion(
    seed: int, trigger: int, batches_each: int, staleness: float
) -> None:
    size = trigger * batches_each * 2
    given = {
        "trigger_parameter_sync_step": trigger,
        "require_batches": batches_each,
        "ppo_mini_batch_size": 2,
        "staleness_threshold": staleness,
    }
    log = asynchronous(seed, size, 0.2, **given)
    told = [made for _, made in commands(log, Train)]
    assert [(made.step, made.last) for made in told] == [
        (step, part == trigger - 1) for step in range(5) for part in range(trigger)
    ]
    assert all(made.updates == batches_each and len(made.samples) == batches_each * 4 for made in told)
    assert len(commands(log, Sync)) == 5
    *_, last = books(log)
    assert last.taken == last.complete[: len(last.taken)]


def test_in_the_stream_mode_local_updates_overlap_generation_within_a_version() -> None:
    log = run_of("verl-fully-async-stream")
    assert any(made.calls for made in moments(log) if any(isinstance(told, Train) for told in made.commands))
    assert set(start_lags(log)) == {0}


@few
@given(seed=seeds)
def test_partial_rollout_prefills_prompt_and_prefix_again_after_every_sync(seed: int) -> None:
    log = asynchronous(seed, 3, 0.0, trigger_parameter_sync_step=3, staleness_threshold=1.0, abort_retry_seconds=0.0)
    again = 0
    for row in log.decisions:
        if isinstance(row.event, Finished):
            made = [tokens for _, tokens in row.event.segments]
            again += sum(PROMPT_TOKENS + sum(made[:cut]) for cut in range(1, len(made)))
    assert log.prefill_tokens >= len(ends(log)) * PROMPT_TOKENS + again


# -- verl's own idle ratio ----------------------------------------------------------------------------


def test_the_rollouters_idle_ratio_is_the_time_after_the_last_sample_where_all_drain() -> None:
    log = run_of("verl-fully-async-on-policy")
    synced = [0, *(row.now for row in log.decisions if isinstance(row.event, Synced))]
    starts = [now for now, _ in commands(log, Train)]
    expected = [
        (after - train) / (after - before) for (before, after), train in zip(pairwise(synced), starts, strict=True)
    ]
    assert verl_rollouter_idle_ratio(log) == pytest.approx(expected)


def test_the_rollouters_idle_ratio_reads_zero_while_a_paused_rollouter_drains() -> None:
    tail = {"law": "uniform", "low_tokens": 1, "high_tokens": 400}
    given = {"staleness_threshold": 0.4, "partial_rollout": True, "abort_retry_seconds": 0.0}
    sizes = {"workload__response_tokens": tail, "trainer__fixed_seconds_per_step": 1.0, "workload__group_size": 1}
    log = run_of("verl-fully-async-on-policy", given, run__steps=12, **sizes)
    synced = [0, *(row.now for row in log.decisions if isinstance(row.event, Synced))]
    gates = [row.gate for row in log.gates]
    idle = [
        max(after - before - busy_ticks(log, replica, before, after) for replica in (0, 1)) / (after - before)
        for (before, after), ratio in zip(pairwise(synced), verl_rollouter_idle_ratio(log), strict=True)
        if ratio == 0
    ]
    assert "staleness" in gates
    assert max(idle) > 0.3


def busy_ticks(log: RunLog, replica: int, since: int, until: int) -> int:
    rows = [row for row in log.windows if row.replica == replica]
    return sum(max(0, min(row.end, until) - max(row.start, since)) for row in rows)


# -- V1 -----------------------------------------------------------------------------------------------

v1 = st.sampled_from(["verl-v1-colocate-async", "verl-v1-separate-async"])


def v1_run(preset: str, seed: int, overhead: float = 0.2, **given: Any) -> RunLog:
    more = {"parameter_sync_step": 3} if "separate" in preset else {}
    return run_of(preset, {"poll_seconds": 0.0, **more, **given}, seed=seed, trainer__fixed_seconds_per_step=overhead)


@few
@given(preset=v1, seed=seeds, warmup=st.integers(0, 3))
def test_v1_begins_every_step_with_one_batch_and_the_warm_up_in_flight_or_buffered(
    preset: str, seed: int, warmup: int
) -> None:
    for book in books(v1_run(preset, seed, num_warmup_batches=warmup)):
        submits = any(isinstance(made, Submit) for made in book.commands)
        if isinstance(book.event, Started | Synced) and submits:
            assert len(book.begun) - book.taken_before == (1 + warmup) * 3


@few
@given(preset=v1, seed=seeds, overhead=overheads)
def test_v1_trains_on_the_oldest_versions_that_are_complete(preset: str, seed: int, overhead: float) -> None:
    log = v1_run(preset, seed, overhead, num_warmup_batches=3)
    ready: set[int] = set()
    for book in books(log):
        taking = any(isinstance(made, Train | Abort) or made == SetRole("train") for made in book.commands)
        if taking and not ready:  # A colocated batch is taken before it is trained: first the rest is cut.
            ready = set(book.complete) - set(book.taken[: book.taken_before])
        new = set(book.taken[book.taken_before :])
        if new:
            left = [book.begun[group] for group in ready - new]
            assert new <= ready
            assert max(book.begun[group] for group in new) <= min(left, default=99)
            ready = set()


@few
@given(preset=v1, seed=seeds, threshold=st.integers(1, 3))
def test_v1_drop_trains_on_nothing_that_spans_more_than_the_threshold(preset: str, seed: int, threshold: int) -> None:
    given = {"num_warmup_batches": 3, "max_off_policy_threshold": threshold}
    for book in books(v1_run(preset, seed, **given)):
        for group in book.taken[book.taken_before :]:
            assert book.version - book.begun[group] + 1 <= threshold


def test_v1_replaces_what_it_drops() -> None:
    given = {"num_warmup_batches": 3, "max_off_policy_threshold": 1}
    log = v1_run("verl-v1-separate-async", 5, **given)
    assert "dropped_stale" in outcomes(log)
    assert len(log.iterations) == 5


@few
@given(preset=v1, seed=seeds, threshold=st.integers(1, 3))
def test_v1_wait_drops_nothing_and_takes_no_batch_while_an_older_group_is_under_way(
    preset: str, seed: int, threshold: int
) -> None:
    given = {"num_warmup_batches": 2, "max_off_policy_threshold": threshold, "max_off_policy_strategy": "wait"}
    log = v1_run(preset, seed, **given)
    for book in books(log):
        earlier = list(book.begun)[: book.begun_before]
        if book.trains:
            assert all(book.version - book.begun[group] + 1 < threshold for group in book.under_way if group in earlier)
    assert not {outcome for outcome in outcomes(log) if outcome.startswith("dropped")}


@few
@given(seed=seeds)
def test_v1_colocated_resumes_what_a_batch_aborted_before_new_prompts(seed: int) -> None:
    log = v1_run("verl-v1-colocate-async", seed)
    seen: set[int] = set()
    for row in log.decisions:
        told = [made.sample for made in row.commands if isinstance(made, Submit)]
        new = [sample not in seen for sample in told]
        assert new == sorted(new)
        seen |= set(told)


def test_v1_separate_trains_a_mini_batch_before_the_batch_is_complete() -> None:
    log = v1_run("verl-v1-separate-async", 1, 0.0, num_warmup_batches=0)
    first = next(book for book in books(log) if book.trains)
    assert first.under_way
    assert not first.trains[0].last
    assert len(batches(log)) == 15
    assert len([row for row in log.decisions if isinstance(row.event, Trained)]) == 15


def test_local_updates_are_the_intra_batch_lag_of_their_step() -> None:
    given = {"trigger_parameter_sync_step": 2, "require_batches": 2}
    sizes = {"workload__prompts_per_step": 8}
    run = simulate(resolve(scenario({"preset": "verl-fully-async-stream", **given}, **sizes)))
    assert tables(run)["updates"].intra_batch_lag_max.tolist() == [3.0] * 5
