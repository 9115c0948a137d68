"""Orders of replies that have bitten: calls, scores and tools that end while a round is being cleared."""

from __future__ import annotations

from typing import Any

import pytest
from controller_parts import PROMPT_TOKENS, fresh

from rlsim.controller import Controller
from rlsim.core.commands import Abort, SetRole, Submit, Sync, Train
from rlsim.core.events import Aborted, Cut, Finished, RoleSet, Scored, Started, Synced, ToolReturned, Trained

SLIME: dict[str, dict[str, Any]] = {
    "admission": {"use": "over-sample", "over_sampling_batch_size": 3},
    "batching": {"use": "complete-groups"},
    "update": {"use": "publish", "mode": "drain"},
    "leftovers": {"use": "end-round", "keeps_unfinished": False},
    "dispatch": {"use": "least-in-flight"},
    "placement": {"use": "colocated"},
}


def stop(call: Submit, tokens: int = 1) -> Finished:
    return Finished(call.sample, call.replica, tokens, ((0, tokens),) if tokens else (), "stop", 0)


def opened(specs: dict[str, dict[str, Any]], scores: bool = False) -> tuple[Controller, list[Submit]]:
    controller = fresh(specs, scores)
    return controller, [made for made in controller.handle(0, Started()) if isinstance(made, Submit)]


def test_a_call_that_ends_between_abort_and_aborted_keeps_its_tokens_and_its_group_is_surplus() -> None:
    controller, calls = opened(SLIME)
    for call in calls[:5]:
        controller.handle(1, stop(call))
    (abort,) = controller.handle(2, stop(calls[5]))
    assert abort == Abort((6, 7, 8))
    assert [controller.handle(3, stop(call, 5)) for call in calls[6:8]] == [[], []]
    assert controller.handle(4, stop(calls[8], 5)) == [SetRole("train")]
    assert controller.handle(5, Aborted(())) == []
    assert {sample: controller.outcomes[sample] for sample in (6, 7, 8)} == dict.fromkeys(
        (6, 7, 8), ("dropped_surplus", 5)
    )


def test_a_score_of_an_aborted_group_is_waited_for_and_then_given_up_with_it() -> None:
    controller, calls = opened(SLIME, scores=True)
    for call in calls[:7]:
        controller.handle(1, stop(call))
    for sample in range(5):
        controller.handle(2, Scored(sample))
    assert controller.handle(3, Scored(5)) == [Abort((7, 8))]
    assert controller.handle(4, Aborted(tuple(Cut(sample, 0, 0, ()) for sample in (7, 8)))) == []
    assert controller.view.trainer == "clearing"
    assert controller.handle(5, Scored(6)) == [SetRole("train")]
    assert {controller.outcomes[sample][0] for sample in (6, 7, 8)} == {"dropped_surplus"}


def test_a_tool_that_returns_while_a_round_is_cleared_waits_for_the_next_round() -> None:
    controller, calls = opened({**SLIME, "leftovers": {"use": "end-round"}})
    controller.handle(1, Finished(6, calls[6].replica, 2, ((0, 2),), "tool", 0))
    for call in calls[:6]:
        controller.handle(2, stop(call))
    controller.handle(3, Aborted(tuple(Cut(call.sample, call.replica, 1, ((0, 1),)) for call in calls[7:])))
    assert controller.handle(4, ToolReturned(6, 9)) == [SetRole("train")]
    assert list(controller.view.paused) == [6, 7, 8]
    for event in (RoleSet("train"), Trained(0), RoleSet("rollout")):
        controller.handle(5, event)
    resumed = [made for made in controller.handle(6, Synced(1)) if isinstance(made, Submit)][:3]
    assert [(made.sample, made.turn, made.made_tokens, made.context_tokens) for made in resumed] == [
        (6, 1, 0, PROMPT_TOKENS + 11),
        (7, 0, 1, PROMPT_TOKENS + 1),
        (8, 0, 1, PROMPT_TOKENS + 1),
    ]


def test_shared_engines_wake_with_new_weights_even_if_the_update_part_would_wait() -> None:
    specs = {**SLIME, "update": {"use": "publish", "mode": "drain", "every_steps": 2}}
    controller, calls = opened({**specs, "admission": {"use": "over-sample"}})
    for call in calls:
        controller.handle(1, stop(call))
    for event in (RoleSet("train"), Trained(0)):
        controller.handle(2, event)
    assert controller.handle(3, RoleSet("rollout")) == [Sync(1, "drain")]


def test_calls_of_no_tokens_end_a_batch_like_any_other() -> None:
    controller, calls = opened({**SLIME, "admission": {"use": "over-sample"}})
    for call in calls[:-1]:
        assert controller.handle(1, stop(call, 0)) == []
    assert controller.handle(1, stop(calls[-1], 0)) == [SetRole("train")]


@pytest.mark.parametrize("seats", [1, 2])
def test_a_group_begun_at_the_end_of_its_lag_is_let_in_to_its_last_member(seats: int) -> None:
    admission = {"use": "free-running", "llm_max_rollouts": seats, "max_lag_samples": 0}
    specs = {**SLIME, "admission": admission, "leftovers": {"use": "keep-all"}, "placement": {"use": "disaggregated"}}
    controller, calls = opened(specs)
    ended: list[int] = []
    while calls:
        call = calls.pop(0)
        ended.append(call.sample)
        made = controller.handle(1, stop(call))
        calls += [one for one in made if isinstance(one, Submit)]
    assert ended == list(range(6))
    assert controller.view.gate == "staleness"
    assert made == [Train(0, tuple(range(6)))]
