"""What allocation may decide, on runs under many policies: the books close, and what was asked for happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from allocation_parts import PARTS
from compositions import does_stall, fault, preset
from policy_runs import AGENTS, SPREAD, batches, commands, ran, scenario

from rlsim.core.commands import Abort, Score, SetRole, Submit
from rlsim.core.errors import ParameterError
from rlsim.core.events import Aborted, Finished, Noticed, Scored
from rlsim.core.log import RunLog
from rlsim.learning.dynamics import LearningDynamics, Progress, TrainedSample
from rlsim.policies.registry import parts_of
from rlsim.resolve import ResolveError, resolve
from rlsim.results.metrics import ledger_tokens
from rlsim.sim.simulation import simulate

PRESETS: dict[str, dict[str, Any]] = {
    "sync-colocated": {},
    "sync-disaggregated": {},
    "one-step-off": {},
    "areal": {"max_head_offpolicyness": 2, "max_concurrent_rollouts": 6},
    "pipelinerl": {"llm_max_rollouts": 12},
    "slime-april": {"over_sampling_batch_size": 4},
    "nemo-rl-async": {},
    "verl-fully-async-stale": {"trigger_parameter_sync_step": 1},
    "prime-rl": {},
}
TWICE = ("replay", "popo")
"""These train on samples more than once."""
STRATEGIES = [name for name in parts_of("allocation") if name not in ("single", "dapo-rounds", *TWICE)]
LEARNING = {"learning": {"population": {"mean_success": 0.5}}, "workload__group_size": 4}


def run(part: str, preset: str = "sync-colocated", **changes: Any) -> RunLog:
    policy = {"preset": preset, **PRESETS[preset], "parts": {"allocation": {"use": f"allocation_parts:{part}"}}}
    return ran(policy, **{**LEARNING, **changes})


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("part", [part.partition(":")[2] for part in PARTS])
def test_the_books_close_whatever_allocation_decides(part: str, preset: str) -> None:
    log = run(part, preset)
    assert sum(ledger_tokens(log).values()) == log.generated_tokens
    assert len(log.iterations) == 5
    trained = [sample for batch in batches(log) for sample in batch]
    assert len(trained) == len(set(trained))
    begun = {made.sample for _, made in commands(log, Submit)}
    assert set(trained) <= begun


@pytest.mark.parametrize("preset", ["sync-colocated", "one-step-off", "areal"])
@pytest.mark.parametrize("use", STRATEGIES)
def test_the_books_of_every_strategy_close_over_several_epochs(use: str, preset: str) -> None:
    policy = {"preset": preset, **PRESETS[preset], "parts": {"allocation": {"use": use}}}
    log = ran(policy, **{**LEARNING, "workload__group_size": 8}, workload__dataset_prompts=9, run__steps=8)
    assert sum(ledger_tokens(log).values()) == log.generated_tokens
    assert len(log.iterations) == 8
    trained = [sample for batch in batches(log) for sample in batch]
    assert len(trained) == len(set(trained))
    draws = {made.draw for _, made in commands(log, Submit)}
    assert len(draws) >= 24
    made = sum(isinstance(row.event, Scored) for row in log.decisions)
    assert made >= len(trained)


def test_a_second_wave_follows_where_rewards_are_the_same() -> None:
    log = run("TwoWaves")
    members: dict[int, set[int]] = {}
    for _, made in commands(log, Submit):
        members.setdefault(made.draw, set()).add(made.member)
    sizes = Counter(len(found) for found in members.values())
    assert set(sizes) == {4, 5}


def test_waves_of_a_batch_wait_for_the_whole_batch() -> None:
    log = run("Together")
    first = [row.now for row in log.decisions for made in row.commands if isinstance(made, Submit) and made.member == 4]
    scored = [row.now for row in log.decisions if isinstance(row.event, Scored)]
    assert min(first) >= sorted(scored)[4 * 3 - 1]
    assert {len(batch) for batch in batches(log)} == {15}


def test_rejected_groups_are_filtered_and_replaced() -> None:
    log = run("EveryThird")
    outcomes = Counter(row.outcome for row in log.final)
    assert outcomes["filtered"] > 0
    assert {len(batch) for batch in batches(log)} == {12}


def test_half_of_a_group_is_trained_on_and_the_rest_is_unselected() -> None:
    log = run("Halves")
    outcomes = Counter(row.outcome for row in log.final)
    assert outcomes["trained"] == outcomes["unselected"]


def test_prompts_are_picked_and_skipped() -> None:
    draws = [made.draw for _, made in commands(run("Backwards"), Submit) if made.member == 0]
    assert draws[:4] == [3, 5, 7, 9]
    assert not {0, 1, 2} & set(draws)


def test_a_cap_truncates_and_a_truncated_response_earns_nothing() -> None:
    log = run("Capped", workload__response_tokens=SPREAD)
    made = Counter()
    rewards = {}
    for row in log.decisions:
        if isinstance(row.event, Finished):
            made[row.event.sample] += row.event.tokens
        if isinstance(row.event, Scored):
            rewards[row.event.sample] = row.event.reward
    assert max(made.values()) == 20
    cut = [sample for sample, tokens in made.items() if tokens == 20]
    assert cut
    ends = {row.event.sample: row.event.reason for row in log.decisions if isinstance(row.event, Finished)}
    assert all(rewards[sample] == 0.0 for sample in cut if ends[sample] == "chunk" and sample in rewards)
    assert any(reward == 1.0 for reward in rewards.values())


def test_pruned_samples_are_cut_and_booked() -> None:
    log = run("Pruner", workload__response_tokens={"law": "uniform", "low_tokens": 10, "high_tokens": 60})
    notices = [row.event for row in log.decisions if isinstance(row.event, Noticed)]
    assert {event.tokens for event in notices} == {8, 16}
    outcomes = Counter(row.outcome for row in log.final)
    assert outcomes["pruned"] > 0
    assert outcomes["trained"] > 0


def test_truncated_samples_end_at_the_mark_are_scored_and_trained_on() -> None:
    log = run("Cutter", workload__response_tokens={"law": "uniform", "low_tokens": 10, "high_tokens": 60})
    cuts = {cut.sample: cut.tokens for row in log.decisions if isinstance(row.event, Aborted) for cut in row.event.cuts}
    assert set(cuts.values()) <= {
        4,
        11,
        12,
        19,
        20,
    }  # At the mark; a sibling may be a step behind. The next one is lost.
    outcomes = {row.sample: row.outcome for row in log.final}
    assert not set(outcomes.values()) & {"pruned", "dropped_surplus", "filtered"}
    assert {len(batch) for batch in batches(log)} == {12}
    rewards = {row.event.sample: row.event.reward for row in log.decisions if isinstance(row.event, Scored)}
    assert all(rewards[sample] == 0.0 for sample in cuts if outcomes[sample] == "trained")
    assert any(rewards.values())


def test_a_response_that_ends_before_it_is_cut_is_whole() -> None:
    """A call told to end at the same boundary as its own end keeps its reward."""
    log = run("Cutter", workload__response_tokens=SPREAD)
    aborted = {made for _, command in commands(log, Abort) for made in command.samples}
    cut = {cut.sample for row in log.decisions if isinstance(row.event, Aborted) for cut in row.event.cuts}
    ended = {row.event.sample for row in log.decisions if isinstance(row.event, Finished)}
    assert cut <= aborted
    assert not cut & ended
    scored = [row.event.sample for row in log.decisions if isinstance(row.event, Scored)]
    assert len(scored) == len(set(scored))


def test_caps_and_watches_go_through_turns() -> None:
    for part in ("Capped", "Pruner", "Cutter"):
        log = run(part, **AGENTS)
        assert sum(ledger_tokens(log).values()) == log.generated_tokens


def test_every_sample_that_ended_is_scored_once() -> None:
    log = run("TwoWaves")
    asked = [made.sample for _, made in commands(log, Score)]
    assert len(asked) == len(set(asked))
    assert all(row.event.reward in (0.0, 1.0) for row in log.decisions if isinstance(row.event, Scored))


def test_a_round_that_later_steps_fill_never_replaces_what_was_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    keeps = {"use": "end-round", "keeps_unfinished": True, "keeps_surplus": True}
    policy = preset("slime-april", allocation={"use": "dapo"}, batching={"use": "exact-target"}, leftovers=keeps)
    path, found, allowed = fault(policy, **LEARNING)
    assert (path, found) == ("policy.parts.batching.use", "exact-target")
    assert "rejects" in allowed
    does_stall(policy, LEARNING, monkeypatch)


@pytest.mark.parametrize("use", ["xrpo", "mc-grpo"])
def test_a_lag_in_samples_is_used_up_by_waves_and_by_larger_groups(use: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = preset("pipelinerl", {"max_lag": 3}, allocation={"use": use})
    path, found, allowed = fault(policy, **LEARNING)
    assert (path, found) == ("policy.parts.allocation.use", use)
    assert "groups of workload.group_size at once" in allowed
    does_stall(policy, LEARNING, monkeypatch)


def strategy(use: str, preset_name: str = "sync-colocated", **changes: Any) -> RunLog:
    policy = preset(preset_name, PRESETS[preset_name], allocation={"use": use})
    return ran(policy, **{**LEARNING, "workload__group_size": 8, "run__steps": 12, **changes})


@pytest.mark.parametrize(("use", "size", "first"), [("xrpo", 8, 4), ("pilot-commit", 8, 2), ("vigor", 9, 3)])
@pytest.mark.parametrize("preset_name", ["sync-colocated", "one-step-off", "areal"])
def test_waves_of_a_batch_share_out_its_samples_and_wait_for_each_other(
    use: str, size: int, first: int, preset_name: str
) -> None:
    log = strategy(use, preset_name, workload__group_size=size, workload__reward={"latency_seconds": 0.1})
    begun: dict[int, int] = {}
    running: Counter[int] = Counter()
    later = 0
    for row in log.decisions[:-1]:
        if isinstance(row.event, Scored):
            running[begun[row.event.sample]] -= 1
        at_rest = {step for step, count in running.items() if not count}
        for made in row.commands:
            if isinstance(made, Submit) and made.sample not in begun:
                begun[made.sample] = step = made.draw // 3
                running[step] += 1
                assert made.member < first or step in at_rest
                later += made.member >= first
    spent = Counter(begun.values())
    assert later > 0
    assert max(spent.values()) == 3 * size
    assert use != "xrpo" or {spent[step] for step in range(12)} == {3 * size}


@pytest.mark.parametrize("use", ["greso", "depo", "sgpo"])
def test_prompts_that_are_solved_are_sampled_less_often(use: str) -> None:
    easy = {"population": {"mean_success": 0.9, "spread": 4.0, "persistence": 1.0}, "curve": {"asymptote": 0.95}}
    log = strategy(use, learning=easy, workload__dataset_prompts=12, run__steps=16)
    begun = {made.draw for _, made in commands(log, Submit)}
    assert max(begun) + 1 > len(begun) + 6  # draws that were passed over


def test_rounds_of_dynamic_sampling_are_judged_when_their_last_response_has_come() -> None:
    parts = {
        "admission": {"use": "rounds", "gen_batch_size": 4},
        "allocation": {"use": "dapo-rounds"},
        "leftovers": {"use": "end-round", "keeps_unfinished": False, "keeps_surplus": False},
    }
    log = ran({"preset": "sync-colocated", "parts": parts}, **LEARNING)
    under_way: set[int] = set()
    for row in log.decisions:
        if isinstance(row.event, Scored):
            under_way.discard(row.event.sample)
        made = {command.sample for command in row.commands if isinstance(command, Submit)}
        if made and isinstance(row.event, Scored):
            assert not under_way, "a round begins when nothing of the last one runs"
            assert len(made) == 4 * 4
        if any(isinstance(command, SetRole) for command in row.commands):
            assert not under_way
        under_way |= made
    assert Counter(row.outcome for row in log.final)["dropped_surplus"] > 0


@pytest.mark.parametrize(
    ("policy", "updates"),
    [
        ({"preset": "sync-colocated"}, 2),
        ({"preset": "verl-fully-async-stale", "trigger_parameter_sync_step": 3}, 3),
    ],
    ids=["a step's own", "of local batches"],
)
def test_learning_counts_the_updates_that_are_made(
    policy: dict[str, Any], updates: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    trained = LearningDynamics.trained

    def noted(course: LearningDynamics, batch: Sequence[TrainedSample], updates: int, epochs: int) -> Progress:
        told.append(updates)
        return trained(course, batch, updates, epochs)

    monkeypatch.setattr(LearningDynamics, "trained", noted)
    own = {} if updates == 3 else {"trainer__updates_per_step": updates}
    ran(policy, **{**LEARNING, **own})
    assert set(told) == {updates}


DAPO = {"preset": "sync-colocated", "parts": {"allocation": {"use": "dapo"}}}
TASK = {"trainer": "torch", "task": {"name": "successor"}}


def test_deciding_by_rewards_needs_somebody_who_gives_them() -> None:
    with pytest.raises(ResolveError) as caught:
        resolve(scenario(DAPO))
    assert caught.value.path == "learning"
    resolve(scenario(DAPO, live=TASK))


def test_a_task_gives_no_rewards_to_simulated_samples() -> None:
    with pytest.raises(ParameterError, match="simulated samples earn nothing"):
        simulate(resolve(scenario(DAPO, live=TASK)))
