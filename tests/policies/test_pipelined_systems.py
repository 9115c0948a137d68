"""What pipelined systems publish, from Periodic Asynchrony to Laminar and NeMo-RL; and what stalls."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_runs import batches, commands, ends, groups_of, moments, ran, run_of, start_lags

from rlsim.controller import Controller
from rlsim.core.commands import Abort, SetRole, Submit, Sync, Train
from rlsim.core.errors import DeadlockError
from rlsim.core.events import Finished, Started, Synced, Trained
from rlsim.core.log import RunLog
from rlsim.core.ticks import to_seconds
from rlsim.core.view import RunSizes, View
from rlsim.policies.admission.bounded_staleness import CumulativeCapacity
from rlsim.policies.protocols import Policy
from rlsim.policies.registry import make_part
from rlsim.policies.retention import KeepAll

few = settings(max_examples=8, deadline=None)
seeds = st.integers(0, 10_000)
trainers = st.sampled_from([0.0, 0.2, 3.0])


def starts_of_training(log: RunLog) -> dict[int, int]:
    """Step to the tick at which its first part was asked for."""
    found: dict[int, int] = {}
    for now, made in commands(log, Train):
        found.setdefault(made.step, now)
    return found


# -- Periodic Asynchrony ------------------------------------------------------------------------------


@few
@given(groups=st.integers(1, 3), seed=seeds, trainer=trainers)
def test_periodic_asynchrony_overlaps_and_stays_on_policy_with_one_sync_an_iteration(
    groups: int, seed: int, trainer: float
) -> None:
    log = run_of("periodic-asynchrony", {"min_groups": groups}, seed=seed, trainer__fixed_seconds_per_step=trainer)
    assert set(start_lags(log)) == {0}
    assert len(commands(log, Sync)) == 5
    assert sorted(sample for batch in batches(log) for sample in batch) == list(range(30))


def test_periodic_asynchrony_trains_while_it_generates_and_so_takes_less_time() -> None:
    slow = {"trainer__mfu": 1e-3, "trainer__fixed_seconds_per_step": 0.0}
    streamed, whole = run_of("periodic-asynchrony", {}, **slow), run_of("sync-disaggregated", {}, **slow)
    assert any(moment.calls for moment in moments(streamed) if any(isinstance(c, Train) for c in moment.commands))
    assert streamed.end < whole.end


# -- AsyncFlow ----------------------------------------------------------------------------------------


@few
@given(threshold=st.integers(1, 4), seed=seeds, trainer=trainers)
def test_asyncflow_puts_weights_off_and_keeps_the_lag_in_steps_within_its_threshold(
    threshold: int, seed: int, trainer: float
) -> None:
    log = run_of(
        "asyncflow",
        {"staleness_threshold": threshold},
        seed=seed,
        run__steps=8,
        trainer__fixed_seconds_per_step=trainer,
    )
    served_step = {0: 0}
    first: dict[int, int] = {}
    done = version = 0
    for row in log.decisions[:-1]:
        if isinstance(row.event, Finished):
            first.setdefault(row.event.sample, row.event.segments[0][0])
        if isinstance(row.event, Synced):
            version = row.event.version
        done += (
            isinstance(row.event, Trained) and row.event.step == done and trained_whole(log, row.event.step, row.now)
        )
        served_step.setdefault(version, done)
        for made in row.commands:
            if isinstance(made, Train):
                assert all(made.step - served_step[first[sample]] <= threshold for sample in made.samples)


def trained_whole(log: RunLog, step: int, now: int) -> bool:
    """Whether the last part of a step was asked for before ``now``."""
    return any(made.step == step and made.last and at < now for at, made in commands(log, Train))


def test_asyncflow_publishes_less_often_where_rollout_never_idles() -> None:
    fast = {"trainer__fixed_seconds_per_step": 0.0, "run__steps": 8}
    counts = [len(commands(run_of("asyncflow", {"staleness_threshold": t}, **fast), Sync)) for t in (1, 2, 4)]
    assert counts == [8, 4, 2]


def test_asyncflow_does_not_put_off_what_costs_nothing() -> None:
    log = run_of("asyncflow", {"staleness_threshold": 4}, trainer__fixed_seconds_per_step=9.0)
    assert len(commands(log, Sync)) == 5


# -- StreamRL -----------------------------------------------------------------------------------------


@few
@given(seed=seeds, trainer=trainers)
def test_streamrl_takes_whatever_is_complete_and_lags_by_one_version_at_most(seed: int, trainer: float) -> None:
    log = run_of("streamrl", seed=seed, trainer__fixed_seconds_per_step=trainer, workload__prompts_per_step=6)
    assert max(start_lags(log)) <= 1
    place, taken = ends(log), 0
    for number, row in enumerate(log.decisions[:-1]):
        done = sum(place[s] <= number and place.get(s ^ 1, 10**9) <= number for s in place if s % 2 == 0)
        for made in row.commands:
            if isinstance(made, Train):
                left = 6 - taken // 2 % 6
                assert len(made.samples) // 2 == min(done - taken // 2, left)
                taken += len(made.samples)


def test_streamrl_forms_batches_of_several_sizes() -> None:
    log = run_of("streamrl", trainer__fixed_seconds_per_step=0.1, trainer__mfu=1e-4, workload__prompts_per_step=8)
    assert len({len(batch) for batch in batches(log)}) > 2


# -- Mu-GRPO ------------------------------------------------------------------------------------------


@few
@given(stages=st.sampled_from([1, 2, 4]), seed=seeds)
def test_mu_grpo_switches_roles_once_a_stage_however_many_updates_it_makes(stages: int, seed: int) -> None:
    groups, updates = 8 // stages, 8 // stages
    sizes = {"workload__prompts_per_step": groups, "run__steps": stages, "rollout__gpus": 4, "trainer__gpus": 4}
    log = run_of("mu-grpo", {"updates_per_stage": updates}, seed=seed, **sizes)
    assert [made.updates for _, made in commands(log, Train)] == [updates] * stages
    assert len(commands(log, SetRole)) == 2 * stages
    assert sum(len(batch) for batch in batches(log)) == 16
    assert set(start_lags(log)) == {0}


# -- Laminar ------------------------------------------------------------------------------------------


@few
@given(batch=st.integers(1, 9), gpus=st.sampled_from([1, 2]), seed=seeds, trainer=trainers)
def test_laminar_makes_every_trajectory_under_one_version(batch: int, gpus: int, seed: int, trainer: float) -> None:
    sizes = {"rollout__gpus": gpus, "trainer__fixed_seconds_per_step": trainer}
    log = run_of("laminar", {"replica_batch": batch}, seed=seed, **sizes)
    for row in log.decisions:
        if isinstance(row.event, Finished):
            assert len(row.event.segments) == 1
    assert not commands(log, Abort)


@few
@given(batch=st.integers(1, 9), seed=seeds)
def test_laminar_fills_a_replica_only_when_it_is_empty(batch: int, seed: int) -> None:
    log = run_of("laminar", {"replica_batch": batch}, seed=seed)
    load = [0, 0]
    for row in log.decisions[:-1]:
        if isinstance(row.event, Finished):
            load[row.event.replica] -= 1
        new = [made.replica for made in row.commands if isinstance(made, Submit)]
        for replica in set(new):
            assert load[replica] == 0
            assert new.count(replica) == batch
            load[replica] = batch


def test_laminar_replicas_serve_versions_of_their_own() -> None:
    log = run_of("laminar", {"replica_batch": 6}, run__steps=8)
    seen: dict[int, list[int]] = {0: [], 1: []}
    for row in log.decisions:
        if isinstance(row.event, Finished):
            seen[row.event.replica].append(row.event.segments[0][0])
    assert all(versions == sorted(versions) for versions in seen.values())
    assert seen[0] != seen[1]
    assert max(seen[0]) > 2


# -- NeMo-RL ------------------------------------------------------------------------------------------


@few
@given(seed=seeds, trainer=trainers, preset=st.sampled_from(["nemo-rl-one-off", "nemo-rl-recompute-kv"]))
def test_nemo_one_off_lags_by_one_and_trains_each_step_on_its_own_groups(
    seed: int, trainer: float, preset: str
) -> None:
    log = run_of(preset, seed=seed, trainer__fixed_seconds_per_step=trainer)
    assert set(start_lags(log)) <= {0, 1}
    assert [groups_of(batch, 2) for batch in batches(log)] == [list(range(s * 3, s * 3 + 3)) for s in range(5)]


def test_nemo_that_recomputes_kv_prefills_again_what_nemo_one_off_keeps() -> None:
    fast = {"trainer__fixed_seconds_per_step": 0.0}
    assert run_of("nemo-rl-recompute-kv", **fast).prefill_tokens > run_of("nemo-rl-one-off", **fast).prefill_tokens


# -- what goes wrong ----------------------------------------------------------------------------------


class Forgetful(CumulativeCapacity):
    """Counts a dropped group as accepted for ever: the slot is not given back."""

    def start(self, shape: RunSizes) -> Forgetful:
        return self

    def capacity(self, view: View) -> tuple[int, str]:
        left = (self.max_staleness + view.version + 1) * view.shape.prompts_per_step - view.started_groups
        return left, "staleness"


class LosesOne(KeepAll):
    """Loses a complete group, as a worker that fails without a word does."""

    def start(self, shape: RunSizes) -> LosesOne:
        return self

    def expired(self, view: View) -> Sequence[int]:
        return [7] if 7 in view.ready else []


def test_a_lost_group_whose_slot_is_not_given_back_leaves_the_trainer_one_short_for_ever() -> None:
    """SkyRL issue 1173: the buffer stays below a batch and nothing more may enter."""
    loses = {"leftovers": {"use": f"{__name__}:LosesOne"}}
    forgets = {"admission": {"use": f"{__name__}:Forgetful", "max_staleness": 0}}
    with pytest.raises(DeadlockError) as caught:
        ran({"preset": "skyrl-fully-async", "parts": {**loses, **forgets}}, run__steps=6)
    assert "gate: staleness" in str(caught.value)
    assert "complete groups waiting: 2 of 3 for a batch; open groups: 0" in str(caught.value)
    log = ran({"preset": "skyrl-fully-async", "max_staleness_steps": 0, "parts": loses}, run__steps=6)
    assert len(log.iterations) == 6


def test_one_stuck_member_keeps_127_complete_groups_waiting() -> None:
    shape = RunSizes(prompts_per_step=128, group_size=2, replicas=4, max_num_seqs=256)
    specs: dict[str, dict[str, Any]] = {
        "admission": {"use": "cumulative-capacity", "max_staleness": 0, "max_open_groups": 768},
        "batching": {"use": "complete-groups"},
        "update": {"use": "publish", "mode": "keep"},
        "leftovers": {"use": "keep-all"},
        "dispatch": {"use": "sticky"},
        "placement": {"use": "disaggregated"},
    }
    parts: dict[str, Any] = {choice: make_part(choice, spec, choice).start(shape) for choice, spec in specs.items()}
    controller = Controller(Policy(**parts), shape, lambda draw: 10)
    calls = [made for made in controller.handle(0, Started()) if isinstance(made, Submit)]
    stuck = calls.pop(77)
    for call in calls:
        assert controller.handle(1, Finished(call.sample, call.replica, 1, ((0, 1),), "stop", 0)) == []
    view = controller.view
    assert (len(view.ready), view.open_groups, view.gate, view.trainer) == (127, 1, "staleness", "idle")
    (train,) = controller.handle(2, Finished(stuck.sample, stuck.replica, 1, ((0, 1),), "stop", 0))
    assert isinstance(train, Train)


def seconds_to_publish(log: RunLog) -> list[float]:
    """From the end of training to the publication that follows."""
    marks = [(row.now, type(row.event)) for row in log.decisions if isinstance(row.event, Trained | Synced)]
    return [
        to_seconds(later - earlier)
        for (earlier, one), (later, two) in pairwise(marks)
        if (one, two) == (Trained, Synced)
    ]


@pytest.mark.parametrize("latency", [0.1, 20.0])
def test_tools_that_cannot_be_cut_stretch_a_sync_that_drains(latency: float) -> None:
    turns = {"count": 2, "tool_latency_seconds": latency, "tool_output_tokens": 5}
    world = {"workload__turns": turns, "trainer__fixed_seconds_per_step": 0.0}
    drains = seconds_to_publish(run_of("nemo-rl-async", {"max_trajectory_age_steps": 1}, **world))
    keeps = seconds_to_publish(run_of("nemo-rl-one-off", {}, **world))
    assert max(keeps) < 0.5
    if latency > 1:
        assert max(drains) > 0.9 * latency
    else:
        assert max(drains) < 2.0
