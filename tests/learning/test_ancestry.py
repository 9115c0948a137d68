"""Samples that begin alike come out alike, as far as they have the beginning in common."""

from __future__ import annotations

from statistics import NormalDist, correlation

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlsim.core.streams import FloatArray
from rlsim.learning.ancestry import PrefixCoupling, beginning, score, success_given
from rlsim.workload.draws import GroupDraws, Independent

SAMPLES = 4000
TOLERANCE = 4 / SAMPLES**0.5
"""Four standard errors of a correlation near 0, or of a mean of scores."""


def as_drawn(values: FloatArray) -> FloatArray:
    return values


def unfolding(seed: int = 5) -> PrefixCoupling:
    return PrefixCoupling(seed, GroupDraws(seed, "outcome", 4, Independent(), as_drawn))


def scores(made: PrefixCoupling, member: int, ancestors: tuple[tuple[int, int, float], ...]) -> list[float]:
    return [score(made.quantile(prompt, 0, member, ancestors)) for prompt in range(SAMPLES)]


@given(prompt=st.integers(0, 10**6), member=st.integers(0, 7))
@settings(max_examples=50, deadline=None)
def test_all_of_a_response_is_its_luck_and_nothing_of_it_is_ones_own(prompt: int, member: int) -> None:
    made = unfolding()
    own, other = made.quantile(prompt, 1000, member, ()), made.quantile(prompt, 0, 3, ())
    assert made.quantile(prompt, 1000, member, ((0, 3, 1.0),)) == pytest.approx(other, abs=1e-9)
    assert made.quantile(prompt, 1000, member, ((0, 3, 0.0),)) == pytest.approx(own, abs=1e-9)


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_scores_correlate_by_the_share_in_common_and_each_alone_is_standard_normal(share: float) -> None:
    made = unfolding()
    parent, child = scores(made, 0, ()), scores(made, 1, ((0, 0, share),))
    sister = scores(made, 2, ((0, 0, share),))
    assert correlation(parent, child) == pytest.approx(share, abs=TOLERANCE)
    assert correlation(child, sister) == pytest.approx(share, abs=TOLERANCE)
    assert sum(child) / SAMPLES == pytest.approx(0, abs=TOLERANCE)
    assert sum(value * value for value in child) / SAMPLES == pytest.approx(1, abs=2**0.5 * TOLERANCE)


def test_a_grandchild_has_the_beginning_of_both() -> None:
    made = unfolding()
    child, grandchild = ((0, 0, 0.25),), ((0, 0, 0.25), (0, 1, 0.75))
    assert correlation(scores(made, 0, ()), scores(made, 2, grandchild)) == pytest.approx(0.25, abs=TOLERANCE)
    assert correlation(scores(made, 1, child), scores(made, 2, grandchild)) == pytest.approx(0.75, abs=TOLERANCE)


def test_the_beginning_of_a_child_is_its_parents_as_far_as_it_goes() -> None:
    child = ((0, 4, 0.25), (0, 5, 0.5))
    assert beginning((), 0, 7, 0.5) == ((0, 7, 0.5),)
    assert beginning(child, 0, 7, 0.75) == (*child, (0, 7, 0.75))
    assert beginning(child, 0, 7, 0.375) == ((0, 4, 0.25), (0, 5, 0.375))
    assert beginning(child, 0, 7, 0.25) == ((0, 4, 0.25),)


def test_success_given_a_prefix_is_what_its_continuations_do() -> None:
    made, share, success = unfolding(), 0.5, 0.4
    for prompt in range(3):
        wins = sum(made.quantile(prompt, 0, member, ((0, 0, share),)) < success for member in range(1, 1001))
        expected = success_given(made.standing(prompt, 0, 0, share), share, success)
        assert wins / 1000 == pytest.approx(expected, abs=4 * (0.25 / 1000) ** 0.5)


def test_a_whole_prefix_decides() -> None:
    certain = NormalDist().inv_cdf(0.4)
    assert success_given(certain - 0.1, 1.0, 0.4) == 1.0
    assert success_given(certain + 0.1, 1.0, 0.4) == 0.0
