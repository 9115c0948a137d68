"""Callers are told of marks at the step that made the token, however the engine counts its steps."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from rlsim.core.log import RunLog
from rlsim.core.ticks import Ticks
from rlsim.engine.replica import Replica
from rlsim.engine.requests import EngineLimits, Request
from rlsim.engine.steptime import StepTime
from rlsim.executor.driver import SERVICES
from rlsim.sim.clock import SimClock
from rlsim.sim.fleet import SimFleet

Mark = tuple[Ticks, int, int]


@dataclass
class Caller:
    """Notes who came to what, and when."""

    clock: SimClock
    marks: list[Mark] = field(default_factory=list)
    ends: list[tuple[Ticks, int]] = field(default_factory=list)

    def finished(self, request: Request, replica: int) -> None:
        self.ends.append((self.clock.now, request.sample))

    def marked(self, request: Request, made_tokens: int) -> None:
        self.marks.append((self.clock.now, request.sample, made_tokens))


def lived(seed: int, jump: bool) -> tuple[Caller, list[Request], list[int]]:
    """An engine so short of blocks and seats that preemption is common, with marks on most requests."""
    rng, clock = random.Random(seed), SimClock()
    limits = EngineLimits(rng.randint(1, 5), 16, 64, 4, rng.randint(16, 24), rng.random() < 0.5)
    law = StepTime(list(range(10, 27)), [rng.randint(0, 3)] * 6, [1] * 17, 0)
    caller = Caller(clock)
    fleet = SimFleet(clock, [Replica(0, limits, law, jump=jump)], RunLog(), caller)
    requests = [Request(sample, sample, 4, rng.randint(4, 12), rng.randint(1, 30)) for sample in range(12)]
    aborted = rng.sample(range(12), 2)
    for request in requests:
        request.marks = tuple(sorted(rng.sample(range(2, 34), rng.randint(0, 5))))
        clock.at(rng.randint(0, 400), SERVICES, lambda _, made=request: fleet.submit(0, made))
    for sample in aborted:
        clock.at(rng.randint(400, 900), SERVICES, lambda _, made=sample: fleet.abort({0: [made]}, lambda cuts: None))
    clock.run()
    return caller, requests, aborted


@pytest.mark.parametrize("seed", range(60))
def test_marks_come_at_the_same_instants_jumped_and_stepped(seed: int) -> None:
    jumped, stepped = lived(seed, jump=True)[0], lived(seed, jump=False)[0]
    assert (jumped.marks, jumped.ends) == (stepped.marks, stepped.ends)


@pytest.mark.parametrize("seed", range(60))
def test_every_mark_before_the_end_is_told_once_and_in_order(seed: int) -> None:
    caller, requests, aborted = lived(seed, jump=True)
    told: dict[int, list[int]] = {}
    for _, sample, made in caller.marks:
        told.setdefault(sample, []).append(made)
    for request in requests:
        found = told.get(request.sample, [])
        assert found == sorted(set(found))
        assert all(made < request.target_tokens for made in found)
        if request.sample not in aborted:
            assert request.marks == () or request.marks[0] >= request.target_tokens


def test_some_marks_were_told_and_some_requests_preempted() -> None:
    callers = [lived(seed, jump=True) for seed in range(60)]
    assert sum(len(caller.marks) for caller, _, _ in callers) > 500
    assert any(request.preemptions for _, requests, _ in callers for request in requests)
