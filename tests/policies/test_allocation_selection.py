"""Strategies that choose prompts and samples, against their rules on cases counted by hand."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_groups import complete, enlarge, made, offers, opened, rest, rewards_of

from rlsim.core.errors import ParameterError
from rlsim.core.group_statistics import all_succeed, useful_group_expected
from rlsim.learning.closed_forms import square_root_allocation
from rlsim.policies.allocation.estimators import Belief, Beliefs, variance
from rlsim.policies.allocation.prompt_selection import by_weight
from rlsim.policies.hooks import Verdict

# -- what is believed of a prompt --------------------------------------------------------------------------


def test_a_posterior_counts_and_forgets() -> None:
    beliefs = Beliefs(kept_per_visit=0.5, kept_per_version=0.9)
    assert beliefs.of(7, 0) == Belief(1, 1)
    beliefs.tell(7, 0, [1, 1, 0])
    assert beliefs.of(7, 0) == Belief(3, 2)
    assert beliefs.of(7, 2).successes == pytest.approx(1 + 0.81 * 2)
    beliefs.tell(7, 2, [0])
    assert beliefs.of(7, 2).successes == pytest.approx(1 + 0.5 * 0.81 * 2)
    assert beliefs.of(7, 2).failures == pytest.approx(1 + 0.5 * 0.81 * 1 + 1)


def test_the_chance_that_all_succeed_is_the_moment_of_a_beta_law() -> None:
    assert all_succeed(1, 1, 3) == pytest.approx(1 / 4)
    assert all_succeed(3, 1, 1) == pytest.approx(3 / 4)
    assert useful_group_expected(1, 1, 8) == pytest.approx(1 - 2 / 9)
    from scipy.stats import beta

    assert all_succeed(2.5, 1.3, 4) == pytest.approx(beta(2.5, 1.3).moment(4))
    assert Belief(2.5, 1.3).variance == pytest.approx(beta(2.5, 1.3).var())


def test_hashed_draws_are_of_the_posterior_and_of_the_weights() -> None:
    drawn = [Belief(3, 2).drawn(1, "case", number) for number in range(4000)]
    assert sum(drawn) / 4000 == pytest.approx(0.6, abs=0.012)  # four standard errors: 0.2 / sqrt(4000) each
    firsts = Counter(
        max(range(2), key=lambda who: by_weight(math.log(1 + 2 * who), "case", number, who)) for number in range(4000)
    )
    assert firsts[1] / 4000 == pytest.approx(0.75, abs=0.028)


# -- GRESO -------------------------------------------------------------------------------------------------


def skipped(part: object, view: object, prompt: int, tries: int = 2000) -> float:
    """Share of the visits of a prompt that are skipped; a new prompt stands behind it on offer."""
    picks = (part.pick(view, offers(prompt, -1, first=2 * number)) for number in range(tries))  # type: ignore[attr-defined]
    return sum(pick.taken == 1 for pick in picks) / tries


def test_a_prompt_is_skipped_with_one_less_p_to_the_number_of_its_empty_groups() -> None:
    part, view = made("greso", exploration=0.5)
    assert skipped(part, view, 7) == 0.0
    complete(part, view, 7, [1, 1, 1, 1])
    assert skipped(part, view, 7) == pytest.approx(0.5, abs=0.045)
    complete(part, view, 7, [0, 0, 0, 0])
    assert skipped(part, view, 7) == pytest.approx(0.75, abs=0.039)
    complete(part, view, 7, [1, 0, 0, 0])
    assert skipped(part, view, 7) == 0.0


def test_exploration_falls_where_too_many_groups_of_the_kind_were_made() -> None:
    part, view = made("greso", exploration=0.5, exploration_step=0.1, easy_share=0.25, hard_share=0.25)
    for number, rewards in enumerate([[1] * 4, [1] * 4, [1, 0, 0, 0], [1, 1, 0, 0]]):
        complete(part, view, number, rewards)
    view.steps_begun = 1
    complete(part, view, 9, [1, 0, 0, 0])  # half were easy, none hard: 0.4 and 0.6 from now on
    assert skipped(part, view, 0) == pytest.approx(0.6, abs=0.044)
    complete(part, view, 8, [0] * 4)
    assert skipped(part, view, 8) == pytest.approx(0.4, abs=0.044)


def test_groups_without_variance_are_rejected_and_all_skipped_leaves_the_last() -> None:
    part, view = made("greso", exploration=0.0, candidates=2)
    assert part.rejects(view, complete(part, view, 1, [1] * 4))
    assert not part.rejects(view, complete(part, view, 2, [1, 0, 0, 0]))
    assert part.candidates == 2
    pick = part.pick(view, offers(1, 1))
    assert (pick.taken, pick.skipped) == (1, (0,))


# -- sGPO --------------------------------------------------------------------------------------------------


def test_groups_are_the_inverse_of_the_first_visit_and_later_ones_change_nothing() -> None:
    part, view = made("sgpo", size=4, most_ratio=1.0)
    assert opened(part, view, 0).launched == 4
    for prompt, rewards in ((1, [1, 0, 0, 0]), (2, [1, 1, 1, 0]), (3, [0] * 4)):
        complete(part, view, prompt, rewards)
    complete(part, view, 2, [0] * 4)
    assert [opened(part, view, 9 + prompt, prompt).launched for prompt in (1, 2, 3)] == [4, 2, 4]
    wide, view = made("sgpo", size=8, most_ratio=0.75 * 2)
    complete(wide, view, 1, [1] + [0] * 15)
    assert opened(wide, view, 0, 1).launched == 12


def test_prompts_go_from_easy_to_hard_within_a_window_and_solved_ones_are_dropped() -> None:
    part, view = made("sgpo", size=4, hopeless_kept=0.0)
    for prompt, rewards in ((1, [1, 0, 0, 0]), (2, [1, 1, 1, 0]), (3, [1] * 4), (4, [0] * 4)):
        complete(part, view, prompt, rewards)
    shown = offers(1, 3, 2, 4)
    pick = part.pick(view, shown)
    assert (pick.taken, pick.skipped) == (2, (1, 3))
    shown = [shown[0], *offers(2, 8, first=10)]
    assert part.pick(view, shown).taken == 0  # the hard one ends its window before others begin
    assert part.pick(view, offers(2, 8, first=10)).taken == 1  # without a profile: first
    assert part.pick(view, offers(3, 3, 4, first=20)).skipped == (0, 1)


# -- GDRO --------------------------------------------------------------------------------------------------


def test_sizes_follow_the_root_of_the_variance_at_a_fixed_mean() -> None:
    part, view = made("gdro-rollout", size=16, levels=2, smoothing=0.9, price_step=0.02)
    sizes: dict[int, list[int]] = {0: [], 1: []}
    for visit in range(3000):
        for prompt, won in ((0, 0.25), (1, 0.5)):
            group = opened(part, view, 2 * visit + prompt, prompt)
            del view.open[group.group]
            sizes[prompt].append(group.launched)
            complete(part, view, prompt, [1] * int(won * 16) + [0] * (16 - int(won * 16)))
    means = [sum(sizes[prompt][1000:]) / 2000 for prompt in (0, 1)]
    assert sum(means) / 2 == pytest.approx(16, rel=0.02)
    expected = square_root_allocation([0.25 * 0.75, 0.25], 16, [0.5, 0.5])
    assert means == pytest.approx(expected.tolist(), rel=0.03)


def test_levels_that_vary_are_drawn_more_often() -> None:
    part, view = made("gdro-prompt", prompts=1, levels=2, eta=2.0, pool=2.0)
    for _ in range(20):
        complete(part, view, 1, [1, 1, 0, 0])
        complete(part, view, 2, [1, 1, 1, 1])
        complete(part, view, 3, [0, 0, 0, 0])
    assert part.signal(0) == pytest.approx(0.0)
    # prompts 1 (even odds) and 2 are both of the upper level: 1 and 0 in turn, debiased from the first group on
    assert part.signal(1) == pytest.approx(0.5, abs=0.05)
    taken = Counter(part.pick(view, offers(1, 3, first=2 * number)).taken for number in range(3000))
    assert taken[0] / 3000 == pytest.approx(1 / (1 + math.exp(-2 * part.signal(1))), abs=0.04)


def test_a_moving_average_without_its_start_is_right_from_the_first_group_on() -> None:
    part, view = made("gdro-prompt", levels=1, smoothing=0.99)
    assert part.signal(0) == 1.0
    complete(part, view, 1, [1, 1, 1, 0])
    assert part.signal(1) == pytest.approx(0.75)


# -- pools -------------------------------------------------------------------------------------------------


def test_the_best_of_a_pool_are_taken_and_the_rest_is_passed_over_with_the_batch() -> None:
    part, view = made("hive", prompts=2, size=4, pool=2.0)
    assert part.candidates == 4
    for prompt, rewards in ((1, [1, 1, 1, 1]), (2, [1, 1, 0, 0]), (3, [1, 1, 1, 0]), (4, [0, 0, 0, 0])):
        complete(part, view, prompt, rewards)
    shown = offers(1, 3, 2, 4)
    pick = part.pick(view, shown)
    assert (pick.taken, pick.skipped) == (2, ())
    pick = part.pick(view, [*shown[:2], shown[3], *offers(1, first=9)])
    assert (pick.taken, pick.skipped) == (1, (0, 2, 3))


def test_entropy_is_read_on_the_first_tokens_and_a_low_reading_ends_the_group() -> None:
    part, view = made("hive", size=4, check_tokens=16, least_entropy=0.2)
    group = opened(part, view, 0)
    first, second = group.members[:2]
    watch = part.watch(view, first)
    assert watch is not None
    assert (watch.signal, watch.marks) == ("entropy", (16,))
    assert part.watch(view, second) is None
    assert part.on_watch(view, first, 16, 0.2) == Verdict()
    assert part.on_watch(view, first, 16, 0.19) == Verdict(pruned=tuple(group.members))
    second.state = "ended"
    assert part.on_watch(view, first, 16, 0.19) == Verdict()
    first.made_tokens = 16
    assert part.watch(view, first) is None


def test_thompson_draws_prefer_open_prompts_but_not_always() -> None:
    part, view = made("vade", prompts=1, size=8, pool=2.0)
    for _ in range(6):
        complete(part, view, 1, [1] * 4 + [0] * 4)
        complete(part, view, 2, [1] * 8)
    taken = Counter(part.pick(view, offers(1, 2, first=2 * number)).taken for number in range(300))
    assert taken[0] > 290
    view.version = 400  # nothing is remembered: 0.98^400 of it
    taken = Counter(part.pick(view, offers(1, 2, first=2 * number)).taken for number in range(2000))
    assert taken[0] / 2000 == pytest.approx(0.5, abs=0.045)


def test_prompts_near_the_target_weigh_most() -> None:
    part, view = made("difficulty-targeted", prompts=1, size=4, pool=2.0, temperature=0.25, target_success=0.5)
    complete(part, view, 1, [1, 1, 0, 0])
    complete(part, view, 2, [1, 1, 1, 1])  # Beta(5, 1): 5/6
    taken = Counter(part.pick(view, offers(1, 2, first=2 * number)).taken for number in range(3000))
    assert taken[0] / 3000 == pytest.approx(1 / (1 + math.exp(-(1 / 3) / 0.25)), abs=0.03)


def test_prompts_are_removed_by_the_chance_of_two_rewards() -> None:
    part, view = made("depo", size=4, least_useful=0.4)
    complete(part, view, 1, [1, 1, 1, 1])  # Beta(5, 1): E p^4 = 5/9, E (1-p)^4 = 24/3024 = 1/126
    complete(part, view, 2, [1, 1, 0, 0])
    assert Belief(5, 1).useful(4) == pytest.approx(1 - 5 / 9 - 1 / 126)
    shown = offers(1, 2)
    assert part.pick(view, shown).taken == 0
    complete(part, view, 1, [1, 1, 1, 1])  # Beta(9, 1): 1 - 9/13 - 1/715
    pick = part.pick(view, shown)
    assert (pick.taken, pick.skipped) == (1, (0,))
    pick = part.pick(view, offers(1, 1))
    assert (pick.taken, pick.skipped) == (0, (1,))
    view.version = 40
    assert part.pick(view, shown).taken == 0  # forgotten, and asked again


# -- samples -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "rewards", "pivot"),
    [(4, [0.1, 0.9, 0.5, 0.2, 0.7], 2), (4, [1, 0, 1, 0, 0], 1), (2, [0, 1, 1], 1), (3, [1, 0, 0, 1], 0)],
)
def test_the_first_sample_with_the_median_reward_is_the_pivot(size: int, rewards: list[float], pivot: int) -> None:
    part, view = made("mc-grpo", size=size)
    group = opened(part, view, 0)
    assert group.launched == size + 1
    rest(view, group, rewards)
    assert [sample.member for sample in part.unselected(view, group)] == [pivot]


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=3, max_size=7), st.integers(0, 400))
def test_no_other_part_of_a_group_varies_more(rewards: list[float], step: int) -> None:
    from itertools import combinations

    part, view = made("d3s", size=len(rewards))
    group = opened(part, view, 0)
    rest(view, group, rewards)
    view.steps_begun = step
    out = part.unselected(view, group)
    kept = [sample for sample in group.members if sample not in out]
    share = 0.5 + 0.5 * min(1.0, step / 200)
    assert len(kept) == max(2, math.ceil(share * len(rewards)))
    best = max(variance(subset) for subset in combinations(rewards, len(kept)))
    assert variance(rewards_of(kept)) == pytest.approx(best)


def test_groups_grow_in_stages_up_to_the_workloads() -> None:
    part, view = made("group-schedule", size=24, first_samples=4, stage_steps=10)
    sizes = [opened(part, view, step, target=step).launched for step in (0, 9, 10, 20, 30, 10**9)]
    assert sizes == [4, 4, 8, 16, 24, 24]
    with pytest.raises(ParameterError, match="1 to group_size = 4"):
        made("group-schedule", size=4, first_samples=5)


def test_uniform_groups_may_have_a_size_of_their_own() -> None:
    part, view = made("uniform", size=4, samples=2, redundancy=1)
    group = opened(part, view, 0)
    assert group.launched == 3
    assert part.members(view, group).needed == 2
    enlarge(group, 0)


@pytest.mark.parametrize(
    ("use", "field", "value"),
    [
        ("greso", "exploration", 1.5),
        ("greso", "candidates", 0),
        ("aero", "most_ratio", 0.5),
        ("pilot-commit", "pilot_fraction", -0.1),
        ("vigor", "kept", 0.0),
        ("sgpo", "most_ratio", 0.0),
        ("gdro-prompt", "smoothing", 1.0),
        ("gdro-rollout", "levels", 0),
        ("vade", "pool", 0.5),
        ("v0.5", "critical", -1.0),
        ("xrpo", "first_share", 2.0),
        ("dars", "most_extra_ratio", -1.0),
        ("d3s", "last_share", 1.1),
        ("hive", "check_tokens", 1),
        ("difficulty-targeted", "temperature", 0.0),
        ("depo", "kept_per_version", 1.1),
        ("uniform", "samples", 0),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_with_its_key(use: str, field: str, value: float) -> None:
    with pytest.raises(ParameterError) as caught:
        made(use, size=8, **{field: value})
    assert (caught.value.path, caught.value.found) == (field, value)
