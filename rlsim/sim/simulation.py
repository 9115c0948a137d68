"""The simulated executor: carries out a controller's commands on SimPy's clock and tells it what happened.

Everything that happens reaches the controller through one inbox, taken up once an instant after all step boundaries
and services of that instant; ``now`` is stamped there. Every command owes one reply; the run ends after the training
iteration asked for, or with a report when nothing is left to happen.

From a plan to a simulated run.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from simpy.core import EmptySchedule

from rlsim.controller import Controller
from rlsim.core.commands import Abort, CallTool, Score, SetRole, Submit, Sync, Train, WakeAt
from rlsim.core.errors import DeadlockError, ParameterError
from rlsim.core.events import (
    Aborted,
    Cut,
    Event,
    Finished,
    RoleSet,
    Scored,
    Started,
    Synced,
    ToolReturned,
    Trained,
    Woke,
)
from rlsim.core.log import Decision, GateRow, IterationRow, RunLog
from rlsim.core.ticks import to_ticks
from rlsim.engine.requests import Request
from rlsim.executor.run import FinishedRun, budget_of, make_controller, make_world
from rlsim.executor.system import System
from rlsim.executor.termination import SECONDS, Budget, Horizon, Timers, cut_of, deadlock_report, final_rows
from rlsim.executor.trajectories import Calls
from rlsim.policies.hooks import NeedsRewards
from rlsim.resolve import ResolvedScenario
from rlsim.sim.clock import CONTROLLER, SERVICES, SimClock, SimTimer
from rlsim.sim.collector import collector_paused
from rlsim.sim.durations import Durations, Modelled
from rlsim.sim.fleet import SimFleet
from rlsim.sim.trainer import SimTrainer, WorkerPool


class Simulation:
    """One run of one controller in one world."""

    def __init__(
        self, controller: Controller, world: System, keep_decisions: bool = True, durations: Durations | None = None
    ) -> None:
        """Without ``durations`` everything takes as long as the world's costs say."""
        self.log = RunLog()
        self._durations = durations or Modelled(world)
        self._controller, self._world, self._keeps = controller, world, keep_decisions
        self._clock = SimClock()
        self._calls = Calls(world, lambda replica: world.replicas[replica].version)
        if self._calls.lengths_drift:
            for replica in world.replicas:
                replica.set_length(self._calls.length)
        self._fleet = SimFleet(self._clock, world.replicas, self.log, self)
        self._trainer = SimTrainer(self._clock, world, self._fleet, self.log, self._durations)
        self._tools = WorkerPool(self._clock, self.log, "tool", world.environments)
        self._rewards = WorkerPool(self._clock, self.log, "reward", world.reward_workers)
        self._restoring: dict[int, Request] = {}
        """Calls on their way, or whose KV is on its way back from the host, by sample."""
        self._reporting: dict[int, Finished] = {}
        """Ends of calls on their way to the policy, by sample."""
        self._inbox: deque[Event] = deque()
        self._timers = Timers()
        self._attended = False
        self._gate: str | None = None
        self._over = self._clock.event()
        self._horizon = Horizon(controller, 0)
        self._execute: dict[type, Callable[[Any], None]] = {
            Submit: self._submit,
            Abort: self._abort,
            Train: self._train,
            Sync: self._sync,
            SetRole: self._set_role,
            CallTool: self._call_tool,
            Score: self._score,
            WakeAt: self._wake_at,
        }

    def run(self, steps: int, max_seconds: float | None = None, budget: Budget | None = None) -> RunLog:
        """Simulate until ``steps`` training iterations have ended, or the first that uses up the budget.

        ``DeadlockError`` when that cannot be.
        """
        self._horizon = Horizon(self._controller, steps, budget)
        if max_seconds is not None:
            self._clock.at(to_ticks(max_seconds), CONTROLLER, self._out_of_time)
        self._deliver(Started())
        try:
            self._clock.run(until=self._over)
        except RuntimeError as error:
            if not isinstance(error.__context__, EmptySchedule):
                raise
            raise DeadlockError(self._deadlock()) from error
        idle = self._timers.in_vain or not math.isfinite(self._clock.peek())
        if self._horizon.ended_by in ("", SECONDS) and idle:
            raise DeadlockError(self._deadlock())
        self._close()
        return self.log

    # -- towards the controller -----------------------------------------------------------------------

    def finished(self, request: Request, replica: int) -> None:
        """A call ended by itself."""
        event = self._calls.ended(request, replica)
        ticks = self._durations.report(event)
        if ticks:
            self._reporting[event.sample] = event
            self._clock.after(ticks, lambda: self._reported(event))
        else:
            self._deliver(event)

    def marked(self, request: Request, made_tokens: int) -> None:
        """A watched call came to a mark."""
        self._deliver(self._calls.notice(request, made_tokens))

    def _reported(self, event: Finished) -> None:
        if self._reporting.get(event.sample) is event:
            self._deliver(self._reporting.pop(event.sample))

    def _deliver(self, event: Event) -> None:
        self._inbox.append(event)
        if not self._attended:
            self._attended = True
            self._clock.at(self._clock.now, CONTROLLER, self._attend)

    def _attend(self, timer: SimTimer) -> None:
        controller, now = self._controller, self._clock.now
        horizon = self._horizon
        while self._inbox and not horizon.ended_by:
            event = self._inbox.popleft()
            iterations = controller.iterations
            commands = controller.handle(now, event)
            horizon.told(now, event)
            if self._keeps:
                self.log.decisions.append(Decision(now, event, tuple(commands)))
            if not horizon.ended_by:
                horizon.asked(commands)
                for command in commands:
                    self._execute[type(command)](command)
                self._timers.count(event, commands)
            else:
                self.log.last_commands_idle = True
            if controller.view.gate != self._gate:
                self._gate = controller.view.gate
                self.log.gates.append(GateRow(now, self._gate))
            if controller.iterations > iterations:
                self.log.iterations.append(IterationRow(iterations, now, controller.view.version))
        self._attended = False
        if horizon.ended_by or self._timers.in_vain:
            self._stop(timer)

    def _out_of_time(self, timer: SimTimer) -> None:
        self._horizon.ended_by = self._horizon.ended_by or SECONDS
        self._stop(timer)

    def _stop(self, timer: SimTimer) -> None:
        if not self._over.triggered:
            self._over.succeed()

    # -- commands -------------------------------------------------------------------------------------

    def _submit(self, command: Submit) -> None:
        self._calls.note_odds(command, self._controller.view.version)
        request = self._calls.request(command, self._clock.now)
        source = self._calls.trajectories[command.sample].replica
        bringing = self._world.bring_kv_ticks(request.restored_tokens, source, command)
        ticks = self._durations.way(command) + bringing
        if ticks:
            self._restoring[command.sample] = request
            self._clock.after(ticks, lambda: self._restored(command.replica, request))
        else:
            self._fleet.submit(command.replica, request)

    def _restored(self, replica: int, request: Request) -> None:
        if self._restoring.get(request.sample) is request:
            del self._restoring[request.sample]
            self._fleet.submit(replica, request)

    def _abort(self, command: Abort) -> None:
        by_replica: dict[int, list[int]] = {}
        early: list[Cut] = []
        for sample in command.samples:
            if sample in self._reporting:
                self._deliver(self._reporting.pop(sample))
            replica = self._controller.samples[sample].replica
            if sample in self._restoring:
                early.append(cut_of(self._restoring.pop(sample), replica))
            else:
                by_replica.setdefault(replica, []).append(sample)
        if by_replica:
            self._fleet.abort(by_replica, partial(self._aborted, early))
        else:
            self._aborted(early, [])

    def _aborted(self, early: list[Cut], late: list[Cut]) -> None:
        cuts = sorted([*early, *late], key=lambda made: made.sample)
        for cut in cuts:
            self._calls.cut(cut)
        self._deliver(Aborted(tuple(cuts)))

    def _train(self, command: Train) -> None:
        samples = [self._calls.lengths(sample) for sample in command.samples]
        self._trainer.train(command, samples, lambda: self._trained(command))

    def _trained(self, command: Train) -> None:
        ess, progress = self._calls.ess(command.samples), self._calls.learn(command, self._clock.now)
        if progress is not None:
            self.log.progress.append(progress)
        self._calls.release(command)
        if command.last:
            self._calls.updates.trained()
        self._deliver(Trained(command.step, ess))

    def _sync(self, command: Sync) -> None:
        self._calls.publishing(command)
        self._trainer.sync(command, lambda accepted: self._synced(command, accepted))

    def _synced(self, command: Sync, accepted: bool) -> None:
        self._calls.judged(command, accepted)
        if command.mode != "keep":
            self._calls.drop_kv()
            for request in self._restoring.values():
                request.restored_tokens = 0
        self._deliver(Synced(command.version, accepted))

    def _set_role(self, command: SetRole) -> None:
        self._trainer.set_role(command, lambda: self._deliver(RoleSet(command.role)))

    def _call_tool(self, command: CallTool) -> None:
        found, workload = self._calls.trajectories[command.sample], self._world.workload
        place = (found.prompt, found.attempt, found.member)
        output = min(workload.tool_output_tokens(*place, command.turn), self._calls.room_tokens(command.sample))
        event = ToolReturned(command.sample, output)
        self._tools.serve(command.sample, self._durations.tool(command, place), lambda: self._deliver(event))

    def _score(self, command: Score) -> None:
        found = self._calls.trajectories[command.sample]
        ticks = self._durations.reward(command, (found.prompt, found.attempt, found.member))
        self._rewards.serve(command.sample, ticks, lambda: self._scored(command.sample))

    def _scored(self, sample: int) -> None:
        self._deliver(Scored(sample, reward=self._calls.reward(sample)))

    def _wake_at(self, command: WakeAt) -> None:
        self._clock.at(command.at, SERVICES, lambda _: self._deliver(Woke(command.at)))

    # -- the end --------------------------------------------------------------------------------------

    def _close(self) -> None:
        log = self.log
        log.end, log.events, log.ended_by = self._clock.now, self._clock.events, self._horizon.ended_by
        self._trainer.close()
        made = {call.sample: call.tokens for call in [*self._fleet.close(), *self._untold()]}
        log.final = final_rows(self._controller, made, self._calls.trajectories)
        log.odds = self._calls.odds
        ranks = [rank for replica in self._world.replicas for rank in replica.ranks]
        log.generated_tokens = sum(rank.decoded_tokens for rank in ranks)
        log.undelivered_tokens = sum(rank.lost_tokens for rank in ranks)
        log.prefill_tokens = sum(rank.prefill_tokens for rank in ranks)
        log.check_tokens = self._calls.check_tokens
        log.preemptions = sum(rank.preemptions for rank in ranks)
        log.engine_steps = sum(replica.total_steps for replica in self._world.replicas)

    def _untold(self) -> list[Cut | Finished]:
        """Calls whose end the policy has not heard of."""
        ended: list[Cut | Finished] = list(self._reporting.values())
        for event in self._inbox:
            if isinstance(event, Finished):
                ended.append(event)
            elif isinstance(event, Aborted):
                ended.extend(event.cuts)
        return ended

    def _deadlock(self) -> str:
        waiting = sum(len(replica.requests()) for replica in self._world.replicas)
        return deadlock_report(self._clock.now, self._controller, self.log, self._horizon.steps, waiting)


def simulate(plan: ResolvedScenario, replication: int = 0, steps: int | None = None) -> FinishedRun:
    """Run one replication of a plan; ``DeadlockError`` when it cannot progress.

    ``ParameterError`` for a policy that decides by rewards, where only a live task would give them.
    """
    if plan.learning is None and isinstance(plan.policy(plan.shape).allocation, NeedsRewards):
        raise ParameterError("learning", None, "a learning section: simulated samples earn nothing without one")
    workload = plan.workload_of(replication)
    world = make_world(plan, workload)
    controller = make_controller(plan, workload)
    run = plan.scenario.run
    with collector_paused():
        log = Simulation(controller, world).run(steps or run.steps, run.max_simulated_seconds, budget_of(plan))
    return FinishedRun(plan, replication, log)
