"""The live executor: carries out a controller's commands with engines and a trainer, and tells it what happened.

As in simulation, everything that happens reaches the controller through one inbox, and ``now`` is stamped where an
event is taken from it. A decision is noted in the journal before its commands are carried out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol

from rlsim.controller import Controller
from rlsim.core.commands import Abort, CallTool, Score, SetRole, Submit, Sync, Train, WakeAt
from rlsim.core.errors import DeadlockError, RlsimError
from rlsim.core.events import (
    Aborted,
    Cut,
    Event,
    Finished,
    Noticed,
    ReplicaLost,
    RoleSet,
    Scored,
    Started,
    Synced,
    ToolReturned,
    Trained,
    TrainerLost,
    Woke,
)
from rlsim.core.log import Decision, GateRow, IterationRow, RunLog
from rlsim.core.ticks import to_ticks
from rlsim.engine.requests import Request
from rlsim.executor.system import System
from rlsim.executor.termination import SECONDS, Budget, Horizon, Timers, cut_of, deadlock_report, final_rows
from rlsim.live.clock import CONTROLLER, SERVICES, LiveClock
from rlsim.live.components import NO_REWARD, LiveComponents
from rlsim.live.fleet import LiveFleet, settled
from rlsim.live.pool import WorkerPool
from rlsim.live.protocols import Call, EngineLostError, Record, TellsMarks, TrainerLostError
from rlsim.live.running import Running
from rlsim.live.signals import OVERLAP
from rlsim.live.texts import Seen
from rlsim.live.training import TrainerDriver
from rlsim.policies.allocation.estimators import SOLVED

LAST_REPLIES_SECONDS = 1.0
"""Real time that commands have to be carried out once the run is over."""


class Journal(Protocol):
    """Where decisions are noted as they are taken, so that a broken run can be replayed as far as it came."""

    def note(self, decision: Decision) -> None:
        """Note one; ``RlsimError`` when it cannot be kept."""
        ...


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
        self, controller: Controller, world: System, clock: LiveClock, crew: LiveComponents, journal: Journal
    ) -> None:
        self.log = RunLog()
        self._controller, self._world, self._clock, self._crew, self._journal = controller, world, clock, crew, journal
        self._fleet = LiveFleet(clock, crew.engines, self.log, self)
        self._calls = crew.calls(lambda replica: self._fleet.versions[replica])
        if self._calls.lengths_drift:
            for replica in world.replicas:
                replica.set_length(self._calls.length)
        if crew.texts is not None:
            crew.texts.so_far = self._fleet.so_far
        for engine in crew.engines:
            if isinstance(engine, TellsMarks):
                engine.set_marked(self._marked)
        self._trainer = TrainerDriver(clock, world, self._fleet, self.log, crew, self._calls)
        limits = crew.limits
        self._tools = WorkerPool(
            clock, self.log, "tool", world.environments, limits.tool_timeout_seconds, limits.tool_retries
        )
        self._rewards = WorkerPool(
            clock, self.log, "reward", world.reward_workers, limits.reward_timeout_seconds, limits.reward_retries
        )
        self._restoring: dict[int, Request] = {}
        self._inbox: deque[Event] = deque()
        self._timers = Timers()
        self._attended = False
        self._gate: str | None = None
        self._horizon = Horizon(controller, 0)
        self._trainer_said = ""
        self._work: set[asyncio.Task[None]] = set()
        self._over: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self._execute: dict[type, Callable[[Any], None]] = {
            Submit: self._submit,
            Abort: self._abort,
            Train: lambda command: self._do(self._train(command)),
            Sync: lambda command: self._do(self._sync(command)),
            SetRole: lambda command: self._do(self._set_role(command)),
            CallTool: lambda command: self._do(self._call_tool(command)),
            Score: lambda command: self._do(self._score(command)),
            WakeAt: self._wake_at,
        }

    async def run(self, steps: int, max_seconds: float | None = None, budget: Budget | None = None) -> Ending:
        """Run until ``steps`` training iterations have ended, or the first that uses up the budget.

        Or until something stops it; always closes what it started.
        """
        self._horizon = Horizon(self._controller, steps, budget)
        if max_seconds is not None:
            self._clock.at(to_ticks(max_seconds), CONTROLLER, self._out_of_time)
        asyncio.get_running_loop().set_exception_handler(self._callback_broke)
        self._deliver(Started())
        try:
            fault = await self._over
        except asyncio.CancelledError:
            await self._close()
            raise
        records, faults = await self._close()
        unserved = {pool.what: (dict(pool.faults), pool.first_fault) for pool in (self._tools, self._rewards)}
        return Ending(self.log, records, fault or next(iter(faults), None), unserved)

    def stop(self, fault: RlsimError) -> None:
        """End the run as soon as what is under way can be put away: an interruption from outside."""
        self._stop(fault)

    def _out_of_time(self) -> None:
        self._horizon.ended_by = self._horizon.ended_by or SECONDS
        self._stop(None)

    def _stop(self, fault: Exception | None) -> None:
        if not self._over.done():
            self._over.set_result(fault)

    # -- towards the controller -----------------------------------------------------------------------

    def ended(self, running: Running) -> None:
        """A call ended by itself."""
        self._crew.took(running)
        request = running.settle()
        if running.made.reason == "stop" and not running.call.ignore_eos:
            self._calls.stopped(request)
        is_real = self._world.lesson is None
        accepted_tokens = self._crew.accepted_tokens(running) if is_real else None
        finished = self._calls.ended(request, running.replica, accepted_tokens)
        self._crew.reuse(running, finished.reused)
        self._deliver(finished)

    def _marked(self, request: Request, made_tokens: int) -> None:
        """A watched call came to a mark."""
        noticed, signal = self._calls.notice(request, made_tokens), self._calls.trajectories[request.sample].signal
        seen = self._crew.seen(request.sample, request.context_tokens + made_tokens)
        if seen is None or self._world.lesson is not None:
            self._deliver(noticed)
        elif signal == OVERLAP:
            self._do(self._judged(noticed, seen))
        else:
            self._deliver(self._crew.read(signal, noticed, seen))

    async def _judged(self, noticed: Noticed, seen: Seen) -> None:
        """A notice that waits for the teacher; the call goes on meanwhile."""
        self._deliver(await self._crew.judged(noticed, seen))

    def lost(self, replica: int, cut: list[Running]) -> None:
        """A replica is gone, and with it these calls."""
        self._deliver(ReplicaLost(replica, tuple(self._cut(running) for running in cut)))

    def refused(self, fault: Exception) -> None:
        """An engine refuses a call, or breaks what it promised: the run ends."""
        self._stop(fault)

    def _cut(self, running: Running) -> Cut:
        self._crew.took(running)
        cut = cut_of(running.settle(), running.replica)
        self._calls.cut(cut)
        return cut

    def _deliver(self, event: Event) -> None:
        self._inbox.append(event)
        if not self._attended:
            self._attended = True
            self._clock.at(self._clock.now, CONTROLLER, self._attend)

    def _attend(self) -> None:
        self._attended = False
        try:
            while self._inbox and not self._over.done():
                self._decide(self._inbox.popleft())
        except Exception as fault:
            self._stop(fault)
        if not self._over.done() and (self._timers.in_vain or self._timers.idle):
            self._stop(self._stuck())

    def _decide(self, event: Event) -> None:
        controller, log, now = self._controller, self.log, self._clock.now
        iterations = controller.iterations
        commands = tuple(controller.handle(now, event))
        self._horizon.told(now, event)
        decision = Decision(now, event, commands)
        log.decisions.append(decision)
        log.last_commands_idle = True
        if controller.iterations > iterations:
            log.iterations.append(IterationRow(iterations, now, controller.view.version))
        if controller.view.gate != self._gate:
            self._gate = controller.view.gate
            log.gates.append(GateRow(now, self._gate))
        self._journal.note(decision)
        if self._horizon.ended_by:
            self._stop(None)
            return
        log.last_commands_idle = False
        self._horizon.asked(commands)
        for command in commands:
            self._execute[type(command)](command)
        self._timers.count(event, commands)
        if isinstance(event, TrainerLost):
            self._stop(TrainerLostError(f"the trainer is gone: {self._trainer_said}"))

    def _stuck(self) -> RlsimError:
        lost, engines = sorted(self._fleet.gone), len(self._crew.engines)
        if len(lost) == engines:
            return EngineLostError(f"no replica is left: all {engines} were lost")
        report = deadlock_report(self._clock.now, self._controller, self.log, self._horizon.steps, self._fleet.calls)
        if lost:
            names = ", ".join(map(str, lost))
            return EngineLostError(f"the policy cannot go on without the replicas that were lost ({names})\n{report}")
        return DeadlockError(report)

    # -- commands -------------------------------------------------------------------------------------

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
            self._trainer_said = str(fault)
            self._deliver(TrainerLost())
        elif fault is not None:
            self._stop(fault if isinstance(fault, Exception) else RuntimeError(repr(fault)))

    def _callback_broke(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Something on the clock raised: without it the run would wait for ever."""
        fault = context.get("exception")
        if "handle" in context and isinstance(fault, Exception):
            self._stop(fault)
        else:
            loop.default_exception_handler(context)

    def _submit(self, command: Submit) -> None:
        self._calls.note_odds(command, self._controller.view.version)
        request = self._calls.request(command, self._clock.now)
        call = self._crew.call(command, request)
        source = self._calls.trajectories[command.sample].replica
        ticks = self._world.bring_kv_ticks(request.restored_tokens, source, command)
        if ticks:
            self._restoring[command.sample] = request
            self._clock.at(self._clock.now + ticks, SERVICES, lambda: self._restored(command.replica, call))
        else:
            self._fleet.submit(command.replica, call)

    def _restored(self, replica: int, call: Call) -> None:
        if self._restoring.get(call.sample) is call.request:
            del self._restoring[call.sample]
            self._fleet.submit(replica, call)

    def _abort(self, command: Abort) -> None:
        early = [sample for sample in command.samples if sample in self._restoring]
        cuts = [cut_of(self._restoring.pop(sample), self._controller.samples[sample].replica) for sample in early]
        for cut in cuts:
            self._calls.cut(cut)
        self._do(self._aborted(self._fleet.stop(command.samples), cuts))

    async def _aborted(self, stopped: list[Running], cuts: list[Cut]) -> None:
        cuts += [self._cut(running) for running in await self._fleet.abort(stopped)]
        self._deliver(Aborted(tuple(sorted(cuts, key=lambda made: made.sample))))

    async def _train(self, command: Train) -> None:
        learnt = await self._trainer.train(command)
        ess = self._calls.ess(command.samples) if learnt.ess is None else learnt.ess
        progress = self._calls.learn(command, self._clock.now)
        if progress is not None:
            self.log.progress.append(progress)
        for sample in self._calls.release(command):
            self._crew.forget(sample)
        if command.last:
            self._calls.updates.trained()
        self._deliver(Trained(command.step, ess))

    async def _sync(self, command: Sync) -> None:
        self._calls.publishing(command)
        accepted = await self._trainer.sync(command)
        self._calls.judged(command, accepted)
        if command.mode != "keep":
            self._calls.drop_kv()
            for request in self._restoring.values():
                request.restored_tokens = 0
        self._deliver(Synced(command.version, accepted))

    async def _set_role(self, command: SetRole) -> None:
        await self._trainer.set_role(command)
        self._deliver(RoleSet(command.role))

    async def _call_tool(self, command: CallTool) -> None:
        served = await self._tools.serve(command.sample, lambda: self._crew.tool(command))
        said = self._crew.tool_said(command, served)
        given = said[: self._calls.room_tokens(command.sample)]
        self._crew.add_given(command.sample, given)
        self._deliver(ToolReturned(command.sample, len(given), served.outcome))

    async def _score(self, command: Score) -> None:
        served = await self._rewards.serve(command.sample, lambda: self._crew.score(command))
        done = served.outcome == "done"
        earned = self._calls.reward(command.sample)
        reward = self._crew.rewarded(command.sample, served.value if done else NO_REWARD, earned)
        if reward is not None:
            complete = done and self._calls.trajectories[command.sample].complete
            self._crew.readings.came_out(command.sample, reward > SOLVED if complete else None)
        self._deliver(Scored(command.sample, served.outcome, reward))

    def _wake_at(self, command: WakeAt) -> None:
        self._clock.at(command.at, SERVICES, lambda: self._deliver(Woke(command.at)))

    # -- the end --------------------------------------------------------------------------------------

    async def _close(self) -> tuple[list[Record], list[Exception]]:
        """Stop everything and settle the books; what the engines noted, and what went wrong in stopping."""
        log = self.log
        log.end, log.ended_by = self._clock.now, self._horizon.ended_by
        self._trainer.close()
        records, under_way, faults = await self._fleet.close()
        await settled(self._work, LAST_REPLIES_SECONDS)
        faults += await self._crew.dismiss()
        for running in under_way:
            self._crew.took(running)
        made = {running.call.sample: running.made_tokens for running in under_way}
        made |= {call.sample: call.tokens for call in self._untold()}
        log.final = final_rows(self._controller, made, self._calls.trajectories)
        log.odds = self._calls.odds
        self._count(records)
        return records, faults

    def _count(self, records: list[Record]) -> None:
        """The engines' own counts; of one that keeps none, or was lost, what it delivered stands for it."""
        log, fleet = self.log, self._fleet
        log.windows = [row for record in records for row in record.windows]
        log.check_tokens = self._calls.check_tokens
        for replica, record in enumerate(records):
            delivered = fleet.delivered_tokens[replica]
            sampled = delivered if record.sampled_tokens is None else record.sampled_tokens
            log.generated_tokens += sampled
            lost = sampled - delivered if replica in fleet.gone else fleet.undelivered_tokens[replica]
            log.undelivered_tokens += lost
            log.preemptions += record.preemptions
        log.prefill_tokens = sum(row.prefill_tokens for row in log.windows)
        log.engine_steps = sum(row.steps for row in log.windows)
        log.events = len(log.decisions)

    def _untold(self) -> list[Cut | Finished]:
        """Calls whose end is still in the inbox."""
        ended: list[Cut | Finished] = []
        for event in self._inbox:
            if isinstance(event, Finished):
                ended.append(event)
            elif isinstance(event, Aborted | ReplicaLost):
                ended.extend(event.cuts)
        return ended
