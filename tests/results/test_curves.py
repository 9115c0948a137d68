from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_tables import activity, run_tables, samples

from rlsim.results import curves

intervals = st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)).map(sorted), max_size=20)


def at(found: curves.Curve, seconds: float) -> int:
    place = np.searchsorted(found.seconds, seconds, "right") - 1
    return int(found.values[place]) if place >= 0 else 0


@given(intervals, st.floats(0, 100))
def test_a_curve_counts_the_intervals_under_way(rows, seconds):
    found = curves.curve([start for start, _ in rows], [end for _, end in rows])
    assert at(found, seconds) == sum(start <= seconds < end for start, end in rows)


@given(intervals)
def test_occupancy_is_the_mean_overlap_of_each_bin(rows):
    edges = np.linspace(0, 100, 8)
    found = curves.occupancy([start for start, _ in rows], [end for _, end in rows], edges)
    bins = itertools.pairwise(edges)
    expected = [
        sum(max(0, min(end, high) - max(start, low)) for start, end in rows) / (high - low) for low, high in bins
    ]
    assert found == pytest.approx(expected, abs=1e-9)


def test_decoding_samples_add_up_over_replicas():
    found = curves.samples_decoding(run_tables())
    assert [at(found, seconds) for seconds in (5, 30, 55, 70)] == [0, 8, 1, 0]


def test_samples_are_in_flight_from_submission_to_their_end():
    found = curves.samples_in_flight(run_tables())
    assert [at(found, seconds) for seconds in (0, 49, 55, 61)] == [8, 8, 1, 0]


def test_a_sample_without_an_end_is_in_flight_until_the_run_ends():
    tables = run_tables() | {"samples": samples([{"finished_seconds": np.nan, "outcome": "in_flight"}])}
    assert at(curves.samples_in_flight(tables), 99) == 1


def test_a_sample_dropped_unfinished_leaves_when_training_starts():
    lost = {"finished_seconds": np.nan, "trained_seconds": np.nan, "outcome": "dropped_surplus", "finish_reason": ""}
    found = curves.samples_in_flight(run_tables() | {"samples": samples([{}, lost])})
    assert [at(found, seconds) for seconds in (40, 55, 61)] == [2, 1, 0]


def test_a_group_waits_from_its_last_member_to_its_training():
    found = curves.groups_waiting(run_tables())
    assert [at(found, seconds) for seconds in (45, 55, 60)] == [0, 1, 0]


def test_a_buffered_group_waits_to_the_end_and_a_parked_member_keeps_a_group_open():
    never = {"trained_seconds": np.nan, "outcome": "buffered"}
    parked = never | {"group": 1, "finished_seconds": np.nan, "finish_reason": ""}
    found = curves.groups_waiting(run_tables() | {"samples": samples([never, parked, never | {"group": 1}])})
    assert [at(found, seconds) for seconds in (49, 51, 99)] == [0, 1, 1]


def test_publications_are_the_ends_of_the_trainers_syncs():
    rows = [(-1, "sync", 90.0, 100.0), (-1, "sync", 20.0, 21.0), (0, "sync", 95.0, 99.0)]
    assert curves.publications({"activity": activity(rows)}).tolist() == [21.0, 100.0]
