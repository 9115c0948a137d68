"""Strategies that draw on what was trained on before: each decides by its rule, and tokens are counted once."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
from policy_runs import AGENTS, batches, commands, ran, scenario
from remembered_groups import grown, remember, started

from rlsim.core.commands import Submit, Train
from rlsim.core.events import Finished
from rlsim.core.log import RunLog
from rlsim.resolve import resolve
from rlsim.results.metrics import ledger_tokens, metrics
from rlsim.sim.simulation import simulate

LEARNT: dict[str, Any] = {
    "learning": {"population": {"mean_success": 0.5}},
    "workload__group_size": 4,
    "workload__dataset_prompts": 3,
    "run__steps": 8,
    "rollout__max_model_len": 1100,  # above the longest response, or the last token of a draft could not be checked
}


def policy(part: dict[str, Any], preset: str = "sync-colocated", **given: Any) -> dict[str, Any]:
    return {"preset": preset, **given, "parts": {"allocation": part}}


def run(part: dict[str, Any], **more: Any) -> RunLog:
    return ran(policy(part), **{**LEARNT, **more})


# -- rules -----------------------------------------------------------------------------------------------


def test_the_draft_of_a_member_is_that_of_the_last_group_of_its_prompt() -> None:
    part, view = started("spec-rl")
    first, second, other = grown(0, [1.0, 0.0], prompt=7), grown(1, [1.0, 0.0], prompt=7), grown(2, [0.0], prompt=8)
    now = grown(3, [None, None, None], prompt=7)
    assert part.draft(view, now.members[0]) is None
    assert remember(part, view, first) == []
    assert part.draft(view, now.members[1]) is first.members[1]
    assert remember(part, view, other) == []
    assert remember(part, view, second) == [0]
    assert part.draft(view, now.members[1]) is second.members[1]
    assert part.draft(view, now.members[2]) is None


def test_a_draft_can_be_too_old() -> None:
    part, view = started("spec-rl", max_age_versions=2)
    remember(part, view, grown(0, [1.0], prompt=7, version=1))
    now = grown(3, [None], prompt=7)
    view.version = 3
    assert part.draft(view, now.members[0]) is not None
    view.version = 4
    assert part.draft(view, now.members[0]) is None


def test_replay_opens_its_share_of_old_groups_best_variance_first() -> None:
    part, view = started("replay", share=0.5, max_uses=2)
    flat, wide, narrow = grown(0, [1.0, 1.0]), grown(1, [1.0, 0.0, 1.0, 0.0]), grown(2, [1.0, 0.0, 0.0, 0.0])
    assert part.again(view) is None
    for _ in range(3):
        part.members(view, flat)
    assert [remember(part, view, group) for group in (flat, wide, narrow)] == [[0], [], []]
    assert part.again(view) == 1
    del view.kept[1]
    assert part.again(view) == 2
    del view.kept[2]
    assert part.again(view) is None


def test_replay_forgets_what_is_old_or_was_used_often_enough() -> None:
    part, view = started("replay", max_age_versions=3, max_uses=1)
    young, used = grown(0, [1.0, 0.0], version=2), grown(1, [1.0, 0.0], version=2)
    used.replays = 1
    view.version = 5
    assert remember(part, view, young) == []
    assert remember(part, view, used) == [1]
    view.version = 6
    assert part.again(view) is None
    assert remember(part, view, grown(2, [1.0, 0.0], version=6)) == [0]


def test_popo_puts_the_most_worthwhile_old_group_where_one_taught_nothing() -> None:
    part, view = started("popo", half_life_versions=2.0)
    view.version = 4
    old, new = grown(0, [1.0, 0.0], version=0), grown(1, [1.0, 0.0, 0.0, 0.0], version=4)
    for group in (old, new):
        remember(part, view, group)
    assert part.again(view) is None
    assert not part.rejects(view, grown(2, [1.0, 0.0]))
    assert part.rejects(view, grown(3, [1.0, 1.0]))
    # variances 1/4 after two half-lives, and 3/16 now
    assert part.again(view) == 1
    assert part.again(view) is None


# -- runs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hazard", [0.0, 0.7, 3.0])
def test_what_is_generated_again_is_what_the_weights_reject(hazard: float) -> None:
    steady = {"response_tokens": {"law": "constant", "tokens": 1000}, "prompts_per_step": 24, "dataset_prompts": 24}
    world = {"population": {}, "lengths": {"failure_ratio": 1.0, "difficulty_ratio": 1.0}}
    changes = {f"workload__{key}": value for key, value in steady.items()}
    log = run({"use": "spec-rl"}, **changes, learning={**world, "rejections_per_update": hazard})
    drafted = 7 * 24 * 4
    kept = (1 - math.exp(-hazard)) / hazard if hazard else 1.0
    again = log.generated_tokens - 24 * 4 * 1000 - log.check_tokens
    assert log.check_tokens == drafted
    error = 4 * 0.35 / math.sqrt(drafted)  # the standard deviation of what is kept is at most 0.35
    assert again / (drafted * 1000) == pytest.approx(1 - kept, abs=error if hazard else 0)


def test_a_draft_is_checked_by_a_prefill_and_its_rest_hits_what_the_check_computed() -> None:
    log = run({"use": "spec-rl"}, rollout__enable_prefix_caching=True, rollout__block_size=4)
    plain = ran(policy({"use": "uniform"}), **LEARNT, rollout__enable_prefix_caching=True, rollout__block_size=4)
    checks = [made for _, made in commands(log, Submit) if made.draft >= 0]
    told = [row.event for row in log.decisions if isinstance(row.event, Finished) and row.event.reused]
    assert len(checks) == 7 * 3 * 4 == log.check_tokens
    assert log.prefill_tokens > plain.prefill_tokens
    assert log.generated_tokens < plain.generated_tokens
    assert all(event.tokens == 0 and not event.segments for event in told)
    later = {made.sample: made for _, made in commands(log, Submit) if made.draft < 0}
    for event in told:
        if event.reason == "checked":
            tokens = sum(count for _, count in event.reused)
            assert (later[event.sample].made_tokens, later[event.sample].replica) == (tokens, event.replica)


@pytest.mark.parametrize("hazard", [0.0, 0.7])
def test_a_draft_that_the_trainer_checks_costs_the_engine_no_prefill_of_its_own(hazard: float) -> None:
    steady = {"response_tokens": {"law": "constant", "tokens": 1000}, "prompts_per_step": 24, "dataset_prompts": 24}
    changes = {f"workload__{key}": value for key, value in steady.items()} | {"rollout__kv_blocks": 100_000}
    world = {"population": {}, "lengths": {"failure_ratio": 1.0, "difficulty_ratio": 1.0}}
    engine, trainer = (
        run({"use": "spec-rl"}, **changes, learning={**world, "rejections_per_update": hazard, "drafts_checked_by": by})
        for by in ("engine", "trainer")
    )
    assert trainer.generated_tokens == engine.generated_tokens
    drafted = 7 * 24 * 4
    rounding = drafted if hazard else 0  # a response that goes on behind a draft may be a token shorter than the law's
    assert engine.prefill_tokens - trainer.prefill_tokens == pytest.approx(drafted * 1000, abs=rounding)


def test_a_response_that_is_accepted_to_its_end_earns_what_it_earned() -> None:
    made = resolve(scenario(policy({"use": "spec-rl"}), **{**LEARNT, "learning": {"rejections_per_update": 0.0}}))
    log = simulate(made).log
    assert sum(count for tokens in [ledger_tokens(log)] for count in tokens.values()) == log.generated_tokens
    assert {row.information for row in log.progress if row.step} != {0.0}
    found = metrics(simulate(made))
    assert found.inherited_tokens == 7 * sum(row.tokens for row in log.final if row.sample < 12)
    assert found.response_tokens_mean == pytest.approx(found.inherited_tokens / 7 / 12)


def test_replayed_groups_are_trained_again_at_their_real_age_and_generated_once() -> None:
    made = resolve(scenario(policy({"use": "replay", "max_uses": 2}), **LEARNT))
    run = simulate(made)
    trained = Counter(sample for batch in batches(run.log) for sample in batch)
    found = metrics(run)
    again = sum(count - 1 for count in trained.values())
    assert again > 0
    assert found.replayed_share == pytest.approx(again / sum(trained.values()))
    assert found.ledger_closes
    assert found.ledger_tokens["trained"] == sum(row.tokens for row in run.log.final if row.outcome == "trained")
    assert found.start_lag_max >= 1
    assert found.samples_per_second == pytest.approx(8 * 12 / run.log.iterations[-1].end * 1e12)
    assert max(trained.values()) <= 3


def test_what_is_kept_is_released_once_and_never_trained_on_afterwards() -> None:
    log = run({"use": "replay"}, workload__dataset_prompts=50, run__steps=12)
    gone: set[int] = set()
    for _, made in commands(log, Train):
        assert made.keeps
        assert not gone & set(made.samples)
        assert not gone & set(made.releases)
        gone |= set(made.releases)
    assert gone


@pytest.mark.parametrize("preset", ["sync-colocated", "one-step-off", "areal"])
@pytest.mark.parametrize("use", ["spec-rl", "replay", "popo"])
def test_books_close_under_three_presets(use: str, preset: str) -> None:
    given = {"max_head_offpolicyness": 2, "max_concurrent_rollouts": 6} if preset == "areal" else {}
    for more in ({}, AGENTS):
        log = ran(policy({"use": use}, preset, **given), **LEARNT, **more)
        assert len(log.iterations) == 8
        assert sum(ledger_tokens(log).values()) == log.generated_tokens


def test_replay_alone_generates_nothing_after_its_first_steps() -> None:
    part = {"use": "replay", "share": 1.0, "after_steps": 3, "order": "oldest", "max_uses": 99, "max_age_versions": 99}
    log = run(part, workload__dataset_prompts=50)
    made = {made.step: made.samples for _, made in commands(log, Train)}
    fresh = [sum(sample not in set().union(*(made[s] for s in range(step))) for sample in made[step]) for step in made]
    assert fresh == [12, 12, 12, 0, 0, 0, 0, 0]
    assert len({made.sample for _, made in commands(log, Submit)}) == 36
