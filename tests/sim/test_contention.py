"""Engines and trainer slow each other down: engine steps that begin in a training, phases that begin beside a step."""

from __future__ import annotations

from typing import Any

import pytest
from small_runs import STEP, STEP_SECONDS, ledger_is_closed, planned, ran

from rlsim.core.commands import Train
from rlsim.core.errors import ParameterError
from rlsim.core.log import RunLog
from rlsim.core.ticks import Ticks, to_ticks
from rlsim.live.backends import backend
from rlsim.live.run import refuse
from rlsim.sim.simulation import simulate

BESIDE: dict[str, Any] = {
    "policy.preset": "one-step-off",
    "workload.response_tokens": {"law": "uniform", "low_tokens": 20, "high_tokens": 200},
    "trainer.mfu": 0.01,
    "trainer.fixed_seconds_per_step": 0.7,
    "run.steps": 5,
}
STEPS_FACTOR, PHASES_FACTOR = "contention.step_factor_while_training", "contention.training_factor_while_generating"


def trainings(log: RunLog) -> list[tuple[Ticks, Ticks]]:
    """Begin and end of every training."""
    asked = [now for now, _, commands in log.decisions for command in commands if type(command) is Train]
    phases = [row for row in log.spans if row.who == -1 and row.what != "sync"]
    begun = zip(asked, [*asked[1:], log.end + 1], strict=True)
    spans = [(begin, [row.end for row in phases if begin <= row.start < end]) for begin, end in begun]
    return [(begin, max(ends)) for begin, ends in spans if ends]


def test_steps_that_begin_in_a_training_take_so_many_times_as_long() -> None:
    log = ran({**BESIDE, STEPS_FACTOR: 1.5})
    lengths = {"in": set[Ticks](), "out": set[Ticks]()}
    for row in log.windows:
        beside = any(begin < row.start < end for begin, end in trainings(log))
        at_an_edge = any(row.start in training for training in trainings(log))
        if row.steps and not at_an_edge:
            lengths["in" if beside else "out"].add((row.end - row.start) // row.steps)
    assert lengths == {"in": {STEP * 3 // 2}, "out": {STEP}}


def test_the_step_under_way_when_a_training_begins_keeps_its_length_and_is_the_last_of_its_window() -> None:
    scored_late = {"workload.reward": {"latency_seconds": STEP_SECONDS / 3}}  # so batches are complete within a step
    log = ran({**BESIDE, **scored_late, "policy.preset": "pipelinerl", "trainer.mfu": 0.4, STEPS_FACTOR: 1.5})
    alone = [row for row in log.windows if not any(begin <= row.start <= end for begin, end in trainings(log))]
    begun = [(row, begin) for row in alone for begin, _ in trainings(log) if begin < row.end]
    begun = [(row, begin) for row, begin in begun if row.start < begin]
    assert begun
    for row, begin in begun:
        assert row.end - row.start == STEP * row.steps
        assert row.end - begin <= STEP


def test_phases_that_begin_beside_an_engine_step_take_so_many_times_as_long() -> None:
    given, seen = to_ticks(BESIDE["trainer.fixed_seconds_per_step"]), set()
    for mfu in (0.01, 0.0003):  # with the slower trainer the engines have run dry when its last phase begins
        log = ran({**BESIDE, PHASES_FACTOR: 1.25, "trainer.mfu": mfu})
        for row in log.spans:
            if row.what == "overhead":
                beside = any(window.start <= row.start < window.end for window in log.windows)
                seen.add(beside)
                assert row.end - row.start == (given * 5 // 4 if beside else given)
    assert seen == {True, False}


def test_where_nothing_runs_side_by_side_nothing_is_slower() -> None:
    changes = {"policy.preset": "sync-disaggregated", "run.steps": 4}
    plain, contended = (ran({**changes, **more}) for more in ({}, {STEPS_FACTOR: 2.0, PHASES_FACTOR: 2.0}))
    assert [row.end for row in plain.iterations] == [row.end for row in contended.iterations]
    assert plain.windows == contended.windows
    assert plain.spans == contended.spans


@pytest.mark.parametrize("preset", ["one-step-off", "areal", "pipelinerl", "slime-april"])
def test_whoever_overlaps_loses_and_the_ledger_closes(preset: str) -> None:
    changes = {**BESIDE, "policy": {"preset": preset}}
    del changes["policy.preset"]
    plain, contended = (
        simulate(planned({**changes, **more})).log for more in ({}, {STEPS_FACTOR: 1.3, PHASES_FACTOR: 1.3})
    )
    assert ledger_is_closed(contended)
    assert contended.iterations[-1].end >= plain.iterations[-1].end


@pytest.mark.parametrize("key", [STEPS_FACTOR, PHASES_FACTOR])
def test_engines_that_keep_a_pace_refuse_contention(key: str) -> None:
    with pytest.raises(ParameterError, match=f"{key}: found 1.5; allowed: 1: emulated engines"):
        refuse(planned({key: 1.5}), backend("fake"))
