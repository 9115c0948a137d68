"""Strategies in waves, against their rules on cases counted by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_groups import enlarge, extended, made, opened, rest, rewards_of

from rlsim.core.errors import ParameterError
from rlsim.policies.allocation.estimators import shared_out
from rlsim.policies.allocation.waves import surest


@pytest.mark.parametrize(
    ("total", "weights", "most", "given_out"),
    [
        (12, [0.25, 0.0, 0.1875], 99, [7, 0, 5]),  # 6.86 and 5.14: the larger remainder gets the spare one
        (12, [1.0, 1.0], 5, [5, 5]),  # two are saved
        (5, [1.0, 1.0, 1.0], 99, [2, 2, 1]),
        (12, [3.0, 1.0], 6, [6, 6]),  # what the first may not have goes to the second
        (4, [0.0, 0.0], 9, [0, 0]),
    ],
)
def test_samples_are_shared_out_by_largest_remainders(
    total: int, weights: list[float], most: int, given_out: list[int]
) -> None:
    assert shared_out(total, weights, most) == given_out


@given(st.integers(0, 60), st.lists(st.floats(0, 1), max_size=8), st.integers(1, 20))
def test_nothing_is_lost_but_what_nobody_may_have(total: int, weights: list[float], most: int) -> None:
    shares = shared_out(total, weights, most)
    heavy = sum(weight > 0 for weight in weights)
    assert sum(shares) == min(total, heavy * most)
    assert all(0 <= share <= most and (share == 0 or weight > 0) for share, weight in zip(shares, weights, strict=True))


def test_pilots_of_the_whole_batch_are_awaited_and_the_rest_follows_their_variance() -> None:
    part, view = made("pilot-commit", size=8, pilot_fraction=0.5)
    groups = [opened(part, view, number) for number in range(3)]
    assert [group.launched for group in groups] == [4, 4, 4]
    rest(view, groups[1], [1, 1, 1, 1])
    assert extended(part, view) == {}
    rest(view, groups[0], [1, 1, 0, 0])  # variance 1/4
    assert extended(part, view) == {}
    rest(view, groups[2], [1, 0, 0, 0])  # variance 3/16
    assert extended(part, view) == {0: 7, 1: 0, 2: 5}  # of 3 * (8 - 4)
    rest(view, groups[2], [0] * 5)
    rest(view, groups[0], [0] * 7)
    assert extended(part, view) == {0: 0, 2: 0}


def test_a_pilot_without_signal_gets_nothing_more_and_budget_that_nobody_may_have_is_saved() -> None:
    part, view = made("pilot-commit", prompts=2, size=4, pilot_fraction=0.5, most_ratio=1.5)
    groups = [opened(part, view, number) for number in range(2)]
    rest(view, groups[0], [1, 0])
    rest(view, groups[1], [0, 0])
    assert extended(part, view) == {0: 4, 1: 0}  # 4 of 4 to share; a group may have 6


def test_batches_are_waited_for_one_by_one_and_a_stopped_admission_is_not() -> None:
    part, view = made("pilot-commit", prompts=2, size=4, pilot_fraction=0.5)
    first = [opened(part, view, number) for number in range(2)]
    second = opened(part, view, 2, target=1)
    rest(view, second, [1, 0])
    assert extended(part, view) == {}  # half of its batch is still to come, and others run
    rest(view, first[0], [1, 0])
    rest(view, first[1], [1, 0])
    assert extended(part, view) == {0: 2, 1: 2, 2: 2}  # nothing runs any more: whoever is there goes on
    rest(view, first[0], [1, 0])
    assert extended(part, view) == {}


def test_equal_rounds_go_to_the_prompts_whose_rewards_vary_most() -> None:
    part, view = made("vigor", prompts=4, size=8, rounds=2, kept=0.5)
    groups = [opened(part, view, number) for number in range(4)]
    assert [group.launched for group in groups] == [4] * 4
    outcomes = [[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0]]
    for group, rewards in zip(groups, outcomes, strict=True):
        assert extended(part, view) == {}
        rest(view, group, rewards)
    assert extended(part, view) == {0: 0, 1: 8, 2: 8, 3: 0}  # 4 * 4 further samples on the best half
    rest(view, groups[1], [0] * 8)
    assert extended(part, view) == {}
    rest(view, groups[2], [0] * 8)
    assert extended(part, view) == {1: 0, 2: 0}  # the budget is spent: 4 * 4 + 2 * 8 = 4 * 8


def test_three_rounds_spend_the_budget_and_a_batch_without_variance_saves_it() -> None:
    part, view = made("vigor", prompts=2, size=9, rounds=3, kept=1.0)
    groups = [opened(part, view, number) for number in range(2)]
    for further in (3, 3, 0):
        for group in groups:
            rest(view, group, [1, 0, 0])
        assert extended(part, view) == {0: further, 1: further}
    fresh = [opened(part, view, number, target=1) for number in (2, 3)]
    for group in fresh:
        rest(view, group, [1, 1, 1])
    assert extended(part, view) == {2: 0, 3: 0}


def test_a_round_too_small_for_two_rewards_is_refused() -> None:
    with pytest.raises(ParameterError, match="at most group_size / 2 = 2"):
        made("vigor", size=4, rounds=3)


def test_a_group_that_fails_is_rescued_until_it_is_as_large_as_others() -> None:
    part, view = made("aero", size=7)
    mixed, fails = opened(part, view, 0), opened(part, view, 1)
    assert (mixed.launched, fails.launched) == (4, 4)
    rest(view, mixed, [1, 0, 0, 0])
    assert extended(part, view) == {0: 0}
    rest(view, fails, [0, 0, 0, 0])
    assert extended(part, view) == {1: 2}
    rest(view, fails, [0, 0])
    assert extended(part, view) == {1: 1}
    rest(view, fails, [0])
    assert extended(part, view) == {1: 0}


def test_a_rescue_ends_with_the_first_success_and_a_solved_group_needs_none() -> None:
    part, view = made("aero", size=6, rescue_samples=1)
    fails, solves = opened(part, view, 0), opened(part, view, 1)
    rest(view, solves, [1, 1, 1])
    assert extended(part, view) == {1: 0}
    rest(view, fails, [0, 0, 0])
    assert extended(part, view) == {0: 1}
    rest(view, fails, [1])
    assert extended(part, view) == {0: 0}


@pytest.mark.parametrize(
    ("rewards", "trained"),
    [
        ([1, 0, 1, 1, 1, 1, 1, 1], [1, 0, 1, 1]),
        ([0, 0, 0, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 0, 0, 0]),
        ([1, 1, 1, 1], [1]),
        ([0, 0, 0, 0], [0]),
    ],
)
def test_three_of_the_frequent_outcome_are_trained_on_for_each_of_the_other(
    rewards: list[float], trained: list[float]
) -> None:
    part, view = made("aero", size=8)
    group = opened(part, view, 0)
    enlarge(group, len(rewards) - 4)
    rest(view, group, rewards)
    out = part.unselected(view, group)
    assert rewards_of([sample for sample in group.members if sample not in out]) == trained


def test_a_first_half_that_surprises_calls_for_the_second() -> None:
    part, view = made("v0.5", size=8)
    new = opened(part, view, 0)
    rest(view, new, [1, 1, 1, 1])
    # prior Beta(1, 1): |1 - 0.5| = 0.5 against 1.64 * sqrt(1/12 + 1/16) = 0.63
    assert extended(part, view) == {0: 0}
    part.observe(view, new)
    part.observe(view, new)
    for number, rewards, further in ((1, [1, 1, 1, 0], 0), (2, [1, 1, 0, 0], 4)):
        # prior Beta(9, 1): 0.9, error sqrt(9/1100 + 0.09/4) = 0.175, so that below 0.613 is a surprise
        group = opened(part, view, number, prompt=0)
        rest(view, group, rewards)
        assert extended(part, view) == {number: further}
    rest(view, group, [0] * 4)
    assert extended(part, view) == {2: 0}


def test_further_samples_make_the_least_sure_estimate_surer() -> None:
    part, view = made("xrpo", prompts=2, size=4)
    even, solved = opened(part, view, 0), opened(part, view, 1)
    rest(view, even, [1, 0])
    assert extended(part, view) == {}
    rest(view, solved, [1, 1])
    # deviations 1/2 and sqrt(3)/4; a third sample is worth 0.065 and 0.056, a fourth 0.039 and 0.033
    assert extended(part, view) == {0: 2, 1: 2}
    rest(view, even, [0, 0])
    rest(view, solved, [1, 1])
    assert extended(part, view) == {0: 0, 1: 0}


def test_samples_one_by_one_are_the_best_division() -> None:
    deviations, counts = [0.5, 0.3, 0.1], [2, 2, 2]

    def unsure(more: tuple[int, ...]) -> float:
        return sum(d / (n + extra) ** 0.5 for d, n, extra in zip(deviations, counts, more, strict=True))

    every = [(a, b, 7 - a - b) for a in range(8) for b in range(8 - a)]
    assert tuple(surest(deviations, counts, 7, 99)) == min(every, key=unsure)
    assert surest(deviations, counts, 7, 4) == [2, 2, 2]


@pytest.mark.parametrize(
    ("rewards", "extra"),
    [
        ([1, 1, 1, 1], 0),
        ([1, 1, 0, 0], 0),
        ([1, 0, 0, 0], 1),  # 4 (1 / (2 sqrt(3/16)) - 1) = 0.62
        ([0, 0, 0, 0], 8),
    ],
)
def test_hard_prompts_get_as_many_samples_as_weigh_like_an_even_group(rewards: list[float], extra: int) -> None:
    part, view = made("dars", size=4)
    group = opened(part, view, 0)
    rest(view, group, rewards)
    assert extended(part, view) == {0: extra}
    if extra:
        rest(view, group, [0] * extra)
        assert extended(part, view) == {0: 0}
