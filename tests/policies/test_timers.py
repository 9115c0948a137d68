"""Timers that parts ask for, and trainers that poll their buffer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_runs import commands, ran, scenario

from rlsim.core.commands import Abort, Submit, Train, WakeAt
from rlsim.core.errors import DeadlockError
from rlsim.core.events import Finished, Noticed, Started, Synced, Woke
from rlsim.core.log import RunLog
from rlsim.core.ticks import Ticks, to_ticks
from rlsim.core.view import RunSizes, View
from rlsim.executor.run import make_controller
from rlsim.executor.termination import Timers
from rlsim.policies.protocols import Unit
from rlsim.resolve import resolve
from rlsim.results.replay.decisions import replay
from rlsim.sim.simulation import simulate

PERIOD = to_ticks(0.7)


@dataclass(frozen=True, slots=True)
class Drip:
    """One group every so often, whatever happens; its state is derived from the view."""

    period_seconds: float = 0.7
    unit: ClassVar[Unit] = "group"

    def start(self, shape: RunSizes) -> Drip:
        return self

    def capacity(self, view: View) -> tuple[int, str]:
        return view.now // to_ticks(self.period_seconds) + 1 - view.started_groups, "drip"

    def wake_at(self, view: View) -> Ticks | None:
        return view.started_groups * to_ticks(self.period_seconds)


@dataclass(slots=True)
class Restive:
    """Admits one batch and then only asks to be woken."""

    unit: ClassVar[Unit] = "group"
    asked: list[Ticks] = field(default_factory=list)

    def start(self, shape: RunSizes) -> Restive:
        return Restive()

    def capacity(self, view: View) -> tuple[int, str]:
        return view.shape.prompts_per_step - view.started_groups, "one batch"

    def wake_at(self, view: View) -> Ticks | None:
        self.asked.append(view.now)
        return (view.now // PERIOD + 1) * PERIOD


def own(part: str, **changes: object) -> dict[str, object]:
    return {"preset": "pipelinerl", "parts": {"admission": {"use": f"{__name__}:{part}", **changes}}}


def polled(seconds: float, **changes: object) -> RunLog:
    batching = {"use": "complete-groups", "poll_seconds": seconds}
    return ran({"preset": "areal", "max_head_offpolicyness": 1, "parts": {"batching": batching}}, **changes)


def test_groups_enter_at_the_instants_of_a_part_that_asks_for_timers() -> None:
    log = ran(own("Drip"))
    begun = [row.now for row in log.decisions if any(type(made).__name__ == "Submit" for made in row.commands)]
    assert begun == [number * PERIOD for number in range(len(begun))]
    assert len(begun) > 10


def test_timers_alone_keep_no_run_alive() -> None:
    with pytest.raises(DeadlockError, match="one batch"):
        ran(own("Restive"))


def test_a_recorded_run_with_timers_is_what_its_controller_would_do_again() -> None:
    for policy in (own("Drip"), {"preset": "laminar-repack", "replica_batch": 4, "repack_seconds": 0.5}):
        made = resolve(scenario(policy))
        run = simulate(made)
        assert any(isinstance(row.event, Woke) for row in run.log.decisions)
        replay(run.log.decisions, make_controller(made, made.workload_of(0)))


@settings(max_examples=25, deadline=None)
@given(seconds=st.floats(0.05, 3.0), seed=st.integers(0, 1000))
def test_a_polling_trainer_takes_batches_only_at_its_looks(seconds: float, seed: int) -> None:
    log = polled(seconds, seed=seed)
    waits_since = {0: 0}
    for row in log.decisions:
        if isinstance(row.event, Synced):
            waits_since[row.event.version] = row.now
    for now, command in commands(log, Train):
        waited = now - waits_since[command.step]
        assert waited % to_ticks(seconds) == 0


def test_polling_delays_a_step_by_less_than_one_look() -> None:
    steps = 5
    told, looked = polled(0.0).end, polled(0.5).end
    assert told < looked < told + steps * to_ticks(0.5)


def test_a_look_is_made_only_after_something_happened() -> None:
    log = polled(1e-3)
    rings = sum(isinstance(row.event, Woke) for row in log.decisions)
    others = sum(not isinstance(row.event, Woke | Started) for row in log.decisions)
    assert 0 < rings <= others


def test_repacking_looks_at_its_own_interval() -> None:
    policy = {"preset": "laminar-repack", "replica_batch": 4, "repack_below": 3, "repack_capacity": 4}
    log = ran({**policy, "repack_seconds": 0.05})
    versions = {row.now for row in log.decisions if isinstance(row.event, Synced)}
    cuts = [row for row in log.decisions if any(isinstance(made, Abort) for made in row.commands)]
    asked = {made.at for row in log.decisions for made in row.commands if isinstance(made, WakeAt)}
    assert cuts
    assert all(row.now in asked | versions for row in cuts)


def test_a_notice_answers_nothing_so_the_call_that_it_tells_of_is_still_owed() -> None:
    timers, call = Timers(), Submit(0, 0, 0, 0, 0, 0, 0, 10)
    timers.count(Started(), [call])
    timers.count(Noticed(0, 8, 0.5), [])
    assert not timers.idle
    timers.count(Finished(0, 0, 20, ((0, 20),), "stop", 1), [])
    assert timers.idle
