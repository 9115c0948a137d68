"""The live world: carries out a controller's commands with engines and a trainer, and tells it what happened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rlsim.controller import Controller
from rlsim.core.commands import Abort, CallTool, Score, SetRole, Submit, Sync, Train
from rlsim.core.errors import DeadlockError, RlsimError
from rlsim.core.events import Cut, Noticed, Scored, ToolReturned
from rlsim.core.log import RunLog
from rlsim.core.ticks import Ticks
from rlsim.engine.requests import Request
from rlsim.executor.driver import Driver, Journal
from rlsim.executor.system import System
from rlsim.executor.termination import Budget, cut_of
from rlsim.live.clock import LiveClock
from rlsim.live.components import NO_REWARD, LiveComponents
from rlsim.live.fleet import LiveFleet, settled
from rlsim.live.pool import WorkerPool
from rlsim.live.protocols import EngineLostError, Record, TellsMarks, TrainerLostError
from rlsim.live.running import Running
from rlsim.live.signals import OVERLAP
from rlsim.live.texts import PartialResponse
from rlsim.live.training import TrainerDriver
from rlsim.policies.allocation.estimators import SOLVED

LAST_REPLIES_SECONDS = 1.0
"""Real time that commands have to be carried out once the run is over."""


@dataclass(slots=True)
class Ending:
    """How a run ended."""

    log: RunLog
    records: list[Record]
    fault: Exception | None = None
    """What stopped it before its last step; None where nothing did. A mistake in the program is no ``RlsimError``."""
    unserved: dict[str, tuple[dict[str, int], str]] = field(default_factory=dict)
    """Tool calls and scorings that came to nothing, by outcome, and what the first one said."""


class Execution:
    """One live run of one controller."""

    def __init__(
        self, controller: Controller, system: System, clock: LiveClock, components: LiveComponents, journal: Journal
    ) -> None:
        self._components, self._calls = components, components.calls
        self._driver = Driver(controller, components.calls, clock, self, journal)
        self.log = log = self._driver.log
        self._fleet = LiveFleet(clock, components.engines, components.versions, log, self)
        if components.texts is not None:
            components.texts.so_far = self._fleet.so_far
        for engine in components.engines:
            if isinstance(engine, TellsMarks):
                engine.set_marked(self._marked)
        self._trainer = TrainerDriver(clock, system, self._fleet, log, components)
        limits = components.limits
        self._tools = WorkerPool(
            clock, log, "tool", system.environments, limits.tool_timeout_seconds, limits.tool_retries
        )
        self._rewards = WorkerPool(
            clock, log, "reward", system.reward_workers, limits.reward_timeout_seconds, limits.reward_retries
        )
        self._work: set[asyncio.Task[None]] = set()
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, steps: int, max_seconds: float | None = None, budget: Budget | None = None) -> Ending:
        """Run until ``steps`` training iterations have ended, or the first that uses up the budget.

        Or until something stops it; always closes what it started.
        """
        asyncio.get_running_loop().set_exception_handler(self._callback_broke)
        self._driver.start(steps, max_seconds, budget)
        try:
            await self._over
        except asyncio.CancelledError:
            await self._close()
            raise
        records, faults = await self._close()
        unserved = {pool.what: (dict(pool.faults), pool.first_fault) for pool in (self._tools, self._rewards)}
        return Ending(self.log, records, self._driver.fault or next(iter(faults), None), unserved)

    def stop(self, fault: RlsimError) -> None:
        """End the run as soon as what is under way can be put away: an interruption from outside."""
        self._driver.stop(fault)

    def stopped(self) -> None:
        """Let ``run`` go on to close what it started."""
        if not self._over.done():
            self._over.set_result(None)

    def quiet(self) -> None:
        """Stop when nothing is owed to the controller, or timers are all that is left and lead to nothing."""
        timers = self._driver.timers
        if not (timers.in_vain or timers.idle):
            return
        lost, engines = sorted(self._fleet.gone), len(self._components.engines)
        report = self._driver.deadlock(self._fleet.calls)
        fault: RlsimError = DeadlockError(report)
        if len(lost) == engines:
            fault = EngineLostError(f"no replica is left: all {engines} were lost")
        elif lost:
            names = ", ".join(map(str, lost))
            fault = EngineLostError(f"the policy cannot go on without the replicas that were lost ({names})\n{report}")
        self._driver.stop(fault)

    # -- what runs beside the controller --------------------------------------------------------------

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        """Carry out a command beside everything else; what it raises ends the run."""
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        task.add_done_callback(self.broken)

    def broken(self, task: asyncio.Task[None]) -> None:
        """A task is over; the loss of the trainer is an event, anything else that it raised ends the run."""
        fault = None if task.cancelled() else task.exception()
        if isinstance(fault, TrainerLostError):
            self._driver.trainer_lost(TrainerLostError(f"the trainer is gone: {fault}"))
        elif fault is not None:
            self._driver.stop(fault if isinstance(fault, Exception) else RuntimeError(repr(fault)))

    def _callback_broke(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Something on the clock raised, the driver included: without this the run would wait for ever."""
        fault = context.get("exception")
        if "handle" in context and isinstance(fault, Exception):
            self._driver.stop(fault)
        else:
            loop.default_exception_handler(context)

    # -- calls ----------------------------------------------------------------------------------------

    def prepare(self, command: Submit, request: Request) -> tuple[Ticks, Callable[[], None]]:
        """The engine's call; its way takes as long as it does."""
        call = self._components.call(command, request)
        return 0, partial(self._fleet.submit, command.replica, call)

    def ended(self, running: Running) -> None:
        components = self._components
        components.took(running)
        request = running.settle()
        if running.output.reason == "stop" and not running.call.ignore_eos:
            self._calls.stopped(request)
        finished = self._calls.ended(request, running.replica, components.accepted_tokens(running))
        components.reuse(running, finished.reused)
        self._driver.deliver(finished)

    def _marked(self, request: Request, made_tokens: int) -> None:
        """A watched call came to a mark."""
        noticed, signal = self._calls.notice(request, made_tokens), self._calls.trajectories[request.sample].signal
        response = self._components.partial_response(request.sample, request.context_tokens + made_tokens)
        if response is None:
            self._driver.deliver(noticed)
        elif signal == OVERLAP:
            self._do(self._judged(noticed, response))
        else:
            self._driver.deliver(self._components.read(signal, noticed, response))

    async def _judged(self, noticed: Noticed, response: PartialResponse) -> None:
        """A notice that waits for the teacher; the call goes on meanwhile."""
        self._driver.deliver(await self._components.judged(noticed, response))

    def abort(self, command: Abort, early: list[Cut]) -> None:
        """End calls that are under way now."""
        self._do(self._aborted(self._fleet.stop(command.samples), early))

    async def _aborted(self, stopped: list[Running], early: list[Cut]) -> None:
        self._driver.aborted([*early, *map(self._cut, await self._fleet.abort(stopped))])

    def _cut(self, running: Running) -> Cut:
        self._components.took(running)
        return cut_of(running.settle(), running.replica)

    def lost(self, replica: int, cut: list[Running]) -> None:
        """A replica is gone, and with it these calls."""
        self._driver.lost(replica, [self._cut(running) for running in cut])

    def refused(self, fault: Exception) -> None:
        """An engine refuses a call, or breaks what it promised: the run ends."""
        self._driver.stop(fault)

    # -- trainer, tools and rewards -------------------------------------------------------------------

    def train(self, command: Train) -> None:
        """Train; texts of samples that nobody needs any more go."""

        async def work() -> None:
            learnt = await self._trainer.train(command)
            for sample in self._driver.trained(command, learnt.ess):
                self._components.forget(sample)

        self._do(work())

    def sync(self, command: Sync) -> None:

        async def work() -> None:
            self._driver.synced(command, await self._trainer.sync(command))

        self._do(work())

    def set_role(self, command: SetRole) -> None:

        async def work() -> None:
            await self._trainer.set_role(command)
            self._driver.role_set(command)

        self._do(work())

    def call_tool(self, command: CallTool) -> None:
        """Call a tool; its answer is cut so that the next turn can still begin."""

        async def work() -> None:
            served = await self._tools.serve(command.sample, lambda: self._components.tool(command))
            answer = self._components.tool_said(command, served)[: self._calls.room_tokens(command.sample)]
            self._components.add_given(command.sample, answer)
            self._driver.deliver(ToolReturned(command.sample, len(answer), served.outcome))

        self._do(work())

    def score(self, command: Score) -> None:
        self._do(self._score(command))

    async def _score(self, command: Score) -> None:
        components, sample = self._components, command.sample
        served = await self._rewards.serve(sample, lambda: components.score(command))
        done = served.outcome == "done"
        reward = components.rewarded(sample, served.value if done else NO_REWARD, self._calls.reward(sample))
        if reward is not None:
            complete = done and self._calls.trajectories[sample].complete
            components.readings.came_out(sample, reward > SOLVED if complete else None)
        self._driver.deliver(Scored(sample, served.outcome, reward))

    # -- the end --------------------------------------------------------------------------------------

    async def _close(self) -> tuple[list[Record], list[Exception]]:
        """Stop everything and settle the books; what the engines noted, and what went wrong in stopping."""
        self._driver.stamp_end()
        self._trainer.close()
        records, under_way, faults = await self._fleet.close()
        await settled(self._work, LAST_REPLIES_SECONDS)
        faults += await self._components.close()
        for running in under_way:
            self._components.took(running)
        self._driver.settle({running.call.sample: running.made_tokens for running in under_way})
        self._count(records)
        return records, faults

    def _count(self, records: list[Record]) -> None:
        """The engines' own counts; of one that keeps none, or was lost, what it delivered stands for it."""
        log, fleet = self.log, self._fleet
        log.windows = [row for record in records for row in record.windows]
        for replica, record in enumerate(records):
            delivered = fleet.delivered_tokens[replica]
            sampled = delivered if record.sampled_tokens is None else record.sampled_tokens
            log.generated_tokens += sampled
            lost = sampled - delivered if replica in fleet.gone else fleet.undelivered_tokens[replica]
            log.undelivered_tokens += lost
            log.preemptions += record.preemptions
            for name, count in record.counts.items():
                setattr(log, name, getattr(log, name) + count)
        log.prefill_tokens = sum(row.prefill_tokens for row in log.windows)
        log.engine_steps = sum(row.steps for row in log.windows)
        log.events = len(log.decisions)
