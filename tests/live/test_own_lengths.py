"""Responses that the model ends: their reasons, their caps, and what is left of a call that was cut."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from policy_runs import scenario

from rlsim.core.events import Finished
from rlsim.core.log import RunLog
from rlsim.executor.driver import SERVICES
from rlsim.executor.run import make_controller, make_world
from rlsim.live.assemble import task_of, with_trainer, workload_of
from rlsim.live.clock import LiveClock, run_virtual
from rlsim.live.execution import Ending, Execution
from rlsim.live.fake import fake_components
from rlsim.live.protocols import Call, CallOutput, Record, Weights
from rlsim.resolve import ResolvedScenario, resolve
from rlsim.results.replay.decisions import NoJournal

CAP = 12
TOKEN_TICKS = 10**11


def length_of(call: Call) -> int:
    """What the model would say, whatever it is allowed: 5, 12, 19 or 26 tokens."""
    return 5 + 7 * (call.sample % 4)


class Model:
    """An engine whose calls end where the model ends them; a token every tenth of a second."""

    def __init__(self, clock: LiveClock) -> None:
        self._clock, self._version = clock, 0
        self._cut: dict[int, asyncio.Event] = {}
        self._said: dict[int, int] = {}
        self.asked: list[tuple[int, int, int]] = []
        """(sample, tokens allowed, tokens said before) of every call."""

    async def start(self) -> None:
        pass

    async def generate(self, call: Call, made: CallOutput) -> None:
        before = self._said.get(call.sample, 0)
        self.asked.append((call.sample, call.max_tokens, before))
        cut = self._cut[call.sample] = asyncio.Event()
        left = length_of(call) - before
        while len(made.tokens) < min(left, call.max_tokens) and not cut.is_set():
            await self._tick()
            made.tokens.append(3)
        made.log_probs = [-1.0] * len(made.tokens)
        made.segments = ((self._version, len(made.tokens)),) if made.tokens else ()
        self._said[call.sample] = before + len(made.tokens)
        made.reason = "abort" if cut.is_set() else "stop" if len(made.tokens) == left else "length"

    async def _tick(self) -> None:
        done = asyncio.Event()
        self._clock.call_at(self._clock.now + TOKEN_TICKS, SERVICES, done.set)
        await done.wait()

    async def abort(self, samples: Sequence[int]) -> None:
        for sample in samples:
            self._cut[sample].set()

    async def pause(self) -> None:
        pass

    async def resume(self) -> None:
        pass

    async def load(self, weights: Weights, reset: bool) -> int:
        self._version = weights.version
        return weights.version

    async def sleep(self) -> None:
        pass

    async def wake(self) -> None:
        pass

    async def close(self) -> Record:
        await self.abort(list(self._cut))
        return Record()


def planned(policy: dict[str, Any]) -> ResolvedScenario:
    responses = {"law": "uniform", "low_tokens": 1, "high_tokens": CAP, "cap_tokens": CAP}
    live = {"task": {"name": "successor"}}
    return resolve(scenario(policy, workload__response_tokens=responses, workload__prompt_tokens=2, live=live))


def lived(policy: dict[str, Any]) -> tuple[RunLog, list[Model]]:
    made = planned(policy)

    async def main(clock: LiveClock) -> tuple[Ending, list[Model]]:
        workload = workload_of(made, 0)
        world = make_world(made, workload)
        models = [Model(clock) for _ in world.replicas]
        crew = replace(fake_components(world, clock), engines=models)
        crew = with_trainer(crew, None, task_of(made.scenario.live, made.scenario.seed))
        execution = Execution(make_controller(made, workload, oracle=False), world, clock, crew, NoJournal())
        return await execution.run(made.scenario.run.steps), models

    ending, models = run_virtual(main)
    assert ending.fault is None
    return ending.log, models


@pytest.mark.parametrize(
    "policy", [{"preset": "one-step-off"}, {"preset": "areal", "max_head_offpolicyness": 1, "pause_poll_seconds": 0.0}]
)
def test_a_response_ends_where_the_model_ends_it_or_at_the_cap(policy: dict[str, Any]) -> None:
    log, _ = lived(policy)
    told: dict[int, tuple[int, str]] = {}
    for row in log.decisions:
        if isinstance(row.event, Finished):
            told[row.event.sample] = row.event.tokens, row.event.reason
    assert {sample % 4 for sample in told} == {0, 1, 2, 3}
    for sample, (tokens, reason) in told.items():
        own = 5 + 7 * (sample % 4)
        assert (tokens, reason) == (min(own, CAP), "stop" if own < CAP else "length")


def test_a_call_that_a_publication_cut_may_make_what_it_had_left() -> None:
    _, models = lived({"preset": "areal", "max_head_offpolicyness": 1, "pause_poll_seconds": 0.0})
    asked = [call for model in models for call in model.asked]
    assert any(before for _, _, before in asked), "something was cut"
    assert all(allowed == CAP - before for _, allowed, before in asked)
