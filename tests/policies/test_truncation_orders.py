"""What may happen to a call between the policy's word that its response ends and the reply that it was cut."""

from __future__ import annotations

from typing import Any

import pytest
from controller_parts import fresh

from rlsim.controller import Controller
from rlsim.core.commands import Abort, Score, Submit
from rlsim.core.events import Aborted, Cut, Finished, Noticed, Scored, Started

SPECS: dict[str, dict[str, Any]] = {
    "admission": {"use": "barrier"},
    "batching": {"use": "complete-groups"},
    "update": {"use": "publish", "mode": "drain"},
    "leftovers": {"use": "keep-all"},
    "dispatch": {"use": "least-in-flight"},
    "placement": {"use": "disaggregated"},
    "allocation": {"use": "allocation_parts:Cutter"},
}
"""Groups of three; whoever comes to 12 tokens ends its group but for the last member."""


@pytest.fixture
def told() -> tuple[Controller, dict[int, Submit]]:
    """A controller that has asked for samples 0 and 1 to be cut, and the calls under way."""
    controller = fresh(SPECS, scores=True)
    calls = {made.sample: made for made in controller.handle(0, Started()) if isinstance(made, Submit)}
    assert controller.handle(1, Noticed(1, 12, 0.0)) == [Abort((0, 1))]
    assert controller.handle(2, Noticed(1, 12, 0.0)) == []
    return controller, calls


def cut(call: Submit, tokens: int) -> Cut:
    return Cut(call.sample, call.replica, tokens, ((0, tokens),) if tokens else ())


def test_what_was_made_is_scored_and_counts_as_truncated(told: tuple[Controller, dict[int, Submit]]) -> None:
    controller, calls = told
    made = controller.handle(3, Aborted((cut(calls[0], 9), cut(calls[1], 12))))
    assert [(type(one), one.sample) for one in made] == [(Score, 0), (Score, 1)]
    assert [controller.samples[number].truncated for number in range(3)] == [True, True, False]
    assert [controller.samples[number].response_tokens for number in range(3)] == [9, 12, 0]
    assert not controller.view.paused


@pytest.mark.parametrize(("reason", "truncated"), [("stop", False), ("length", False), ("tool", True), ("chunk", True)])
def test_a_call_that_ends_by_itself_before_it_is_cut(
    told: tuple[Controller, dict[int, Submit]], reason: Any, truncated: bool
) -> None:
    """Whole if it came to its end; a turn that was to go on is the last one."""
    controller, calls = told
    made = controller.handle(3, Finished(0, calls[0].replica, 9, ((0, 9),), reason, 0))
    assert [(type(one), one.sample) for one in made] == [(Score, 0)]
    assert controller.samples[0].truncated == truncated
    controller.handle(4, Aborted((cut(calls[1], 12),)))
    assert controller.samples[1].truncated


def test_a_call_that_made_nothing_goes_on(told: tuple[Controller, dict[int, Submit]]) -> None:
    controller, calls = told
    made = controller.handle(3, Aborted((cut(calls[0], 0), cut(calls[1], 12))))
    assert [one.sample for one in made if isinstance(one, Score)] == [1]
    assert controller.samples[0].state in ("running", "paused")
    assert not controller.samples[0].truncated


def test_a_group_of_truncated_members_is_complete(told: tuple[Controller, dict[int, Submit]]) -> None:
    controller, calls = told
    controller.handle(3, Aborted((cut(calls[0], 9), cut(calls[1], 12))))
    controller.handle(4, Finished(2, calls[2].replica, 30, ((0, 30),), "stop", 0))
    for number in range(3):
        controller.handle(5, Scored(number, reward=float(number == 2)))
    assert list(controller.view.ready) == [0]
    assert controller.view.ready[0].rewards == [0.0, 0.0, 1.0]
