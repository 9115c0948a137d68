"""The simulated world: carries out a controller's commands on SimPy's clock, and runs of a resolved scenario."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from simpy.core import EmptySchedule

from rlsim.controller import Controller
from rlsim.core.commands import Abort, CallTool, Score, SetRole, Submit, Sync, Train
from rlsim.core.errors import DeadlockError, ParameterError
from rlsim.core.events import Cut, Finished, Scored, ToolReturned
from rlsim.core.log import ENGINE_COUNTS, RunLog
from rlsim.core.ticks import Ticks
from rlsim.engine.requests import Request
from rlsim.executor.driver import Driver
from rlsim.executor.run import FinishedRun, budget_of, prepare
from rlsim.executor.system import System
from rlsim.executor.termination import SECONDS, Budget
from rlsim.executor.trajectories import Calls
from rlsim.policies.hooks import NeedsRewards
from rlsim.resolve import ResolvedScenario
from rlsim.sim.clock import SimClock
from rlsim.sim.collector import collector_paused
from rlsim.sim.durations import Durations, Modelled
from rlsim.sim.fleet import SimFleet
from rlsim.sim.trainer import SimTrainer, WorkerPool


class Simulation:
    """One run of one controller on simulated machines."""

    def __init__(
        self, controller: Controller, system: System, keep_decisions: bool = True, durations: Durations | None = None
    ) -> None:
        """Without ``durations`` everything takes as long as the system's costs say."""
        self._durations = durations or Modelled(system)
        self._system = system
        self._clock = SimClock()
        self._calls = Calls(system, lambda replica: system.replicas[replica].version)
        self._calls.set_lengths(system.replicas)
        self._driver = Driver(controller, self._calls, self._clock, self, keep_decisions=keep_decisions)
        self.log = log = self._driver.log
        self._fleet = SimFleet(self._clock, system.replicas, log, self)
        self._trainer = SimTrainer(self._clock, system, self._fleet, log, self._durations)
        self._tools = WorkerPool(self._clock, log, "tool", system.environments)
        self._rewards = WorkerPool(self._clock, log, "reward", system.reward_workers)
        self._reporting: dict[int, Finished] = {}
        """Ends of calls on their way to the policy, by sample."""
        self._over = self._clock.event()

    def run(self, steps: int, max_seconds: float | None = None, budget: Budget | None = None) -> RunLog:
        """Simulate until ``steps`` training iterations have ended, or the first that uses up the budget.

        ``DeadlockError`` when that cannot be.
        """
        driver = self._driver
        driver.start(steps, max_seconds, budget)
        try:
            self._clock.run(until=self._over)
        except RuntimeError as error:
            if not isinstance(error.__context__, EmptySchedule):
                raise
            raise DeadlockError(self._deadlock()) from error
        if driver.fault is not None:
            raise driver.fault
        idle = driver.timers.in_vain or not math.isfinite(self._clock.peek())
        if driver.ended_by in ("", SECONDS) and idle:
            raise DeadlockError(self._deadlock())
        self._close()
        return self.log

    def quiet(self) -> None:
        """Stop when timers are all that is left, and lead to nothing; without timers the clock runs empty."""
        if self._driver.timers.in_vain:
            self._driver.stop()

    def stopped(self) -> None:
        self._over.succeed()

    # -- calls ----------------------------------------------------------------------------------------

    def prepare(self, command: Submit, request: Request) -> tuple[Ticks, Callable[[], None]]:
        """Time of a call's way, and its submission."""
        return self._durations.way(command), partial(self._fleet.submit, command.replica, request)

    def finished(self, request: Request, replica: int) -> None:
        event = self._calls.ended(request, replica)
        ticks = self._durations.report(event)
        if ticks:
            self._reporting[event.sample] = event
            self._clock.after(ticks, lambda: self._reported(event))
        else:
            self._driver.deliver(event)

    def _reported(self, event: Finished) -> None:
        if self._reporting.get(event.sample) is event:
            self._driver.deliver(self._reporting.pop(event.sample))

    def marked(self, request: Request, made_tokens: int) -> None:
        """A watched call came to a mark."""
        self._driver.deliver(self._calls.notice(request, made_tokens))

    def abort(self, command: Abort, early: list[Cut]) -> None:
        """End calls at the next boundary of their replicas; those that have ended are reported now."""
        by_replica: dict[int, list[int]] = {}
        not_there = [cut.sample for cut in early]
        for sample in command.samples:
            if sample in self._reporting:
                self._driver.deliver(self._reporting.pop(sample))
            if sample not in not_there:
                by_replica.setdefault(self._driver.controller.samples[sample].replica, []).append(sample)
        if by_replica:
            self._fleet.abort(by_replica, lambda late: self._driver.aborted([*early, *late]))
        else:
            self._driver.aborted(early)

    # -- trainer, tools and rewards -------------------------------------------------------------------

    def train(self, command: Train) -> None:
        """Train for as long as it takes."""

        def done() -> None:
            self._driver.trained(command)

        self._trainer.train(command, [self._calls.lengths(sample) for sample in command.samples], done)

    def sync(self, command: Sync) -> None:
        self._trainer.sync(command, partial(self._driver.synced, command))

    def set_role(self, command: SetRole) -> None:
        self._trainer.set_role(command, partial(self._driver.role_set, command))

    def call_tool(self, command: CallTool) -> None:
        """Occupy a worker for the tool's time; its output leaves room for the next turn."""
        key = self._calls.trajectories[command.sample].key
        output = self._system.workload.tool_output_tokens(*key, command.turn)
        event = ToolReturned(command.sample, min(output, self._calls.room_tokens(command.sample)))
        self._tools.serve(command.sample, self._durations.tool(command, key), lambda: self._driver.deliver(event))

    def score(self, command: Score) -> None:
        """Occupy a worker for the time of a scoring."""
        ticks = self._durations.reward(command, self._calls.trajectories[command.sample].key)
        self._rewards.serve(command.sample, ticks, lambda: self._scored(command.sample))

    def _scored(self, sample: int) -> None:
        self._driver.deliver(Scored(sample, reward=self._calls.reward(sample)))

    # -- the end --------------------------------------------------------------------------------------

    def _close(self) -> None:
        log, replicas = self.log, self._system.replicas
        self._driver.stamp_end()
        log.events = self._clock.events
        self._trainer.close()
        under_way = {cut.sample: cut.tokens for cut in self._fleet.close()}
        self._driver.settle(under_way, list(self._reporting.values()))
        ranks = [rank for replica in replicas for rank in replica.ranks]
        log.generated_tokens = sum(rank.decoded_tokens for rank in ranks)
        log.undelivered_tokens = sum(rank.lost_tokens for rank in ranks)
        log.prefill_tokens = sum(rank.prefill_tokens for rank in ranks)
        log.preemptions = sum(rank.preemptions for rank in ranks)
        for name in ENGINE_COUNTS:
            setattr(log, name, sum(getattr(rank, name) for rank in ranks))
        log.rank_steps = sum(rank.step for rank in ranks)
        log.engine_steps = sum(replica.total_steps for replica in replicas)

    def _deadlock(self) -> str:
        return self._driver.deadlock(sum(len(replica.requests()) for replica in self._system.replicas))


def simulate(plan: ResolvedScenario, replication: int = 0, steps: int | None = None) -> FinishedRun:
    """Run one replication of a plan; ``DeadlockError`` when it cannot progress.

    ``ParameterError`` for a policy that decides by rewards, where only a live task would give them.
    """
    controller, system = prepare(plan, replication)
    if plan.learning is None and isinstance(controller.policy.allocation, NeedsRewards):
        raise ParameterError("learning", None, "a learning section: simulated samples earn nothing without one")
    run = plan.scenario.run
    with collector_paused():
        log = Simulation(controller, system).run(steps or run.steps, run.max_simulated_seconds, budget_of(plan))
    return FinishedRun(plan, replication, log)
