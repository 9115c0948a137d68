"""Causes of idle time on logs written by hand; times in whole ticks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rlsim.core.log import GateRow, RunLog, ServiceRow, SpanRow, WindowRow
from rlsim.results.activity import activity
from rlsim.results.history import History
from rlsim.results.timeline import Steps, union_of

Uses = list[tuple[str, int, int]]


def window(replica: int, start: int, end: int, chunks: int = 0) -> WindowRow:
    return WindowRow(replica, start, end, 1, 1, chunks, chunks, 10)


def uses(log: RunLog, replicas: int = 2, shared: bool = False, history: History | None = None) -> dict[int, Uses]:
    rows = activity(log, shared, replicas, history or History())
    found: dict[int, Uses] = {}
    for who, what, start, end in zip(rows.who, rows.what, rows.start, rows.end, strict=True):
        found.setdefault(int(who), []).append((rows.names[what], int(start), int(end)))
    return found


def test_behind_a_barrier_replicas_wait_for_the_last_sample_and_then_for_the_trainer() -> None:
    log = RunLog(
        windows=[window(0, 0, 10), window(1, 0, 6, chunks=1)],
        spans=[SpanRow(-1, "update_actor", 10, 15, 0)],
        gates=[GateRow(0, "barrier")],
        end=20,
    )
    assert uses(log) == {
        -1: [("idle:data", 0, 10), ("update_actor", 10, 15), ("idle:data", 15, 20)],
        0: [("decode", 0, 10), ("idle:trainer", 10, 20)],
        1: [("prefill", 0, 6), ("idle:tail", 6, 10), ("idle:trainer", 10, 20)],
    }


def test_a_bound_on_staleness_or_samples_is_the_cause_while_its_gate_is_in_force() -> None:
    log = RunLog(
        windows=[window(0, 0, 4), window(1, 0, 20)],
        gates=[GateRow(0, "concurrency"), GateRow(9, "staleness"), GateRow(15, "lead")],
        end=20,
    )
    expected = [("decode", 0, 4), ("idle:concurrency", 4, 9), ("idle:staleness", 9, 15), ("idle:lead", 15, 20)]
    assert uses(log)[0] == expected


def test_shared_gpus_belong_to_the_trainer_between_switches() -> None:
    log = RunLog(
        windows=[window(0, 0, 10), window(1, 0, 11)],
        spans=[
            SpanRow(-1, "switch", 11, 12, -1),
            SpanRow(-1, "update_actor", 12, 15, 0),
            SpanRow(0, "sync", 15, 17, 1),
            SpanRow(1, "sync", 15, 17, 1),
            SpanRow(-1, "sync", 15, 17, 1),
        ],
        gates=[GateRow(0, "barrier"), GateRow(10, "train")],
        end=17,
    )
    trained = [("switch", 11, 12), ("update_actor", 12, 15), ("sync", 15, 17)]
    assert uses(log, shared=True) == {
        -1: trained,
        0: [("decode", 0, 10), ("idle:quiesce", 10, 11), *trained],
        1: [("decode", 0, 11), *trained],
    }


def test_before_a_publication_a_replica_waits_for_the_step_of_the_slowest() -> None:
    log = RunLog(
        windows=[window(0, 0, 10), window(1, 0, 12)],
        spans=[SpanRow(0, "sync", 12, 14, 1), SpanRow(1, "sync", 12, 14, 1), SpanRow(-1, "sync", 9, 14, 1)],
        gates=[GateRow(0, "staleness")],
        end=14,
    )
    assert uses(log)[0] == [("decode", 0, 10), ("idle:quiesce", 10, 12), ("sync", 12, 14)]


def test_a_replica_whose_samples_are_in_tools_waits_for_tools() -> None:
    log = RunLog(windows=[window(0, 0, 5), window(1, 0, 20)], gates=[GateRow(0, "staleness")], end=20)
    history = History(tool_waits=[(0, 5, 9), (0, 8, 12), (1, 5, 20)])
    assert uses(log, history=history)[0] == [("decode", 0, 5), ("idle:tools", 5, 12), ("idle:staleness", 12, 20)]


def test_when_nothing_else_moves_everybody_waits_for_rewards() -> None:
    log = RunLog(
        windows=[window(0, 0, 5), window(1, 0, 5)],
        services=[ServiceRow(0, "reward", 5, 6, 9)],
        gates=[GateRow(0, "barrier")],
        end=9,
    )
    assert uses(log)[-1] == [("idle:data", 0, 5), ("idle:reward", 5, 9)]
    assert uses(log)[0] == [("decode", 0, 5), ("idle:reward", 5, 9)]


def test_engines_that_drain_before_a_publication_are_charged_to_the_sync() -> None:
    log = RunLog(
        windows=[window(0, 0, 12)],
        spans=[SpanRow(-1, "update_actor", 2, 8, 0), SpanRow(-1, "sync", 12, 13, 1), SpanRow(0, "sync", 12, 13, 1)],
        gates=[GateRow(0, "staleness"), GateRow(8, "drain")],
        end=13,
    )
    waits = [("idle:data", 0, 2), ("update_actor", 2, 8), ("idle:tail", 8, 12), ("sync", 12, 13)]
    assert uses(log, replicas=1)[-1] == waits, "the trainer waits for the last samples"
    early = replace(log, windows=[window(0, 0, 9), window(1, 0, 12)])
    assert uses(early, replicas=2)[0] == [("decode", 0, 9), ("idle:quiesce", 9, 12), ("sync", 12, 13)]


def test_a_drain_that_waits_for_tools_is_charged_to_them() -> None:
    log = RunLog(
        windows=[window(0, 0, 5)],
        services=[ServiceRow(0, "tool", 5, 5, 9)],
        gates=[GateRow(0, "drain")],
        end=10,
    )
    assert uses(log, replicas=1)[0] == [("decode", 0, 5), ("idle:tools", 5, 9), ("idle:quiesce", 9, 10)]


def test_the_step_that_the_end_of_the_run_cuts_is_not_idle_time() -> None:
    log = RunLog(windows=[window(0, 0, 5)], gates=[GateRow(0, "barrier")], end=6)
    assert uses(log, 1, history=History(running={0: 3}))[0] == [("decode", 0, 5), ("decode", 5, 6)]
    assert uses(log, 1, history=History(running={0: 0}))[0] == [("decode", 0, 5), ("idle:trainer", 5, 6)]


def test_what_the_trainer_has_begun_is_booked_up_to_the_end_of_the_run() -> None:
    log = RunLog(spans=[SpanRow(-1, "update_actor", 2, 50, 0), SpanRow(-1, "overhead", 50, 60, 0)], end=10)
    assert uses(log, replicas=0)[-1] == [("idle:data", 0, 2), ("update_actor", 2, 10)]


INTERVALS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 10)), max_size=12)


@given(INTERVALS)
def test_a_union_covers_what_any_of_its_intervals_covers(intervals: list[tuple[int, int]]) -> None:
    table = np.array([(start, start + length) for start, length in intervals], np.int64).reshape(-1, 2)
    found, times = union_of(table[:, 0], table[:, 1]), np.arange(45)
    covered = np.array([any(low <= at < high for low, high in table) for at in times])
    assert (found.covers(times) == covered).all()
    assert found.within(3, 20) == covered[3:20].sum()
    assert (found.start[1:] > found.end[:-1]).all()


def test_of_changes_at_one_instant_the_last_counts() -> None:
    assert Steps.of([(5, 1), (5, 2), (9, 3)], 0).at(np.array([4, 5, 8, 9])).tolist() == [0, 2, 2, 3]
