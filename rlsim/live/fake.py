"""An engine without a model: the simulated replica behind the protocol of a live one.

What it does at an instant, and in which order, is what the simulated fleet does; so a fake live run is a simulation
made of asyncio tasks, and whatever the two do differently is the executor's doing.

Components of which little or nothing is real: fake engines, and trainer, tools and rewards paced by the costs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from rlsim.core.log import ENGINE_COUNTS, WindowRow
from rlsim.engine.replica import Replica
from rlsim.engine.requests import Request
from rlsim.executor.driver import WAKES
from rlsim.executor.system import System
from rlsim.executor.trajectories import Calls
from rlsim.live.clock import LiveClock, LiveTimer
from rlsim.live.components import LiveComponents, Pace
from rlsim.live.paced import PacedRewards, PacedTools, PacedTrainer
from rlsim.live.protocols import Call, CallOutput, EngineLostError, Marked, Record, Weights


class FakeEngine:
    """One replica on the run's clock."""

    def __init__(self, replica: Replica, clock: LiveClock) -> None:
        self._replica, self._clock = replica, clock
        self._timer: LiveTimer | None = None
        self._paused = self._waking = self._lost = False
        self._at_boundary: list[asyncio.Future[None]] = []
        self._ends: dict[int, asyncio.Future[str]] = {}
        self._windows: list[WindowRow] = []
        self._marked: Marked = lambda request, made_tokens: None

    def set_marked(self, marked: Marked) -> None:
        """Tell ``marked`` when a call comes to one of its marks."""
        self._marked = marked

    async def start(self) -> None:
        """Nothing to get ready."""

    # -- calls ----------------------------------------------------------------------------------------

    async def generate(self, call: Call, output: CallOutput) -> None:
        self._check()
        request = call.request
        end: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._ends[call.sample] = end
        wants_cut = self._replica.submit(request)
        if self._timer is None:
            self._wake_soon()
        elif wants_cut:
            self._cut()
        try:
            output.reason = await end  # type: ignore[assignment]
        finally:
            self._fill(output, request)

    def _fill(self, output: CallOutput, request: Request) -> None:
        output.segments, output.first_token_at = tuple(request.segments), request.first_token
        output.undelivered_tokens = request.lost_tokens

    async def abort(self, samples: Sequence[int]) -> None:
        """End calls at the next boundary, without what the step under way makes for them."""
        self._check()
        self._replica.leave(samples if self._timer is not None else ())
        await self._quiet()
        for request in self._replica.abort(samples):
            self._end(request, "abort")

    def _end(self, request: Request, reason: str) -> None:
        end = self._ends.pop(request.sample)
        if not end.done():
            end.set_result(reason)

    # -- weights --------------------------------------------------------------------------------------

    async def pause(self) -> None:
        self._check()
        self._paused = True
        await self._quiet()

    async def resume(self) -> None:
        self._check()
        self._paused = False
        self._wake_soon()

    async def load(self, weights: Weights, reset: bool) -> int:
        self._check()
        if reset:
            self._replica.reset()
            for request in self._replica.requests():
                request.restored_tokens = 0
        self._replica.set_version(weights.version)
        return self._replica.version

    async def sleep(self) -> None:
        """KV is lost."""
        self._check()
        self._replica.reset()

    async def wake(self) -> None:
        self._check()

    async def close(self) -> Record:
        """Stop with the steps done by now."""
        for request in self._halt():
            self._end(request, "abort")
        ranks = self._replica.ranks
        sampled, preemptions = sum(rank.decoded_tokens for rank in ranks), sum(rank.preemptions for rank in ranks)
        counts = {name: sum(getattr(rank, name) for rank in ranks) for name in ENGINE_COUNTS}
        counts["rank_steps"] = sum(rank.step for rank in ranks)
        return Record(self._windows, sampled, preemptions, counts=counts)

    def lose(self) -> None:
        """Die as a killed process does: what the steps done by now have made has arrived, and nothing else will."""
        if self._lost:
            return
        self._lost = True
        waiting: list[asyncio.Future[Any]] = [*self._at_boundary]
        waiting += [self._ends.pop(request.sample) for request in self._halt()]
        self._at_boundary.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(EngineLostError("the fake engine was told to die"))

    def _halt(self) -> list[Request]:
        """No further step; the requests that this leaves unfinished."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            end = self._replica.stop(self._clock.now)
            if end is not None:
                self._windows.append(self._replica.window(end))
                for request in self._replica.end(end):
                    self._end(request, "stop")
        return self._replica.abort([request.sample for request in self._replica.requests()])

    def _check(self) -> None:
        if self._lost:
            raise EngineLostError("the fake engine is gone")

    # -- windows --------------------------------------------------------------------------------------

    async def _quiet(self) -> None:
        """Return when no step is under way."""
        if self._timer is None:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._at_boundary.append(waiter)
        self._cut()
        await waiter

    def _cut(self) -> None:
        if self._replica.steps > 1 and self._timer is not None:
            end = self._replica.cut(self._clock.now)
            if end is not None:
                self._timer.cancel()
                self._timer = self._clock.call_at(end, self._replica.index, self._boundary)

    def _boundary(self) -> None:
        now = self._clock.now
        self._windows.append(self._replica.window(now))
        finished = self._replica.end(now)
        for request, made_tokens in self._replica.marked:
            self._marked(request, made_tokens)
        for request in finished:
            self._end(request, "stop")
        self._timer = None
        if self._at_boundary:
            waiting, self._at_boundary = self._at_boundary, []
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(None)
            self._clock.call_at(now, self._replica.index, self._go_on)
        elif not self._paused:
            self._begin()

    def _go_on(self) -> None:
        """After what waited for the boundary, and before the controller hears of it."""
        if self._timer is None and not self._paused:
            self._begin()

    def _begin(self) -> None:
        if self._lost:
            return
        end = self._replica.begin(self._clock.now)
        if end is not None:
            self._timer = self._clock.call_at(end, self._replica.index, self._boundary)

    def _wake_soon(self) -> None:
        if not self._waking:
            self._waking = True
            self._clock.call_at(self._clock.now, WAKES + self._replica.index, self._wake)

    def _wake(self) -> None:
        self._waking = False
        self._go_on()


def fake_components(system: System, clock: LiveClock) -> LiveComponents:
    """Fake engines, and all else paced by the system's costs."""
    versions = [0] * len(system.replicas)
    calls = Calls(system, versions.__getitem__)
    calls.set_lengths(system.replicas)
    return LiveComponents(
        [FakeEngine(replica, clock) for replica in system.replicas],
        PacedTrainer(clock, system, calls.lengths),
        calls,
        versions,
        paced_tools(calls, clock),
        paced_rewards(calls, clock),
        pace=pace_of(system),
    )


def pace_of(system: System) -> Pace:
    """Publication and role switches by the system's costs."""
    return Pace(system.sync_ticks, system.to_training_ticks, system.to_rollout_ticks, system.pull_time)


def paced_tools(calls: Calls, clock: LiveClock) -> PacedTools:
    """Tools of the workload's latencies and output lengths."""
    workload, trajectories = calls.system.workload, calls.trajectories
    return PacedTools(
        clock,
        lambda command: workload.tool_latency_seconds(*trajectories[command.sample].key, command.turn),
        lambda command: range(workload.tool_output_tokens(*trajectories[command.sample].key, command.turn)),
    )


def paced_rewards(calls: Calls, clock: LiveClock) -> PacedRewards:
    """Scoring of the workload's latencies."""
    workload, trajectories = calls.system.workload, calls.trajectories
    return PacedRewards(clock, lambda command: workload.reward_latency_seconds(*trajectories[command.sample].key))
