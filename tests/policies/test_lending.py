"""Replicas on the trainer's GPUs: lent while the trainer waits, taken back before it trains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from compositions import fault
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_runs import AGENTS, POLICIES, ran, scenario

from rlsim.core.commands import SetRole, Submit, Train
from rlsim.core.events import Aborted, RoleSet, Synced
from rlsim.core.loads import Loads
from rlsim.core.log import RunLog
from rlsim.core.ticks import to_ticks
from rlsim.core.view import Group, RunSizes, View
from rlsim.executor.run import make_controller
from rlsim.policies.placement import DynamicSchedule, HybridSwitching, Switching
from rlsim.resolve import resolve
from rlsim.resolve.scenario import gpus_used
from rlsim.results.metrics import metrics
from rlsim.results.tables import digest
from rlsim.sim.simulation import simulate

few = settings(max_examples=15, deadline=None)
HYBRIDS = ["verl-v1-separate-async-hybrid", "verl-fully-async-dynamic", "roll-agentic-partial-gpu"]
LENT = {"cluster__gpus": 4, "rollout__gpus": 4, "trainer__gpus": 2}
"""Replicas 2 and 3 are on the trainer's GPUs."""


def lending(placement: dict[str, Any] | str, **changes: Any) -> RunLog:
    part = {"use": placement} if isinstance(placement, str) else placement
    policy = {"preset": "areal", "max_head_offpolicyness": 2, "parts": {"placement": part}}
    return ran(policy, **{**LENT, **changes})


def hybrid(preset: str, seed: int, **changes: Any) -> RunLog:
    agents = AGENTS if "agentic" in preset else {}
    return ran({"preset": preset, **POLICIES[preset]}, seed=seed, **LENT, **agents, **changes)


def told(log: RunLog) -> Iterator[tuple[int, Any, list[Any], str]]:
    """Decisions, with whose the lent GPUs are after their event: trainer, changing or rollout."""
    side = "trainer"
    for now, event, commands in log.decisions[:-1]:
        if isinstance(event, RoleSet):
            side = "rollout" if event.role == "rollout" else "trainer"
        yield now, event, list(commands), side
        if any(isinstance(made, SetRole) for made in commands):
            side = "changing"


@few
@given(preset=st.sampled_from(HYBRIDS), seed=st.integers(0, 200))
def test_what_is_lent_serves_no_call_while_it_is_the_trainers_and_trains_nothing_while_it_is_not(
    preset: str, seed: int
) -> None:
    for _, _, commands, side in told(hybrid(preset, seed)):
        for command in commands:
            if isinstance(command, Submit) and command.replica >= 2:
                assert side == "rollout"
            if isinstance(command, Train):
                assert side == "trainer"


@few
@given(preset=st.sampled_from(HYBRIDS), seed=st.integers(0, 200))
def test_lent_replicas_run_no_step_outside_a_loan(preset: str, seed: int) -> None:
    log = hybrid(preset, seed)
    loans = [(span.start, span.end) for span in log.spans if span.what == "lent"]
    for window in log.windows:
        if window.replica >= 2:
            assert any(start <= window.start and window.end <= end for start, end in loans)


def test_gpus_go_back_in_the_event_that_completes_the_batch() -> None:
    policy = {"preset": "areal", "max_head_offpolicyness": 2, "parts": {"placement": {"use": "lend-while-idle"}}}
    made = resolve(scenario(policy, **LENT))
    controller = make_controller(made, made.workload_of(0))
    before, recalls = "idle", 0
    for now, event, _ in simulate(made).log.decisions:
        controller.handle(now, event)
        view = controller.view
        assert view.trainer != "lent" or len(view.ready) < view.shape.prompts_per_step
        if before in ("lent", "lending") and view.trainer in ("recalling", "returning"):
            recalls += 1
            assert len(view.ready) >= view.shape.prompts_per_step
        before = view.trainer
    assert recalls > 2


def test_calls_on_gpus_that_go_back_are_cut_and_go_on_elsewhere() -> None:
    policy = {"preset": "areal", "max_head_offpolicyness": 2, "parts": {"placement": {"use": "lend-while-idle"}}}
    made = resolve(scenario(policy, **LENT))
    controller = make_controller(made, made.workload_of(0))
    cut = 0
    for now, event, _ in simulate(made).log.decisions:
        controller.handle(now, event)
        if controller.view.trainer == "recalling":
            there = [one for one in controller.view.generating_samples.values() if one.replica >= 2]
            assert there
            assert all(one.aborting for one in there)
            cut += len(there)
    assert cut > 0


def test_a_ratio_of_nothing_is_the_run_without_the_lent_replicas() -> None:
    never = lending({"use": "dynamic-schedule", "deactivate_ratio": 0.0, "adapts": False, "before_data_seconds": 0.0})
    alone = ran({"preset": "areal", "max_head_offpolicyness": 2}, cluster__gpus=4, rollout__gpus=2, trainer__gpus=2)
    assert [row.end for row in never.iterations] == [row.end for row in alone.iterations]
    assert never.windows == alone.windows


def test_help_shortens_a_run_that_waits_for_samples_and_costs_switches() -> None:
    slow = {"workload__response_tokens": {"law": "uniform", "low_tokens": 200, "high_tokens": 900}}
    seats = {"rollout__max_num_seqs": 2, "workload__prompts_per_step": 8}
    quick = {"switching": {"sleep_seconds": 0.05, "wake_seconds": 0.05}}
    helped = lending("lend-while-idle", **slow, **seats, **quick).end
    alone = ran(
        {"preset": "areal", "max_head_offpolicyness": 2},
        cluster__gpus=4, rollout__gpus=2, trainer__gpus=2, **slow, **seats,
    ).end  # fmt: skip
    dear = {"switching": {"sleep_seconds": 30.0, "wake_seconds": 30.0}}
    assert helped < 0.8 * alone
    assert lending("lend-while-idle", **slow, **seats, **dear).end > alone


def test_v1_stops_helping_once_it_has_seen_that_it_does_not_pay() -> None:
    """Three groups of 14 s at half the time, 21 s, against 30 s of switching."""
    log = ran(
        {"preset": "verl-v1-separate-async-hybrid", "parameter_sync_step": 4},
        **LENT,
        workload__response_tokens={"law": "uniform", "low_tokens": 1000, "high_tokens": 4500},
        workload__prompts_per_step=8,
        rollout__max_num_seqs=2,
        switching={"sleep_seconds": 15.0, "wake_seconds": 15.0},
    )
    assert sum(isinstance(row.event, RoleSet) for row in log.decisions) == 2


# -- the frameworks' rules by hand ------------------------------------------------------------------------

SHAPE = RunSizes(20, 1, 4, 8, lent_replicas=range(3, 4))


def looked(now: float, started: int, ready: int, switches: list[float], steps: int = 0, taken: int = 0) -> View:
    view = View(SHAPE, Loads(4), now=to_ticks(now), started_groups=started, steps_begun=steps, steps_done=steps)
    for number in range(taken, taken + ready):
        view.ready[number] = Group(number, number, 0, 1, 0, 0)
    for number in range(taken + ready, started):
        view.open[number] = Group(number, number, 0, 1, 0, 0)
    view.switch_ticks = [to_ticks(seconds) for seconds in switches]
    return view


def helped_once(part: Switching, switches: list[float]) -> None:
    """A loan before the first step, and a step in which 2 of the 5 groups of a mini-batch were waited for, 6 s."""
    assert part.lends(looked(0, 20, 0, []))
    assert part.recalls(looked(10, 20, 8, switches))
    for now, ready, taken in ((11, 8, 0), (20, 3, 5), (26, 5, 5), (30, 5, 10), (35, 5, 15)):
        assert not part.lends(looked(now, 40, ready, switches, taken=taken))


@pytest.mark.parametrize(("ready", "lends"), [(0, True), (7, True), (8, False)])
def test_v1_begins_with_help_as_nobody_knows_better(ready: int, lends: bool) -> None:
    """The share is 8 of 20 groups."""
    assert HybridSwitching().start(SHAPE).lends(looked(0, 20, ready, [])) is lends


@pytest.mark.parametrize(
    ("ready", "cost", "lends"), [(2, 4.49, True), (2, 4.51, False), (6, 1.49, True), (6, 1.51, False), (8, 0.0, False)]
)
def test_v1_switches_when_remaining_time_saved_exceeds_the_mean_cost(ready: int, cost: float, lends: bool) -> None:
    """(8 - ready) groups x 3 s x (1 - 3 / 4) against the mean of three cycles of ``cost``."""
    part = HybridSwitching().start(SHAPE)
    helped_once(part, [cost / 2] * 6)
    assert part.lends(looked(40, 40, ready, [cost / 2] * 6, steps=1, taken=20)) is lends


def test_v1_decides_once_a_step() -> None:
    part = HybridSwitching().start(SHAPE)
    helped_once(part, [9.0, 9.0])
    assert not part.lends(looked(40, 40, 6, [9.0, 9.0], steps=1, taken=20))
    assert not part.lends(looked(50, 40, 1, [0.0, 0.0], steps=1, taken=25))
    assert part.lends(looked(60, 60, 0, [0.0, 0.0], steps=2, taken=40))


def test_v1_does_not_count_as_waiting_what_the_gpus_helped() -> None:
    part = HybridSwitching().start(SHAPE)
    helped_once(part, [0.1, 0.1])
    assert part.lends(looked(40, 40, 0, [0.1, 0.1], steps=1, taken=20))
    part.lends(looked(900, 40, 8, [0.1, 0.1], steps=1, taken=20))
    assert part.lends(looked(910, 60, 6, [0.7, 0.7], steps=2, taken=40))  # 2 x 3 s / 4 = 1.5 s, as before


def test_v1_raises_its_share_with_each_idle_step_from_the_second_on_and_lowers_it_so() -> None:
    part = HybridSwitching(mini_batches=4).start(SHAPE)
    helped_once(part, [1.0, 1.0])
    thresholds = []
    for step, waits in enumerate((True, True, True, False, False, False, *[False] * 20), start=1):
        dear, taken = [900.0, 900.0], 20 * step
        assert not part.lends(looked(100 * step, taken + 20, 0, dear, steps=step, taken=taken))
        if waits:
            part.lends(looked(100 * step + 3, taken + 20, 5, dear, steps=step, taken=taken))
        thresholds.append(part._ratio)
    assert thresholds[:7] == pytest.approx([0.4, 0.45, 0.5, 0.55, 0.55, 0.52, 0.49])
    assert thresholds[-1] == pytest.approx(1 / 4)


def test_v1_deals_what_is_under_way_anew_over_all_replicas() -> None:
    """On four replicas, two of them lent: as many calls on each, but for one."""
    preset = "verl-v1-separate-async-hybrid"
    made = resolve(scenario({"preset": preset, **POLICIES[preset]}, **LENT))
    controller = make_controller(made, made.workload_of(0))
    before, dealt = "idle", 0
    for now, event, commands in simulate(made).log.decisions:
        controller.handle(now, event)
        view = controller.view
        if before == "lending" and view.trainer == "lent" and view.generating_samples:
            assert all(sample.aborting for sample in view.generating_samples.values())
        if isinstance(event, Aborted) and before == "lent" and any(isinstance(made, Submit) for made in commands):
            assert max(view.loads.in_flight) - min(view.loads.in_flight) <= 1
            dealt += 1
        before = view.trainer
    assert dealt > 0


def test_v1_would_rather_help_than_train_on_the_one_mini_batch_that_is_there() -> None:
    preset = "verl-v1-separate-async-hybrid"
    log = hybrid(preset, 0)
    first = next(row for row in log.decisions if any(isinstance(made, (SetRole, Train)) for made in row.commands))
    assert any(isinstance(made, SetRole) for made in first.commands)


@pytest.mark.parametrize(("ready", "cost", "lends"), [(2, 3.9, True), (2, 4.1, False), (6, 0.0, False)])
def test_the_dynamic_schedule_helps_when_waiting_would_take_longer(ready: int, cost: float, lends: bool) -> None:
    """(6 - ready) groups x 1 s against the mean of three cycles."""
    part = DynamicSchedule(before_data_seconds=1.0).start(SHAPE)
    assert part.lends(looked(ready, 20, ready, [cost / 2] * 6)) is lends


def test_the_dynamic_schedule_begins_with_the_frameworks_guesses() -> None:
    assert DynamicSchedule().start(SHAPE).lends(looked(0, 20, 0, []))
    assert not DynamicSchedule(before_data_seconds=1.0).start(SHAPE).lends(looked(0, 20, 0, []))


def test_the_dynamic_schedule_learns_from_what_the_trainer_waited_for() -> None:
    part = DynamicSchedule(before_data_seconds=0.0).start(SHAPE)
    part.lends(looked(1, 20, 0, []))
    part.lends(looked(2, 20, 1, []))
    part.lends(looked(3, 20, 0, [], steps=1))
    assert part._ratio == pytest.approx(0.3 + 1 / 20)
    part.lends(looked(4, 20, 0, [], steps=2))
    assert part._ratio == pytest.approx(0.3 + 1 / 20 - 0.02)


# -- books ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", HYBRIDS)
def test_shared_gpus_count_once(preset: str) -> None:
    agents = AGENTS if "agentic" in preset else {}
    made = resolve(scenario({"preset": preset, **POLICIES[preset]}, **LENT, **agents))
    run = simulate(made)
    read = digest(run)
    assert gpus_used(made) == 4
    seconds = dict.fromkeys(range(-1, 4), 0)
    rows = read.activity
    for who, what, start, end in zip(rows.who, rows.what, rows.start, rows.end, strict=True):
        if rows.names[what] != "away":
            seconds[int(who)] += int(end - start)
    lent = sum(span.end - span.start for span in run.log.spans if span.what == "lent")
    assert seconds[-1] == seconds[0] == seconds[1] == run.log.end
    assert seconds[2] == seconds[3] == lent
    shares = metrics(run).utilisation
    for of in (shares.rollout, shares.trainer, shares.all):
        assert sum(of.values()) == pytest.approx(1)
        assert not {"lent", "away"} & {use for use, share in of.items() if share}


def test_of_a_trainer_that_lends_a_part_the_rest_still_counts() -> None:
    policy = {"preset": "areal", "max_head_offpolicyness": 2, "parts": {"placement": {"use": "lend-while-idle"}}}
    run = simulate(resolve(scenario(policy, cluster__gpus=5, rollout__gpus=4, trainer__gpus=2)))
    end = run.log.end
    lent = sum(span.end - span.start for span in run.log.spans if span.what == "lent")
    shares = metrics(run).utilisation
    assert 0 < lent < end
    for use, share in shares.all.items():
        parts = shares.rollout[use] * (3 * end + lent) + shares.trainer[use] * (2 * end - lent)
        assert share * 5 * end == pytest.approx(parts)


def test_every_publication_reaches_the_lent_replicas() -> None:
    log = lending("lend-while-idle")
    version = 0
    for row in log.decisions[:-1]:
        if isinstance(row.event, Synced):
            version = row.event.version
        for segment in getattr(row.event, "segments", ()):
            if row.event.replica >= 2:
                assert segment[0] <= version
    assert version > 2


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"cluster__gpus": 6}, "policy.parts.placement.use"),
        ({"cluster__gpus": 4, "rollout__gpus": 2, "trainer__gpus": 4}, "trainer.gpus"),
        ({"cluster__gpus": 5, "trainer__gpus": 4, "rollout__tensor_parallel": 2}, "trainer.gpus"),
    ],
)
def test_a_cluster_that_cannot_lend_is_refused_with_its_key(changes: dict[str, Any], key: str) -> None:
    policy = {"preset": "areal", "parts": {"placement": {"use": "lend-while-idle"}}}
    assert fault(policy, **{**LENT, **changes})[0] == key
