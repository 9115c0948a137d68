"""What a run costs, in events: no noisy machine can blur that measure. Times are in evidence/benchmarks/scale.py."""

from __future__ import annotations

import pytest

from evidence.benchmarks.scale import CASES, once, scenario
from rlsim.core.events import Finished
from rlsim.core.log import RunLog


def rollouts(log: RunLog) -> int:
    return sum(isinstance(decision.event, Finished) for decision in log.decisions)


def test_ten_thousand_rollouts_take_two_events_each_and_no_step_of_their_own() -> None:
    _, log = once(scenario(*CASES["sync, 10,000 on 64"]), jump=True)
    assert rollouts(log) == 10_000
    assert log.generated_tokens == 25_094_053
    assert log.events == 20_365
    assert len(log.windows) == 10_425
    assert log.engine_steps == 977_520


def test_an_asynchronous_rollout_takes_about_five_events() -> None:
    """Its end, the controller, the step it waits for, its prefill, and the window that was cut for it."""
    _, log = once(scenario(*CASES["async, 6,144 in flight, 20 updates on 64"]), jump=True)
    assert len(log.iterations) == 20
    assert log.events / rollouts(log) == pytest.approx(5.1, abs=0.2)


def test_events_do_not_grow_with_tokens() -> None:
    """Ten times the tokens of every response: the same events, but for preemption and the time of updates."""
    events = []
    for scale in (1, 10):
        made = scenario(800, 8, {"preset": "sync-disaggregated"}, 1, 800, 8, length_scale=scale)
        _, log = once(made, jump=True)
        events.append(log.events)
    assert events[1] <= 1.05 * events[0]
