"""Strategies whose groups are trees: each decides by its rule, and what forks is neither made nor counted twice."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import pytest
from policy_runs import AGENTS, batches, commands, ran
from remembered_groups import branch_off, grown, started

from rlsim.core.commands import Submit
from rlsim.core.events import Finished, Noticed
from rlsim.core.log import RunLog
from rlsim.policies.allocation.branching import _anchors, _mixed
from rlsim.policies.hooks import GO_ON, Verdict
from rlsim.results.metrics import ledger_tokens

SPARK: dict[str, Any] = {"use": "spark", "roots": 2, "marks": (8,), "threshold": None}
LEARNT: dict[str, Any] = {"learning": {"population": {"mean_success": 0.5}}, "workload__group_size": 4}
ROOMY: dict[str, Any] = {
    **LEARNT,
    "learning": {"lengths": {"failure_ratio": 1.0, "difficulty_ratio": 1.0}},
    "rollout__enable_prefix_caching": True,
    "workload__response_tokens": {"law": "uniform", "low_tokens": 40, "high_tokens": 60},
}


def run(
    part: dict[str, Any], preset: str = "sync-colocated", given: dict[str, Any] | None = None, **more: Any
) -> RunLog:
    return ran({"preset": preset, **(given or {}), "parts": {"allocation": part}}, **{**LEARNT, **more})


# -- rules -----------------------------------------------------------------------------------------------


def test_spark_branches_at_readings_from_the_threshold_on_while_the_group_has_room() -> None:
    part, view = started("spark", roots=2, threshold=0.5, width=2)
    group = grown(0, [None, None])
    assert [part.members(view, group).launched] == [2]
    first = group.members[0]
    assert part.branch(view, first, 2, 0.49) == 0
    assert part.branch(view, first, 2, 0.5) == 2
    group.launched = 3
    assert part.branch(view, first, 2, 0.9) == 1
    group.launched = 4
    assert part.branch(view, first, 2, 0.9) == 0
    assert part.branch(view, first, 0, None) == 0


def test_uncertain_turns_in_a_row_stop_branching_and_a_child_goes_on_where_its_parent_was() -> None:
    part, view = started("spark", size=64, most_in_a_row=2)
    first = grown(0, [None]).members[0]
    assert [part.branch(view, first, 2, value) for value in (0.9, 0.9, 0.9, 0.1, 0.9)] == [1, 1, 0, 0, 1]
    child = branch_off(first, 0, 1.0)
    assert [part.branch(view, child, 2, 0.9) for _ in range(2)] == [1, 0]


def test_what_a_tree_is_short_of_begins_at_the_prompt() -> None:
    part, view = started("spark")
    view.waiting_for_wave = {5: grown(5, [1.0]), 6: grown(6, [1.0, 0.0, 0.0, 0.0])}
    assert part.extend(view) == [(5, 3), (6, 0)]


def test_echo_branches_by_its_own_entropy_and_the_doubt_of_its_group() -> None:
    part, view = started("echo", size=64, max_width=8)
    group = grown(0, [None, None])
    sure, unsure = NormalDist().inv_cdf(0.9), 0.0
    assert part.on_watch(view, group.members[0], 64, unsure) == GO_ON
    assert part.branch(view, group.members[0], 64, unsure) == 4  # 8 * 4 * 0.5 * 0.5 * (1 - 0.5)
    part.on_watch(view, group.members[1], 64, sure)
    assert part.branch(view, group.members[1], 64, sure) == 1  # 8 * 4 * 0.9 * 0.1 * (1 - 0.7) = 0.864


def test_echo_gives_up_what_stays_unsure_but_not_the_last_member() -> None:
    part, view = started("echo", low=0.4, patience=2)
    group = grown(0, [None, None])
    low, high = NormalDist().inv_cdf(0.3), NormalDist().inv_cdf(0.6)
    first = group.members[0]
    told = [part.on_watch(view, first, 64, value) for value in (low, high, low, low)]
    assert told == [GO_ON, GO_ON, GO_ON, Verdict(pruned=(first,))]
    group.members = [first]
    assert part.on_watch(view, first, 64, low) == GO_ON


def test_trace_takes_the_anchor_whose_success_is_most_doubtful() -> None:
    part, view = started("trace", size=8, width=2)
    group = grown(0, [1.0, 0.0, 0.0, 0.0], turns=3)
    # overall (1 + 1) / (4 + 2) = 1/3; the first member after one turn of three: 2/3 * 1/3 + 1/3 * 1 = 5/9
    first = group.members[0]
    values = {(sample.member, turn): _mixed(group, sample, turn) for sample, turn in _anchors(group)}
    assert values[0, 1] == pytest.approx(5 / 9 * 4 / 9)
    assert values[0, 2] == pytest.approx(7 / 9 * 2 / 9)
    assert values[1, 1] == pytest.approx(2 / 9 * 7 / 9)
    assert values[0, 0] == pytest.approx(2 / 9)
    assert part.regrow(view, group) == [(first, 1, 2)]
    # two of its children fail: now 1/3 of those that came through succeed, and overall 2 / 8
    for _ in range(2):
        branch_off(first, 1, 0.0)
    assert _mixed(group, first, 1) == pytest.approx((2 / 3 / 4 + 1 / 9) * (1 - 2 / 3 / 4 - 1 / 9))
    assert len(part.regrow(view, group)) == 1
    group.launched = 8
    assert part.regrow(view, group) == ()


def test_trace_without_turns_has_no_anchor_but_the_prompt() -> None:
    part, view = started("trace", size=4)
    group = grown(0, [1.0, 0.0])
    assert part.members(view, group).launched == 2
    assert part.regrow(view, group) == [(group.members[0], 0, 2)]


# -- runs ------------------------------------------------------------------------------------------------


def inherited(log: RunLog) -> dict[int, Submit]:
    """The first calls of samples that begin with tokens of another one."""
    found: dict[int, Submit] = {}
    for _, made in commands(log, Submit):
        if made.fork is not None:
            found.setdefault(made.sample, made)
    return found


def test_a_child_begins_at_the_mark_of_its_parent_and_makes_only_the_rest() -> None:
    log = run(SPARK, **ROOMY)
    children = inherited(log)
    assert len(children) == 5 * 3 * 2
    assert {(made.made_tokens, made.context_tokens) for made in children.values()} == {(8, 24 + 8)}
    made = {row.event.sample: row.event.tokens for row in log.decisions if isinstance(row.event, Finished)}
    assert all(32 <= made[sample] <= 52 for sample in children)
    assert all(40 <= tokens <= 60 for sample, tokens in made.items() if sample not in children)
    assert sum(ledger_tokens(log).values()) == log.generated_tokens == sum(made.values())
    assert {len(batch) for batch in batches(log)} == {12}


def test_the_shared_beginning_is_in_the_prefix_cache() -> None:
    cache = {"rollout__kv_blocks": 500, "rollout__block_size": 4}
    alone = run({**SPARK, "threshold": 9.0}, **ROOMY, **cache)
    forked = run(SPARK, **ROOMY, **cache)
    again = run(SPARK, **{**ROOMY, "rollout__enable_prefix_caching": False}, **cache)
    # 30 children, each of 32 tokens of which 31 can be cached: 7 blocks of 4, and the rest is computed
    assert again.prefill_tokens > forked.prefill_tokens
    assert forked.prefill_tokens <= alone.prefill_tokens + 30 * 4
    assert not inherited(alone)


def test_a_tree_of_turns_shares_what_its_parent_said_and_was_told() -> None:
    log = run({"use": "trace", "roots": 6, "width": 1}, **{**AGENTS, "workload__group_size": 8, "run__steps": 8})
    children = inherited(log)
    assert children
    assert all(made.fork is not None and made.turn == made.fork.turn > 0 for made in children.values())
    assert all(made.made_tokens == 0 and made.context_tokens > 24 for made in children.values())
    assert sum(ledger_tokens(log).values()) == log.generated_tokens


def test_pruned_branches_are_booked_and_their_marks_come_once() -> None:
    log = run({"use": "echo", "marks": (4, 8, 16), "low": 0.5, "patience": 1}, **ROOMY)
    told = [(row.event.sample, row.event.tokens) for row in log.decisions if isinstance(row.event, Noticed)]
    assert len(told) == len(set(told))
    assert ledger_tokens(log)["pruned"] > 0
    assert sum(ledger_tokens(log).values()) == log.generated_tokens


@pytest.mark.parametrize("preset", ["sync-colocated", "one-step-off", "areal"])
@pytest.mark.parametrize("use", ["trace", "spark", "echo"])
def test_books_close_under_three_presets(use: str, preset: str) -> None:
    given = {"max_head_offpolicyness": 2, "max_concurrent_rollouts": 6} if preset == "areal" else {}
    for more in ({}, AGENTS):
        log = run({"use": use}, preset, given, **more)
        assert len(log.iterations) == 5
        assert sum(ledger_tokens(log).values()) == log.generated_tokens
