"""What frameworks with queues and gates publish: SkyRL, slime, miles, prime-rl, open-instruct, tinker-cookbook."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_runs import (
    batches,
    commands,
    ends,
    groups_of,
    moments,
    outcomes,
    ran,
    run_of,
    scenario,
    start_lags,
)

from rlsim.core.commands import Submit, Sync, Train
from rlsim.core.events import Synced
from rlsim.core.loads import Loads
from rlsim.core.log import RunLog
from rlsim.core.view import Group, RunSizes, View
from rlsim.policies.retention import OffPolicySteps
from rlsim.resolve import ResolveError, resolve

few = settings(max_examples=8, deadline=None)
seeds = st.integers(0, 10_000)
members = st.integers(1, 4)
trainers = st.sampled_from([0.0, 0.2, 3.0])
SLOW: dict[str, Any] = {"trainer__fixed_seconds_per_step": 3.0}


def same_decisions(one: RunLog, other: RunLog) -> bool:
    return [(row.now, row.event, row.commands) for row in one.decisions] == [
        (row.now, row.event, row.commands) for row in other.decisions
    ]


def draws(log: RunLog) -> dict[int, list[tuple[int, int]]]:
    """Group to (draw, recycle), of every group begun."""
    found: dict[int, list[tuple[int, int]]] = {}
    for _, made in commands(log, Submit):
        found.setdefault(made.sample // 2, []).append((made.draw, made.recycle))
    return found


# -- SkyRL --------------------------------------------------------------------------------------------


@few
@given(steps=st.integers(0, 3), workers=st.integers(3, 9), size=members, seed=seeds, trainer=trainers)
def test_skyrl_is_areals_rule_with_the_step_counted_from_one(
    steps: int, workers: int, size: int, seed: int, trainer: float
) -> None:
    sizes = {"seed": seed, "workload__group_size": size, "trainer__fixed_seconds_per_step": trainer}
    given = {"max_staleness_steps": steps, "num_parallel_generation_workers": workers}
    log = run_of("skyrl-fully-async", given, **sizes)
    for moment in moments(log):
        current_global_step = moment.version + 1
        assert moment.begun <= (steps + current_global_step) * 3 * size
    assert not {outcome for outcome in outcomes(log) if outcome.startswith("dropped")}
    areal = {
        "preset": "areal",
        "max_head_offpolicyness": steps,
        "max_concurrent_rollouts": workers,
        "parts": {
            "update": {"use": "publish", "mode": "keep"},
            "batching": {"use": "complete-groups", "order": "first_finished"},
        },
    }
    assert same_decisions(log, ran(areal, **sizes))


def test_skyrl_rebuilds_the_kv_cache_only_when_it_is_told_to() -> None:
    kept = run_of("skyrl-fully-async", {"max_staleness_steps": 2})
    cleared = run_of("skyrl-fully-async", {"max_staleness_steps": 2, "clear_kv_cache_on_weight_sync": True})
    assert {made.mode for _, made in commands(kept, Sync)} == {"keep"}
    assert cleared.prefill_tokens > kept.prefill_tokens


# -- slime --------------------------------------------------------------------------------------------


@few
@given(interval=st.integers(1, 3), seed=seeds, trainer=trainers)
def test_slime_train_async_awaits_the_prefetched_rollout_before_it_updates_weights(
    interval: int, seed: int, trainer: float
) -> None:
    given = {"update_weights_interval": interval}
    log = run_of("slime-train-async", given, seed=seed, run__steps=6, trainer__fixed_seconds_per_step=trainer)
    starts = {now for now, _ in commands(log, Train)}
    assert {now for now, _ in commands(log, Submit)} - {0} <= starts | {
        row.now for row in log.decisions if isinstance(row.event, Synced)
    }
    updates = 0
    for moment in moments(log):
        if any(isinstance(made, Sync) for made in moment.commands):
            updates += 1
            assert not moment.calls
    assert updates == 6 // interval
    assert max(start_lags(log)) == 1


@few
@given(places=st.integers(1, 5), gpus=st.integers(1, 2), seed=seeds, trainer=trainers)
def test_slime_fully_async_bounds_groups_in_flight_and_in_the_queue_but_not_their_age(
    places: int, gpus: int, seed: int, trainer: float
) -> None:
    given = {"sglang_server_concurrency": places}
    log = run_of("slime-fully-async", given, seed=seed, rollout__gpus=gpus, trainer__fixed_seconds_per_step=trainer)
    limit, ready = places * gpus, 0
    place = ends(log)
    for number, moment in enumerate(moments(log)):
        done = {sample // 2 for sample, at in place.items() if at <= number and place.get(sample ^ 1, 10**9) <= number}
        ready = len(done) - moment.trained // 2
        begun = -(-moment.begun // 2)
        assert begun - len(done) <= limit
        new = [made for made in moment.commands if isinstance(made, Submit) and not made.made_tokens]
        assert not new or ready - 3 < limit
    assert not {outcome for outcome in outcomes(log) if outcome.startswith("dropped")}


def test_slime_fully_async_has_no_bound_on_staleness() -> None:
    runs = [run_of("slime-fully-async", {"sglang_server_concurrency": c}, run__steps=12, **SLOW) for c in (1, 8)]
    few_places, many_places = (max(start_lags(log)) for log in runs)
    assert few_places < many_places
    assert many_places >= 8


# -- miles --------------------------------------------------------------------------------------------


@few
@given(
    granularity=st.sampled_from(["sample", "group"]),
    samples=st.none() | st.integers(4, 12),
    factor=st.sampled_from([1.0, 1.5, 2.0]),
    seed=seeds,
    trainer=trainers,
)
def test_miles_limits_samples_by_its_granularity_and_blocks_on_a_full_buffer(
    granularity: str, samples: int | None, factor: float, seed: int, trainer: float
) -> None:
    given = {
        "rollout_submission_granularity": granularity,
        "async_max_concurrent_samples": samples,
        "async_data_buffer_capacity_factor": factor,
    }
    log = run_of("miles-fully-async", given, seed=seed, trainer__fixed_seconds_per_step=trainer)
    limit, place = samples or 6, ends(log)
    for number, moment in enumerate(moments(log)):
        done = {sample // 2 for sample, at in place.items() if at <= number and place.get(sample ^ 1, 10**9) <= number}
        ready = len(done) - moment.trained // 2
        held = 2 * (-(-moment.begun // 2) - len(done)) if granularity == "group" else len(moment.calls)
        assert held <= limit
        if ready < int(3 * factor):
            assert held == (limit - limit % 2 if granularity == "group" else limit)
        else:
            assert not any(isinstance(made, Submit) for made in moment.commands)


@few
@given(age=st.integers(0, 2), handler=st.sampled_from(["retry", "drop"]), seed=seeds)
def test_miles_drops_or_retries_what_is_too_stale_and_never_trains_it(age: int, handler: str, seed: int) -> None:
    given = {"max_weight_staleness": age, "async_unused_samples_handler": handler, "async_max_concurrent_samples": 24}
    log = run_of("miles-fully-async", given, seed=seed, run__steps=6, **SLOW)
    assert max(start_lags(log)) <= age
    dropped = {row.sample // 2 for row in log.final if row.outcome == "dropped_stale"}
    drawn = draws(log)
    again = {draw for group in drawn.values() for draw, recycle in group if recycle}
    assert again <= {drawn[group][0][0] for group in dropped}
    assert handler == "retry" or not again


def test_miles_retry_draws_each_prompt_again_that_drop_loses() -> None:
    log = {
        handler: run_of(
            "miles-fully-async",
            {"max_weight_staleness": 0, "async_unused_samples_handler": handler, "async_max_concurrent_samples": 24},
            run__steps=6,
            **SLOW,
        )
        for handler in ("retry", "drop")
    }
    again = {made.draw for _, made in commands(log["retry"], Submit) if made.recycle}
    assert again
    assert not any(made.recycle for _, made in commands(log["drop"], Submit))
    assert "dropped_stale" in outcomes(log["drop"]) & outcomes(log["retry"])


def test_an_unknown_handler_is_refused_with_those_that_exist() -> None:
    with pytest.raises(ResolveError) as caught:
        resolve(scenario({"preset": "miles-fully-async", "async_unused_samples_handler": "keep"}))
    assert (caught.value.path, caught.value.allowed) == ("policy.async_unused_samples_handler", "drop, retry")


# -- prime-rl -----------------------------------------------------------------------------------------


def shipped(complete_groups: int, version: int, lag: int) -> int:
    """Batches shipped: full, and at most ``lag`` beyond the one that the served version trains."""
    return min(complete_groups // 3, version + 1 + lag)


@few
@given(lag=st.integers(0, 2), inflight=st.integers(2, 20), seed=seeds, trainer=trainers)
def test_prime_rl_dispatches_only_while_shipped_less_version_is_within_the_lag(
    lag: int, inflight: int, seed: int, trainer: float
) -> None:
    given = {"target_lag": lag, "max_inflight": inflight, "max_off_policy_steps": 99}
    log = run_of("prime-rl", given, seed=seed, trainer__fixed_seconds_per_step=trainer)
    place = ends(log)
    for number, moment in enumerate(moments(log)):
        done = {sample // 2 for sample, at in place.items() if at <= number and place.get(sample ^ 1, 10**9) <= number}
        closed = shipped(len(done), moment.version, lag) - moment.version > lag
        assert len(moment.calls) <= inflight
        if closed:
            assert not any(isinstance(made, Submit) for made in moment.commands)
        else:
            assert len(moment.calls) == inflight


@few
@given(steps=st.integers(0, 2), inflight=st.integers(8, 40), seed=seeds, trainer=trainers)
def test_prime_rl_trains_nothing_older_than_its_off_policy_steps(
    steps: int, inflight: int, seed: int, trainer: float
) -> None:
    given = {"max_off_policy_steps": steps, "max_inflight": inflight}
    log = run_of("prime-rl", given, seed=seed, trainer__fixed_seconds_per_step=trainer)
    assert max(start_lags(log)) <= steps
    assert len(log.iterations) == 5


@pytest.mark.parametrize(("lead", "dropped"), [(None, [0, 3]), (1, [0, 3]), (0, [0])])
def test_a_group_is_as_old_as_it_will_be_in_the_batch_that_it_waits_for(lead: int | None, dropped: list[int]) -> None:
    """Two groups a batch, two steps begun: the first two survivors fill batch 2, the next batch 3, of age 1 at most."""
    shape = RunSizes(prompts_per_step=2, group_size=1, replicas=1, max_num_seqs=8)
    view = View(shape, Loads(1), version=2, steps_begun=2)
    for number, version in enumerate([0, 1, 1, 1, 2]):
        view.ready[number] = Group(number, number, 0, 10, version, 0)
    for number, version in enumerate([0, 1, 2], start=5):
        view.open[number] = Group(number, number, 0, 10, version, 0)
    part = OffPolicySteps(max_steps=1, in_flight=True, lead_batches=lead).start(shape)
    assert list(part.expired(view)) == dropped
    oldest = {None: 3, 1: 2, 0: 1}[lead]
    assert list(part.abandoned(view)) == [group for group, found in view.open.items() if found.version < oldest]


def test_prime_rl_drops_in_flight_as_well_as_in_the_queue() -> None:
    log = run_of("prime-rl", {"max_off_policy_steps": 0, "max_inflight": 40}, trainer__fixed_seconds_per_step=0.1)
    finished = ends(log)
    dropped = [row for row in log.final if row.outcome == "dropped_stale"]
    assert [row for row in dropped if row.sample in finished]
    assert [row for row in dropped if row.sample not in finished and row.tokens]


def test_dropping_stale_work_leaves_the_trainer_shorter_responses_than_were_asked_for() -> None:
    """Long responses are in flight over more updates: prime-rl pull request 2960, tinker-cookbook 822."""
    mean: dict[int, float] = {}
    for steps in (1, 99):
        given = {"max_off_policy_steps": steps, "max_inflight": 64}
        sizes = {"workload__group_size": 1, "run__steps": 40, "trainer__fixed_seconds_per_step": 0.0}
        log = run_of("prime-rl", given, **sizes)
        trained = [row.tokens for row in log.final if row.outcome == "trained"]
        mean[steps] = sum(trained) / len(trained)
    asked_for = (1 + 60) / 2
    assert mean[1] < 0.8 * asked_for
    assert mean[1] < 0.9 * mean[99]


# -- open-instruct ------------------------------------------------------------------------------------


@few
@given(steps=st.integers(1, 4), size=members, seed=seeds, trainer=trainers)
def test_open_instruct_keeps_its_pool_full_until_it_has_prepared_async_steps_ahead(
    steps: int, size: int, seed: int, trainer: float
) -> None:
    given = {"async_steps": steps, "max_result_age_steps": 99}
    sizes = {"seed": seed, "workload__group_size": size, "trainer__fixed_seconds_per_step": trainer}
    log = run_of("open-instruct-async", given, **sizes)
    place = ends(log)
    for number, moment in enumerate(moments(log)):
        begun = moment.begun // size
        done = sum(all(place.get(group * size + one, 10**9) <= number for one in range(size)) for group in range(begun))
        last_consumed = moment.trained // (3 * size) - 1
        collected = min(done, (last_consumed + 1 + steps) * 3)
        assert begun == steps * 3 + collected


@few
@given(steps=st.integers(1, 4), age=st.integers(0, 3), seed=seeds, trainer=trainers)
def test_open_instruct_trains_no_result_older_than_its_age(steps: int, age: int, seed: int, trainer: float) -> None:
    given = {"async_steps": steps, "max_result_age_steps": age}
    log = run_of("open-instruct-async", given, seed=seed, trainer__fixed_seconds_per_step=trainer)
    assert max(start_lags(log)) <= age
    assert len(log.iterations) == 5


def test_open_instruct_waits_for_requests_under_way_when_updates_are_not_in_flight() -> None:
    log = run_of("open-instruct-async", {"async_steps": 1, "inflight_updates": False})
    for moment in moments(log):
        if any(isinstance(made, Sync) for made in moment.commands):
            assert not moment.calls


# -- tinker-cookbook ----------------------------------------------------------------------------------


@few
@given(steps=st.integers(0, 2), seed=seeds)
def test_tinker_discards_stale_groups_and_queues_their_prompts_again(steps: int, seed: int) -> None:
    slow = {"trainer__fixed_seconds_per_step": 1.5}
    log = run_of("tinker-cookbook-async", {"max_steps_off_policy": steps}, seed=seed, run__steps=6, **slow)
    assert max(start_lags(log)) <= steps
    for moment in moments(log):
        assert len(groups_of(tuple(moment.calls), 2)) <= 3
    dropped = {row.sample // 2 for row in log.final if row.outcome == "dropped_stale"}
    drawn = draws(log)
    lost = {drawn[group][0] for group in dropped}
    again = {(draw, recycle - 1) for group in drawn.values() for draw, recycle in set(group) if recycle}
    assert again
    assert again <= lost
    assert (
        len({draw for group in drawn.values() for draw, _ in group}) == max(group[0][0] for group in drawn.values()) + 1
    )


# -- groups of one ------------------------------------------------------------------------------------


@few
@given(seed=seeds, seats=st.integers(1, 6))
def test_sao_trains_samples_in_the_order_in_which_they_end(seed: int, seats: int) -> None:
    log = run_of("sao", {"max_rollouts": seats}, seed=seed)
    place = ends(log)
    in_order = sorted(place, key=lambda sample: place[sample])
    assert [set(batch) for batch in batches(log)] == [set(in_order[at : at + 3]) for at in range(0, 15, 3)]


def test_sao_refuses_larger_groups() -> None:
    with pytest.raises(ResolveError, match=r"workload\.group_size: 1"):
        resolve(scenario({"preset": "sao"}, workload__group_size=2))
