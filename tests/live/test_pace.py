"""A step law handed to an engine's process, and the times at which its steps are due."""

from __future__ import annotations

from pathlib import Path

from rlsim.costs.step_model import StepTimeModel
from rlsim.engine.steptime import StepTime
from rlsim.live.vllm.batch import StepBatch
from rlsim.live.vllm.pace import GRACE_TICKS, StepPace, lateness, read_law, write_law

LAW = StepTime(dense_ps=[100] * 20, sequence_ps=[0] * 20, kv_ps=[0, 1, 1, 1], pair_ps=0)
ONE = StepBatch(decodes=1, kv_tokens=10)


def test_an_engine_reads_the_integers_of_the_plan(tmp_path: Path) -> None:
    given = StepTimeModel.affine(6e-3, 1.4e-5, 4.2e-8, 2e-5, 1e-10).quantise(512, 64)
    write_law(given, tmp_path / "law.json")
    assert read_law(tmp_path / "law.json") == given


def test_a_law_with_a_dearer_decode_beside_a_chunk_stays_so(tmp_path: Path) -> None:
    given = StepTime([5, 6, 7], [0, 1], [0, 2], 3, [0, 9, 9], [0, 4])
    write_law(given, tmp_path / "law.json")
    read = read_law(tmp_path / "law.json")
    beside = StepBatch(decodes=1, kv_tokens=10, chunks=0)
    assert beside.ticks(read) == 6 + 1 + 2 * 10
    assert read.mixed(1, 10, 0, 1, 1) == given.mixed(1, 10, 0, 1, 1) == 7 + 1 + 4 * 10 + 3 + 9


def test_steps_run_back_to_back_while_there_is_work() -> None:
    pace = StepPace(LAW)
    pace.begin(1000)
    assert pace.due(ONE) == (1000, 1110)
    pace.begin(1117)
    assert pace.due(ONE) == (1110, 1220)


def test_after_idleness_a_step_begins_when_it_is_decided() -> None:
    pace = StepPace(LAW)
    pace.begin(1000)
    pace.due(ONE)
    pace.idle()
    pace.begin(5000)
    assert pace.due(ONE) == (5000, 5110)


def test_an_engine_that_fell_behind_catches_up() -> None:
    """One step ends at 1500 instead of 1110; three later the engine is where it would have been."""
    pace, now = StepPace(LAW), 1500
    pace.begin(1000)
    pace.due(ONE)
    for _ in range(4):
        pace.begin(now)
        _, due = pace.due(ONE)
        now = max(now + 10, due)
    assert now == due == 1000 + 5 * 110


def test_a_sleep_that_overshoots_is_not_late() -> None:
    assert lateness(-5) == lateness(GRACE_TICKS) == 0
    assert lateness(GRACE_TICKS + 1) == GRACE_TICKS + 1
