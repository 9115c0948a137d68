"""Intervals against values from a table of Student's t."""

from __future__ import annotations

import math

import pytest

from rlsim.core.errors import ParameterError
from rlsim.results.statistics import Estimate, interval, paired_difference, paired_ratio

T_2 = 4.302653
"""97.5 % quantile of t with two degrees of freedom."""
T_1 = 12.706205


def test_a_mean_has_a_t_interval_with_n_minus_one_degrees_of_freedom() -> None:
    found = interval([1.0, 2.0, 3.0])
    half = T_2 / math.sqrt(3)
    assert (found.mean, found.n) == (2, 3)
    assert (found.low, found.high) == pytest.approx((2 - half, 2 + half), rel=1e-6)


def test_the_level_of_confidence_widens_the_interval() -> None:
    found = interval([1.0, 3.0], 0.9)
    assert found.high == pytest.approx(2 + 6.313752, rel=1e-6)


def test_one_run_has_no_interval_and_equal_runs_have_an_empty_one() -> None:
    assert interval([5.0]) == Estimate(5.0, None, None, 1)
    assert interval([5.0, 5.0]) == Estimate(5.0, 5.0, 5.0, 2)


def test_a_ratio_is_a_geometric_mean_with_the_interval_of_the_logarithms() -> None:
    found = paired_ratio([2.0, 4.0], [1.0, 1.0])
    spread = T_1 * (math.log(2) / math.sqrt(2)) / math.sqrt(2)
    assert found.mean == pytest.approx(math.sqrt(8))
    assert found.low == pytest.approx(math.sqrt(8) * math.exp(-spread), rel=1e-6)
    assert found.high == pytest.approx(math.sqrt(8) * math.exp(spread), rel=1e-6)


def test_pairing_takes_the_luck_out() -> None:
    a, b = [10.0, 20.0, 30.0], [9.0, 19.0, 29.0]
    assert paired_difference(a, b) == Estimate(1.0, 1.0, 1.0, 3)
    assert paired_ratio([2 * x for x in a], a).low == pytest.approx(2)


def test_a_ratio_of_one_pair_has_no_interval() -> None:
    assert paired_ratio([3.0], [2.0]) == Estimate(pytest.approx(1.5), None, None, 1)


@pytest.mark.parametrize(
    ("call", "path"),
    [
        (lambda: interval([]), "values"),
        (lambda: interval([1.0, math.nan]), "values"),
        (lambda: interval([1.0], 1.0), "confidence"),
        (lambda: paired_difference([1.0], [1.0, 2.0]), "b"),
        (lambda: paired_ratio([1.0], [0.0]), "b"),
    ],
)
def test_values_that_mean_nothing_are_refused(call: object, path: str) -> None:
    with pytest.raises(ParameterError) as refused:
        call()  # type: ignore[operator]
    assert refused.value.path == path
