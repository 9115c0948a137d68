"""What no live run can give is refused by name before anything starts."""

from __future__ import annotations

from typing import Any

import pytest
from policy_runs import POLICIES, scenario

from rlsim.core.errors import ParameterError
from rlsim.live.assemble import trainer_refusals
from rlsim.live.backends import Fake, backend
from rlsim.live.run import oracles, refuse
from rlsim.resolve import resolve


def test_presets_that_know_lengths_still_to_come_are_these() -> None:
    knowing = [
        preset for preset in POLICIES if list(oracles(resolve(scenario({"preset": preset, **POLICIES[preset]}))))
    ]
    assert knowing == ["tailsieve"]


def test_an_oracle_is_refused_with_the_key_of_its_part() -> None:
    longest_first = {"use": "longest-first", "predictor": "oracle"}
    made = resolve(
        scenario(
            {"preset": "one-step-off", "parts": {"ordering": longest_first}}, rollout__scheduling_policy="priority"
        )
    )
    with pytest.raises(ParameterError, match=r"policy\.parts\.ordering.*cannot tell lengths still to come"):
        refuse(made, Fake())


def test_a_predictor_from_finished_mates_is_not_refused() -> None:
    longest_first = {"use": "longest-first", "predictor": "siblings-mean"}
    made = resolve(
        scenario(
            {"preset": "one-step-off", "parts": {"ordering": longest_first}}, rollout__scheduling_policy="priority"
        )
    )
    refuse(made, Fake())


def test_an_unknown_engine_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ParameterError, match="did you mean 'vllm'"):
        backend("vlm")


@pytest.mark.parametrize(
    ("path", "changes"),
    [
        ("trainer.packing", {"trainer__packing": "padded"}),
        ("trainer.critic", {"trainer__critic": True}),
        ("workload.response_tokens.cap_tokens", {"live": {"task": {"name": "counting", "length": 60}}}),
        ("live.trainer", {"live": {"task": {"name": "successor"}, "trainer": "paced"}}),
    ],
)
def test_what_the_real_trainer_does_not_do_is_refused(path: str, changes: dict[str, Any]) -> None:
    """Responses of the small scenario have at most 60 tokens, and an answer of 60 has an end beside them."""
    assert [error.path for error in trainer_refusals(resolve(scenario({"preset": "one-step-off"}, **changes)))] == [
        path
    ]


def test_the_real_trainer_takes_what_it_can_do() -> None:
    fits = {"task": {"name": "counting", "length": 59}}
    assert trainer_refusals(resolve(scenario({"preset": "one-step-off"}, live=fits))) == []
