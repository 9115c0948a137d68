"""Inputs that had to be assumed: the place of the fixed overhead is among them, and an empty list turns all off."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_cases import written

from rlsim.core.errors import ScenarioError
from rlsim.scenario.document import load
from rlsim.studies.assumed import variations
from rlsim.studies.compare import Comparison, compare_plans, plans, run_count
from rlsim.studies.runs.executor import local_executor
from rlsim.studies.text.comparison import as_text

ARMS = """
arms:
  shared: {policy: {preset: sync-colocated}}
  apart: {}
"""
OF_ROLES = ("sync: {", "switching: {wake_seconds: 20.0, sleep_seconds: 0.0}\nsync: {")
OF_STEPS = ("{gpus: 1, mfu: 0.4}", "{gpus: 1, mfu: 0.4, fixed_seconds_per_step: 20.0}")


def compared(directory: Path, more: str, *changes: tuple[str, str]) -> Comparison:
    resolved = plans(load(str(written(directory, more, *changes))))
    with local_executor() as runs:
        return compare_plans(resolved, runs)


@pytest.mark.parametrize(("overhead", "sign"), [(OF_ROLES, 1), (OF_STEPS, -1)])
def test_the_place_of_a_fixed_overhead_moves_the_speed_up(tmp_path: Path, overhead: tuple[str, str], sign: int) -> None:
    comparison = compared(tmp_path, ARMS, overhead)
    shared, apart = comparison.shifts
    assert (shared.arm, apart.arm) == ("shared", "apart")
    # Shared GPUs change roles once a step; GPUs of their own have it in each step or never.
    step = comparison.arms[1].records[0].metrics.step_seconds
    assert apart.change * step == pytest.approx(sign * apart.value, rel=0.01)
    assert shared.change * comparison.arms[0].records[0].metrics.step_seconds == pytest.approx(0.0, abs=1.0)
    as_set, moved = comparison.shifted_speedup(apart)
    assert (moved < as_set) == (sign > 0)
    assert f"(speed-up {moved:.2f}x, not {as_set:.2f}x)" in " ".join(as_text(comparison).split())


def test_an_empty_list_turns_it_off_and_says_so(tmp_path: Path) -> None:
    comparison = compared(tmp_path, ARMS.replace("apart: {}", "apart: {sensitivity: []}"), OF_ROLES)
    assert [shift.arm for shift in comparison.shifts] == ["shared"]
    assert "Sensitivity is off (sensitivity: []) in apart." in as_text(comparison)
    assert comparison.to_dict()["sensitivity_off"] == ["apart"]


def test_without_a_fixed_overhead_or_with_shared_gpus_alone_there_is_nothing_to_move(tmp_path: Path) -> None:
    assert variations(plans(load(str(written(tmp_path, ARMS))))) == []
    resolved = plans(load(str(written(tmp_path, ARMS, OF_ROLES))))
    assert run_count(resolved) == 2 * 3 + 2
    assert variations({"shared": resolved["shared"]}) == []


def test_the_answer_comes_first_then_warnings_then_tables(tmp_path: Path) -> None:
    row = "published: [{step_seconds: 9, source: a table, grade: A}]\n"
    document = load(str(written(tmp_path, ARMS + row, ("replications: 3", "replications: 1"))), sets=["cluster.gpus=4"])
    with local_executor() as runs:
        text = as_text(compare_plans(plans(document), runs, warnings=document.dropped_rows()))
    lines = text.splitlines()
    assert lines[0].startswith("shared: ")
    assert " s a step. " in lines[0]
    warning = next(number for number, line in enumerate(lines) if "published step_seconds of 9 is left out" in line)
    assert warning < next(number for number, line in enumerate(lines) if "─" in line)


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        (
            "{key: rollout.gpus, values: [1.5], reason: x}",
            "sensitivity[0].values: found 1.5; allowed: what this",
        ),
        ("{key: rollout.gpus, values: [9], reason: x}", "(rollout.gpus: found 9; allowed: at most cluster.gpus (2))"),
        (
            "{key: rollout.gpu, values: [1], reason: x}",
            "sensitivity[0].key: found 'rollout.gpu'; allowed: the key",
        ),
        ("{key: model, values: [1], reason: x}", "(model: found 1; allowed: text"),
    ],
)
def test_an_assumed_input_that_cannot_be_run_is_refused_before_anything_runs(
    tmp_path: Path, entry: str, fault: str
) -> None:
    file = written(tmp_path, f"sensitivity:\n- {entry}\n")
    with pytest.raises(ScenarioError) as caught:
        plans(load(str(file)))
    (line,) = caught.value.faults
    assert line.startswith(f"{file}:")
    assert fault in line


def test_a_whole_number_is_varied_as_one(tmp_path: Path) -> None:
    entry = "sensitivity: [{key: rollout.max_num_seqs, values: [2], reason: x}]\n"
    (variation,) = variations(plans(load(str(written(tmp_path, entry)))))
    assert variation.scenario.rollout.max_num_seqs == 2
