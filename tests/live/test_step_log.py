"""What an engine writes down, and what is read from it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlsim.core.log import WindowRow
from rlsim.live.vllm.step_log import (
    GAP_TICKS,
    CallEnd,
    CallEndReader,
    EngineFiles,
    StepLogWriter,
    StepRow,
    read_steps,
    report,
    windows,
)

MILLISECOND = 10**6


@pytest.fixture
def files(tmp_path: Path) -> EngineFiles:
    return EngineFiles(tmp_path)


def decode(start: int, decodes: int, kv_tokens: int, gap_ns: int = 1000) -> StepRow:
    return StepRow(start * MILLISECOND, (start + 1) * MILLISECOND - gap_ns, decodes, kv_tokens, 0, 0, decodes, 0)


def test_steps_are_read_as_they_were_written(files: EngineFiles) -> None:
    steps = [StepRow(5, 9, 3, 120, 1, 40, 4, 0, 70, 2), decode(1, 4, 200)]
    writer = StepLogWriter(files)
    for step in steps:
        writer.step(step)
    assert read_steps(files) == steps


def test_a_line_that_a_killed_engine_did_not_finish_is_left_out(files: EngineFiles) -> None:
    StepLogWriter(files).step(decode(1, 4, 200))
    with files.steps.open("a", encoding="ascii") as file:
        file.write("2000000 30000")
    assert read_steps(files) == [decode(1, 4, 200)]


def test_an_engine_that_wrote_nothing_ran_no_step(files: EngineFiles) -> None:
    assert read_steps(files) == []
    assert CallEndReader(files).take("s0c0") is None


def test_ends_are_found_when_their_line_is_whole_and_once(files: EngineFiles) -> None:
    reader, writer = CallEndReader(files), StepLogWriter(files)
    writer.end("s1c0", CallEnd(7, 1))
    with files.ends.open("a", encoding="ascii") as file:
        file.write("s2c1 1")
        file.flush()
        assert reader.take("s2c1") is None
        file.write("2 0\n")
    assert reader.take("s2c1") == CallEnd(12, 0)
    found = reader.take("s1c0")
    assert found is not None
    assert found.sampled_tokens == 8
    assert reader.take("s1c0") is None


def test_times_count_from_the_zero_of_the_run() -> None:
    (row,) = windows(3, [decode(5, 2, 50, gap_ns=0)], zero=4 * MILLISECOND)
    assert row == WindowRow(3, 10**9, 2 * 10**9, 1, 2, 0, 0, 50)


def test_decodes_of_the_same_requests_are_one_row() -> None:
    rows = windows(0, [decode(at, 4, 200 + 4 * at) for at in range(10)], zero=0)
    assert [(row.steps, row.kv_tokens, row.start, row.end) for row in rows] == [(10, 200, 0, 9_999_000_000)]


@pytest.mark.parametrize(
    "second",
    [
        decode(1, 3, 203),
        decode(1, 4, 205),
        decode(1, 4, 203)._replace(chunks=1, prefill_tokens=8),
        decode(1 + 2 * GAP_TICKS // 10**9, 4, 204),
    ],
)
def test_another_batch_a_chunk_or_a_pause_begins_a_new_row(second: StepRow) -> None:
    assert len(windows(0, [decode(0, 4, 200), second], zero=0)) == 2


@st.composite
def engine_steps(draw: st.DrawFn) -> list[StepRow]:
    """Any run of steps in order."""
    steps, at = [], 0
    for _ in range(draw(st.integers(0, 30))):
        at += draw(st.sampled_from([0, 10, 2 * MILLISECOND]))
        decodes, kv_tokens = draw(st.integers(0, 3)), draw(st.integers(0, 4))
        chunks = draw(st.integers(0, 1)) if decodes else 1
        steps.append(StepRow(at, at + 500, decodes, kv_tokens, chunks, 5 * chunks, decodes + chunks, 0))
        at += 500
    return steps


@settings(deadline=None, derandomize=True)
@given(engine_steps())
def test_rows_hold_every_step_once_in_order(steps: list[StepRow]) -> None:
    rows = windows(0, steps, zero=0)
    assert sum(row.steps for row in rows) == len(steps)
    assert sum(row.steps * row.decodes for row in rows) == sum(step.decodes for step in steps)
    assert sum(row.prefill_tokens for row in rows) == sum(step.prefill_tokens for step in steps)
    grown = sum(row.steps * row.kv_tokens + row.decodes * row.steps * (row.steps - 1) // 2 for row in rows)
    assert grown == sum(step.kv_tokens for step in steps)
    assert all(row.steps == 1 for row in rows if row.chunks)
    assert all(earlier.end <= later.start for earlier, later in pairwise(rows))


def test_a_report_adds_up() -> None:
    steps = [StepRow(0, 9, 3, 120, 1, 40, 4, 2, 70, 0), StepRow(9, 12, 4, 5, 0, 0, 4, 0, 30, 8)]
    found = report(steps)
    assert (found.steps, found.sampled_tokens, found.prefill_tokens, found.preemptions) == (2, 8, 40, 2)
    assert (found.law_ticks, found.late_steps, found.late_ticks, found.worst_late_ticks) == (100, 1, 8, 8)
    assert found.late_share == 0.5
    assert report([]).late_share == 0.0
