"""Strategies that look at responses under way or budget their length, against their rules on cases counted by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
from scripted_groups import complete, enlarge, made, offers, opened

from rlsim.core.view import Group, View
from rlsim.policies.allocation.estimators import QualityHead, Recent
from rlsim.policies.hooks import Pick, Verdict


def read(part: Any, view: View, group: Group, tokens: int, *values: float | None) -> list[Verdict]:
    """Members of a group come to a mark one after the other, with these readings; None: that one does not."""
    pairs = zip(group.members, values, strict=True)
    return [part.on_watch(view, member, tokens, value) for member, value in pairs if value is not None]


def numbers(samples: Any) -> list[int]:
    return [sample.member for sample in samples]


def ended(part: Any, view: View, group: Group, rewards: list[float], lengths: list[int] | None = None) -> None:
    """All members end so, and the part is told."""
    for place, (member, reward) in enumerate(zip(group.members, rewards, strict=True)):
        member.state, member.reward = "ended", reward
        member.response_tokens = lengths[place] if lengths else 0
    part.observe(view, group)


def calibrated(part: Any, view: View, mark: int) -> None:
    """Successes read 1 and 3, failures -3 and -1: means 2 and -2, variance 4 / 2, so a reading's logit is twice it."""
    group = opened(part, view, 900)
    read(part, view, group, mark, 1.0, 3.0, -3.0, -1.0)
    ended(part, view, group, [1.0, 1.0, 0.0, 0.0])


# -- the head --------------------------------------------------------------------------------------------


def scored_group(*rewards: float) -> Group:
    group = Group(0, 0, 0, 7, 0, 0)
    enlarge(group, len(rewards))
    for member, reward in zip(group.members, rewards, strict=True):
        member.state, member.reward = "ended", reward
    return group


@pytest.mark.parametrize("value", [-2.0, 0.0, 0.7])
def test_the_head_is_the_discriminant_of_two_normals(value: float) -> None:
    head, group = QualityHead(2), scored_group(1, 1, 0, 0, 0, 0)
    for member, reading in zip(group.members, (1.0, 3.0, -3.0, -1.0, -3.0, -1.0), strict=True):
        head.read(member.sample, 8, reading)
    head.observe(group)
    squares = 2 + 4  # about the means 2 and -2
    logit = math.log(2 / 4) + (2 - -2) / (squares / (2 + 4 - 2)) * value
    assert head.read(99, 8, value) == pytest.approx(1 / (1 + math.exp(-logit)))
    assert head.read(99, 9, value) is None


def test_the_head_waits_for_both_outcomes_and_learns_nothing_from_what_was_cut() -> None:
    head, group = QualityHead(2), scored_group(1, 1, 0, 0)
    group.members[3].truncated = True
    for member in group.members:
        head.read(member.sample, 8, 1.0)
    head.observe(group)
    assert head.read(99, 8, 1.0) is None


def test_a_certain_head_does_not_overflow() -> None:
    head, group = QualityHead(1), scored_group(1, 0)
    for member, reading in zip(group.members, (1e9, -1e9), strict=True):
        head.read(member.sample, 8, reading)
    head.observe(group)
    assert head.read(99, 8, -1e9) == pytest.approx(0.0)
    assert head.read(98, 8, 1e9) == pytest.approx(1.0)


def test_quantiles_of_recent_lengths() -> None:
    recent = Recent(4)
    for tokens in (1000, 40, 10, 30, 20):
        recent.add(tokens)
    assert [recent.quantile(share) for share in (0.0, 0.25, 0.5, 0.51, 1.0)] == [10, 10, 20, 30, 40]


# -- arrol -----------------------------------------------------------------------------------------------


def arrol(**fields: Any) -> tuple[Any, View]:
    return made("arrol", **{"mark_tokens": 8, "least_seen": 1, **fields})


def test_arrol_gives_up_the_most_certain_of_the_more_frequent_outcome() -> None:
    part, view = arrol()
    calibrated(part, view, 8)
    verdicts = read(part, view, opened(part, view, 0), 8, 0.5, 0.25, -0.1, 1.0)  # 0.73 0.62 0.45 0.88: mostly right
    assert [numbers(verdict.pruned) for verdict in verdicts] == [[], [], [], [3, 0]]
    wrong = read(part, view, opened(part, view, 1), 8, -0.5, -0.25, 0.1, -1.0)
    assert numbers(wrong[-1].pruned) == [3, 0]


def test_arrol_balances_what_is_left_as_it_goes() -> None:
    """0.98 0.95 0.12 0.08 are mostly right, by little: 0.98 goes, then the others are mostly wrong."""
    part, view = arrol()
    calibrated(part, view, 8)
    verdict = read(part, view, opened(part, view, 0), 8, 2.0, 1.5, -1.0, -1.2)[-1]
    assert numbers(verdict.pruned) == [0, 3]


def test_arrol_counts_members_that_have_ended_and_waits_for_those_that_come() -> None:
    part, view = arrol()
    calibrated(part, view, 8)
    group = opened(part, view, 0)
    group.members[0].state, group.members[0].reward = "ended", 1.0
    verdicts = read(part, view, group, 8, None, -0.1, -0.2, -0.3)  # 1 + 0.45 + 0.40 + 0.35 of 4: mostly right
    assert [numbers(verdict.pruned) for verdict in verdicts] == [[], [], [1, 2]]


def test_arrol_waits_for_no_reward() -> None:
    part, view = arrol()
    calibrated(part, view, 8)
    group = opened(part, view, 0)
    group.members[0].state = "scoring"
    verdicts = read(part, view, group, 8, None, 0.5, 0.6, 0.7)  # 1/2 for the first: mostly right
    assert numbers(verdicts[-1].pruned) == [3, 2]


def test_arrol_keeps_all_before_it_knows_and_never_fewer_than_two() -> None:
    part, view = arrol(kept_share=0.01)
    assert not any(verdict.pruned for verdict in read(part, view, opened(part, view, 0), 8, 0.5, 0.25, -0.1, 1.0))
    calibrated(part, view, 8)
    assert len(read(part, view, opened(part, view, 1), 8, 0.5, 0.25, -0.1, 1.0)[-1].pruned) == 2


# -- DUET ------------------------------------------------------------------------------------------------


def test_duet_gives_samples_in_proportion_to_the_deviation_of_rewards() -> None:
    part, view = made("duet")
    assert [opened(part, view, number).launched for number in (0, 1)] == [4, 4]
    complete(part, view, 0, [1, 1, 1, 1])  # Beta(5, 1): deviation sqrt(5) / 6 = 0.373; mean of three 0.458
    assert opened(part, view, 2, prompt=0).launched == 3  # 3.26
    assert opened(part, view, 3).launched == 5  # 4 * 0.5 / 0.468 = 4.27, and the 0.26 that were left


def test_duet_survivors_behind_the_horizon_carry_the_inverse_probability() -> None:
    part, view = made("duet", size=2000, survival=0.25, mark_tokens=10, most_ratio=1.0)
    pruned = [verdict.pruned for verdict in read(part, view, opened(part, view, 0), 10, *[1.0] * 2000)]
    kept = 2000 - sum(map(len, pruned))
    assert kept == pytest.approx(500, abs=4 * math.sqrt(2000 * 0.25 * 0.75))
    assert len(part.weights) == kept
    assert set(part.weights.values()) == {4.0}


@pytest.mark.parametrize(("token_share", "samples"), [(1.0, 6), (0.5, 3)])
def test_duet_gives_what_aborts_save_to_all_groups_within_the_budget(token_share: float, samples: int) -> None:
    part, view = made("duet", token_share=token_share, survival=0.2, mark_tokens=15)
    first = opened(part, view, 0)
    first_samples = first.launched
    assert first_samples == 4 * token_share
    # 20 a response, 12.5 of them up to the horizon: 12.5 + 0.2 * 7.5 = 14 are spent, so 20/14 times as many are bought
    ended(part, view, first, [0.0, 1.0] * (first_samples // 2), [10, 30] * (first_samples // 2))
    assert opened(part, view, 1).launched == samples  # 4 * 0.5 / 0.5 * 20 / 14 = 5.71, by half a budget 2.86


def test_duet_weighs_a_survivor_for_those_that_were_cut() -> None:
    """One of 30 tokens that went on stands for 4: mean (10 + 4 * 30) / 5 = 26, and 14 up to the horizon of 15."""
    part, view = made("duet", size=2, survival=0.25, mark_tokens=15)
    group = opened(part, view, 0)
    part.weights[group.members[1].sample] = 4.0
    ended(part, view, group, [0.0, 1.0], [10, 30])
    assert opened(part, view, 1).launched == 3  # 26 / (14 + 0.25 * 12) = 1.53: 3.06


def test_duet_aborts_nobody_below_two_or_where_all_survive() -> None:
    part, view = made("duet", mark_tokens=10, survival=1.0)
    assert not any(verdict.pruned for verdict in read(part, view, opened(part, view, 1), 10, 0.1, 0.1, 1.0, 1.0))
    part, view = made("duet", size=2, mark_tokens=10, survival=0.01)
    assert not any(verdict.pruned for verdict in read(part, view, opened(part, view, 1), 10, 0.0, 0.0))


# -- PG-OPD ----------------------------------------------------------------------------------------------


def test_pg_opd_goes_on_with_the_best_candidates_once_all_were_probed() -> None:
    part, view = made("pg-opd", size=2)
    group = opened(part, view, 0)
    assert (group.launched, group.needed) == (4, 4)
    verdicts = read(part, view, group, 256, 0.5, 0.9, 0.7, 0.6)
    assert [numbers(verdict.truncated) for verdict in verdicts] == [[], [], [], [3, 0]]


def test_pg_opd_counts_candidates_that_ended_before_the_probe() -> None:
    part, view = made("pg-opd", size=2)
    group = opened(part, view, 0)
    group.members[2].state = "scoring"
    assert numbers(read(part, view, group, 256, 0.5, 0.9, None, 0.6)[-1].truncated) == [3, 0]
    other = opened(part, view, 1)
    for member in other.members[:3]:
        member.state = "ended"
    assert numbers(read(part, view, other, 256, None, None, None, 0.9)[-1].truncated) == [3]


# -- Prune-OPD, ADWIN, ShortOPD, ESR ---------------------------------------------------------------------


def prune_opd(**fields: Any) -> tuple[Any, View]:
    sizes = {"window_tokens": 100, "most_window_tokens": 200, "every_tokens": 10}
    return made("prune-opd", **{**sizes, **fields})


def cap(part: Any, view: View, group: Group, member: int = 1) -> int:
    return part.cap_tokens(view, group.members[member])


def test_prune_opd_ends_a_response_at_low_readings_in_a_row() -> None:
    part, view = prune_opd()
    sample = opened(part, view, 0).members[0]
    found = [part.on_watch(view, sample, 10 * place, value) for place, value in enumerate((0.6, 0.7, 0.6, 0.5), 1)]
    assert [numbers(verdict.truncated) for verdict in found] == [[], [], [], [0]]


@pytest.mark.parametrize(("drifted", "windows"), [(1, [150, 200, 200]), (2, [100] * 3)])
def test_prune_opd_widens_the_window_while_responses_keep_to_the_teacher(drifted: int, windows: list[int]) -> None:
    """Of 4 responses 1 or 2 drift; 3 / 4 is enough and 2 / 4 is not. A batch is 3 groups."""
    part, view = prune_opd()
    found = []
    for number in range(9):
        group = opened(part, view, number)
        for tokens in (10, 20):
            read(part, view, group, tokens, *[0.1] * drifted, *[0.8] * (4 - drifted))
        before = cap(part, view, group)
        ended(part, view, group, [0.0] * 4)
        if number % 3 == 2:
            found.append(cap(part, view, group))
        else:
            assert cap(part, view, group) == before
    assert found == windows


def adwin(**fields: Any) -> tuple[Any, View]:
    sizes = {"window_tokens": 50, "least_window_tokens": 12, "most_window_tokens": 100, "every_tokens": 4}
    return made("adwin", **{**sizes, "probe_groups": 2, "probes_kept": 3, **fields})


def test_adwin_probes_run_to_their_end_and_set_the_window() -> None:
    part, view = adwin()
    group = opened(part, view, 0)
    assert (cap(part, view, group, 0), cap(part, view, group)) == (0, 50)
    assert part.watch(view, group.members[0]).marks == tuple(range(4, 101, 4))
    assert part.watch(view, group.members[1]) is None
    for tokens, value in ((24, 0.8), (28, 0.6), (32, 0.5), (36, 0.5), (40, 0.5)):
        assert part.on_watch(view, group.members[0], tokens, value) == Verdict()
    assert cap(part, view, group) == 24  # the last look before the two low ones
    ended(part, view, group, [0.0] * 4, [60] * 4)
    assert cap(part, view, group) == 24
    for number, length, window in ((2, 80, 24), (4, 40, 40), (6, 10, 40), (8, 8, 12)):  # medians of the last three
        later = opened(part, view, number)
        ended(part, view, later, [0.0] * 4, [length] * 4)
        assert cap(part, view, later) == window, number


def test_adwin_knows_no_probe_in_other_groups_and_none_of_old_weights() -> None:
    part, view = adwin()
    other = opened(part, view, 1)
    assert cap(part, view, other, 0) == 50
    group = opened(part, view, 2)
    view.version = 3
    ended(part, view, group, [0.0] * 4, [20] * 4)
    assert cap(part, view, group) == 50


def test_shortopd_follows_the_lengths_before_repetition() -> None:
    sizes = {"cap_tokens": 200, "least_cap_tokens": 40, "most_cap_tokens": 400, "every_tokens": 16}
    part, view = made("shortopd", prompts=1, covered_share=0.75, **sizes)
    group = opened(part, view, 0)
    assert cap(part, view, group) == 200
    read(part, view, group, 48, 0.0, 1.0, 0.0, 0.0)
    read(part, view, group, 64, 0.0, 1.0, 1.0, 0.0)
    ended(part, view, group, [0.0] * 4, [200, 200, 200, 60])  # effective: 200, 32, 48, 60
    assert cap(part, view, group) == 75  # 1.25 * 60


@pytest.mark.parametrize(("length", "caps"), [(9999, [250, 313, 392, 400]), (8, [40, 40, 40, 40])])
def test_shortopd_grows_while_responses_are_cut_and_keeps_to_its_bounds(length: int, caps: list[int]) -> None:
    sizes = {"cap_tokens": 200, "least_cap_tokens": 40, "most_cap_tokens": 400, "every_tokens": 16}
    part, view = made("shortopd", prompts=1, responses_kept=4, **sizes)
    found = []
    for number in range(4):
        group = opened(part, view, number)
        ended(part, view, group, [0.0] * 4, [min(length, cap(part, view, group))] * 4)
        found.append(cap(part, view, group))
    assert found == caps  # 1.25 times the one before, rounded up


def test_esr_cuts_every_response_at_the_same_place() -> None:
    part, view = made("esr", response_tokens=17)
    assert {cap(part, view, opened(part, view, 0), member) for member in range(4)} == {17}


# -- ESPO, Precog-RM -------------------------------------------------------------------------------------


def test_espo_ends_a_response_whose_regret_is_above_the_mean_by_the_margin() -> None:
    """Readings 1, 1, -2, 1: means 1, 1, 0, 1/4, so regrets are 0, 0, 2, -3/4; half of each counts at once."""
    for margin, cut in ((0.0, [2]), (1e9, [2])):  # regrets before the third did not differ: no margin to speak of
        part, view = made("espo", margin=margin, least_seen=2, every_tokens=8)
        verdicts = read(part, view, opened(part, view, 0), 8, 1.0, 1.0, -2.0, 1.0)
        assert [number for verdict in verdicts for number in numbers(verdict.truncated)] == cut


def test_espo_sums_smoothed_regret_along_the_response() -> None:
    """Of two responses: 1 then 2 and 1 then -2 at the second mark; regrets there 0 and 2, smoothed 0 and 1."""
    part, view = made("espo", margin=0.0, least_seen=2, every_tokens=8)
    group = opened(part, view, 0)
    read(part, view, group, 8, 3.0, -1.0, 1.0, 1.0)  # means 3, 1, 1, 1: regrets 0, 2, 0, 0
    assert part.on_watch(view, group.members[2], 16, 5.0) == Verdict()
    assert part.on_watch(view, group.members[0], 16, 5.0) == Verdict()
    # the second has 1 of before, then 1/2 * 1 + 1/2 * 0: 3/2 against 0 for the others
    assert numbers(part.on_watch(view, group.members[1], 16, 5.0).truncated) == [1]


def test_espo_ends_nobody_before_it_has_seen_enough() -> None:
    part, view = made("espo", margin=0.0, least_seen=4, every_tokens=8)
    assert not any(v.truncated for v in read(part, view, opened(part, view, 0), 8, 1.0, 1.0, -2.0, 1.0))


def test_precog_ends_what_surely_fails() -> None:
    part, view = made("precog", least_seen=1, failure_confidence=0.9)
    calibrated(part, view, 256)
    edge = math.log(9) / 2  # logit 2 x = -log 9
    verdicts = read(part, view, opened(part, view, 0), 256, -edge + 0.01, -edge - 0.01, edge + 1, None)
    assert [numbers(verdict.truncated) for verdict in verdicts] == [[], [1], []]


# -- MASA ------------------------------------------------------------------------------------------------


def test_masa_passes_over_prompts_whose_groups_will_agree() -> None:
    part, view = made("masa", least_useful=0.5)
    for _ in range(3):
        complete(part, view, 7, [1, 1, 1, 1])  # Beta(13, 1): four successes with 13 / 17
    assert part.pick(view, offers(7, 7, 3, 5)) == Pick(2, (0, 1))
    assert part.pick(view, offers(7, 7)) == Pick(0, (1,))  # 4 / 17 is all there is


def test_masa_ends_responses_much_longer_than_right_ones() -> None:
    part, view = made("masa", slack=1.5, least_seen=3)
    group = opened(part, view, 0)
    ended(part, view, group, [1.0, 1.0, 0.0, 0.0], [10, 30, 90, 90])
    assert cap(part, view, group) == 0  # two right ones are too few
    other = opened(part, view, 1)
    ended(part, view, other, [1.0, 0.0, 0.0, 1.0], [50, 90, 90, 70])  # mean 40 over all, 20 and 60 of these prompts
    assert cap(part, view, group) == 50  # 1.5 (4 * 40 + 2 * 20) / 6
    assert cap(part, view, other) == 70  # 1.5 (4 * 40 + 2 * 60) / 6
    assert cap(part, view, opened(part, view, 2)) == 60
