"""Order of ends, by hand."""

from __future__ import annotations

from rlsim.studies.parity.end_order import order_of

A, B, C, D = ((prompt, 0, 0) for prompt in range(4))


def test_pairs_within_a_tie_may_come_in_either_order() -> None:
    live = {A: 1.0, B: 1.1, C: 2.0}
    swapped = {A: 1.1, B: 1.0, C: 2.0}
    assert (order_of(live, swapped, 0.2).pairs, order_of(live, swapped, 0.2).inversions) == (2, 0)
    assert (order_of(live, swapped, 0.05).pairs, order_of(live, swapped, 0.05).inversions) == (3, 1)


def test_simulated_ends_at_one_instant_are_in_no_order() -> None:
    assert order_of({A: 1.0, B: 2.0}, {A: 3.0, B: 3.0}, 0.0).inversions == 0


def test_samples_that_ended_in_one_run_only_are_counted_apart() -> None:
    told = order_of({A: 1.0, B: 2.0, C: 3.0}, {A: 1.5, B: 1.0, D: 9.0}, 0.0)
    assert (told.samples, told.unmatched, told.pairs, told.inversions) == (2, 2, 1, 1)
    assert (told.median_seconds, told.worst_seconds) == (0.75, 1.0)
