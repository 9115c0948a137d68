"""The driver of a run: one inbox, one controller, and the books of both; the same under simulation and live.

Everything that happens reaches the controller through the inbox, which is emptied once an instant after all step
boundaries and services of that instant; ``now`` is stamped where an event is taken from it. A decision is on the log
before its commands are carried out. Every command owes one reply, but for timers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from rlsim.controller import Controller
from rlsim.core.commands import Abort, CallTool, Score, SetRole, Submit, Sync, Train, WakeAt
from rlsim.core.errors import DeadlockError
from rlsim.core.events import (
    Aborted,
    Cut,
    Event,
    Finished,
    ReplicaLost,
    RoleSet,
    Started,
    Synced,
    Trained,
    TrainerLost,
    Woke,
)
from rlsim.core.log import Decision, GateRow, IterationRow, RunLog
from rlsim.core.ticks import Ticks, to_ticks
from rlsim.engine.requests import Request
from rlsim.executor.livelock import LivelockWatch
from rlsim.executor.termination import SECONDS, Budget, Horizon, Timers, cut_of, deadlock_report, final_rows
from rlsim.executor.trajectories import Calls

SERVICES: Final = 1 << 24
CONTROLLER: Final = SERVICES + 1
WAKES: Final = SERVICES + 2
"""Order of what is due at one instant: step boundaries by replica, then everything that takes a given time (trainer,
links, tools), then the controller with all that has reached its inbox, then replicas that wake, by number."""


class Clock(Protocol):
    """Time of a run, in picoseconds since its start."""

    @property
    def now(self) -> Ticks:
        """The present instant."""
        ...

    def call_at(self, time: Ticks, order: int, action: Callable[[], None]) -> object:
        """Call ``action`` at ``time``, in the given order among what is due then."""
        ...


class World(Protocol):
    """Simulated or real machines: carry out commands, and report to the driver what comes of them."""

    def prepare(self, command: Submit, request: Request) -> tuple[Ticks, Callable[[], None]]:
        """Time that a call takes to its replica, without that of its KV, and what puts it there."""
        ...

    def abort(self, command: Abort, early: list[Cut]) -> None:
        """End calls on replicas, then ``Driver.aborted``; ``early`` are those that have not reached theirs."""
        ...

    def train(self, command: Train) -> None:
        """Train, then ``Driver.trained``."""
        ...

    def sync(self, command: Sync) -> None:
        """Publish weights, then ``Driver.synced``."""
        ...

    def set_role(self, command: SetRole) -> None:
        """Switch GPUs, then ``Driver.role_set``."""
        ...

    def call_tool(self, command: CallTool) -> None:
        """Call a tool, then deliver ``ToolReturned``."""
        ...

    def score(self, command: Score) -> None:
        """Score a sample, then deliver ``Scored``."""
        ...

    def quiet(self) -> None:
        """Everything in the inbox has been answered: stop a run that cannot progress."""
        ...

    def stopped(self) -> None:
        """The run is over; nothing more is decided."""
        ...


class Journal(Protocol):
    """Where decisions are noted as they are taken, so that a broken run can be replayed as far as it came."""

    def note(self, decision: Decision) -> None:
        """Note one; ``RlsimError`` when it cannot be kept."""
        ...


class Driver:
    """One run of one controller in one world."""

    def __init__(
        self,
        controller: Controller,
        calls: Calls,
        clock: Clock,
        world: World,
        journal: Journal | None = None,
        keep_decisions: bool = True,
    ) -> None:
        """Decisions are noted in the journal, too; without ``keep_decisions`` nowhere."""
        self.log = RunLog()
        self.controller, self.calls = controller, calls
        self.timers = Timers()
        self.is_over = False
        self.fault: Exception | None = None
        """What stopped the run before its last step."""
        self._clock, self._world = clock, world
        self._journal, self._keeps_decisions = journal, keep_decisions
        self._trainer_fault: Exception | None = None
        self._on_the_way: dict[int, Request] = {}
        """Calls that have not reached their replica, or whose KV has not, by sample."""
        self._inbox: deque[Event] = deque()
        self._is_attended = False
        """Whether the inbox will be emptied at this instant."""
        self._gate: str | None = None
        self._horizon = Horizon(controller, 0)
        self._livelock = LivelockWatch(controller)
        self._execute: dict[type, Callable[[Any], None]] = {
            Submit: self._submit,
            Abort: self._abort,
            Train: world.train,
            Sync: self._sync,
            SetRole: world.set_role,
            CallTool: world.call_tool,
            Score: world.score,
            WakeAt: self._wake_at,
        }

    # -- from the start to the end --------------------------------------------------------------------

    def start(self, steps: int, max_seconds: float | None, budget: Budget | None) -> None:
        """Begin a run of ``steps`` training iterations, or fewer where it takes too long or uses up the budget."""
        self._horizon = Horizon(self.controller, steps, budget)
        if max_seconds is not None:
            self._clock.call_at(to_ticks(max_seconds), CONTROLLER, self._out_of_time)
        self.deliver(Started())

    def _out_of_time(self) -> None:
        self._horizon.ended_by = self._horizon.ended_by or SECONDS
        self.stop()

    def stop(self, fault: Exception | None = None) -> None:
        """End the run; the first call counts."""
        if not self.is_over:
            self.is_over, self.fault = True, fault
            self._world.stopped()

    @property
    def ended_by(self) -> str:
        """The keys of the scenario by which the run is over; empty where something else stopped it, or nothing."""
        return self._horizon.ended_by

    def deadlock(self, calls: int) -> str:
        """Why the run cannot progress; ``calls`` are those on replicas."""
        return deadlock_report(self._clock.now, self.controller, self.log, self._horizon.steps, calls)

    def stamp_end(self) -> None:
        """The world begins to close."""
        self.log.end, self.log.ended_by = self._clock.now, self._horizon.ended_by

    def settle(self, under_way: dict[int, int], ended: Sequence[Finished] = ()) -> None:
        """Close the books: tokens of calls that closing has cut, by sample, and ends that were not delivered."""
        tokens = under_way | {event.sample: event.tokens for event in ended}
        for event in self._inbox:
            if isinstance(event, Finished):
                tokens[event.sample] = event.tokens
            elif isinstance(event, Aborted | ReplicaLost):
                tokens |= {cut.sample: cut.tokens for cut in event.cuts}
        log, calls = self.log, self.calls
        log.final = final_rows(self.controller, tokens, calls.trajectories)
        log.odds, log.check_tokens = calls.odds, calls.check_tokens

    # -- the controller -------------------------------------------------------------------------------

    def deliver(self, event: Event) -> None:
        """Put an event into the inbox."""
        self._inbox.append(event)
        if not self._is_attended:
            self._is_attended = True
            self._clock.call_at(self._clock.now, CONTROLLER, self._attend)

    def _attend(self) -> None:
        while self._inbox and not self.is_over:
            self._decide(self._inbox.popleft())
        self._is_attended = False
        if not self.is_over:
            self._world.quiet()

    def _decide(self, event: Event) -> None:
        controller, log, now = self.controller, self.log, self._clock.now
        iterations = controller.iterations
        commands = controller.handle(now, event)
        self._horizon.decided(now, event)
        if controller.iterations > iterations:
            log.iterations.append(IterationRow(iterations, now, controller.view.version))
        if controller.view.gate != self._gate:
            self._gate = controller.view.gate
            log.gates.append(GateRow(now, self._gate))
        log.last_commands_idle = True
        if self._keeps_decisions:
            decision = Decision(now, event, tuple(commands))
            log.decisions.append(decision)
            if self._journal is not None:
                self._journal.note(decision)
        if self._horizon.ended_by:
            self.stop()
            return
        endless = self._livelock.decided(now, event, commands)
        if endless:
            calls = len(controller.view.generating_samples)
            self.stop(DeadlockError(deadlock_report(now, controller, log, self._horizon.steps, calls, endless)))
            return
        log.last_commands_idle = False
        self._horizon.begin(commands)
        for command in commands:
            self._execute[type(command)](command)
        self.timers.count(event, commands)
        if type(event) is TrainerLost:
            self.stop(self._trainer_fault)

    # -- calls ----------------------------------------------------------------------------------------

    def _submit(self, command: Submit) -> None:
        calls = self.calls
        calls.note_odds(command, self.controller.view.version)
        request = calls.request(command, self._clock.now)
        source = calls.trajectories[command.sample].replica
        ticks, begin = self._world.prepare(command, request)
        ticks += calls.system.bring_kv_ticks(request.restored_tokens, source, command)
        if ticks:
            self._on_the_way[command.sample] = request
            self._clock.call_at(self._clock.now + ticks, SERVICES, partial(self._arrived, request, begin))
        else:
            begin()

    def _arrived(self, request: Request, begin: Callable[[], None]) -> None:
        if self._on_the_way.get(request.sample) is request:
            del self._on_the_way[request.sample]
            begin()

    def _abort(self, command: Abort) -> None:
        early = [sample for sample in command.samples if sample in self._on_the_way]
        samples = self.controller.samples
        self._world.abort(command, [cut_of(self._on_the_way.pop(sample), samples[sample].replica) for sample in early])

    def aborted(self, cuts: Sequence[Cut]) -> None:
        """All calls of an abort have ended: these by it."""
        self.deliver(Aborted(self._book(sorted(cuts, key=lambda cut: cut.sample))))

    def lost(self, replica: int, cuts: Sequence[Cut]) -> None:
        """A replica is gone, and with it these calls."""
        self.deliver(ReplicaLost(replica, self._book(cuts)))

    def _book(self, cuts: Sequence[Cut]) -> tuple[Cut, ...]:
        for cut in cuts:
            self.calls.cut(cut)
        return tuple(cuts)

    # -- the trainer ----------------------------------------------------------------------------------

    def trained(self, command: Train, ess: float | None = None) -> Sequence[int]:
        """A training command is done; samples that nobody needs any more.

        ``ess`` is the effective sample size that the trainer measured, as a share; None: the model's, if there is one.
        """
        ess = self.calls.ess(command.samples) if ess is None else ess
        progress = self.calls.learn(command, self._clock.now)
        if progress is not None:
            self.log.progress.append(progress)
        released = self.calls.release(command)
        if command.last:
            self.calls.updates.trained()
        self.deliver(Trained(command.step, ess))
        return released

    def trainer_lost(self, fault: Exception) -> None:
        """The trainer is gone; the run ends with ``fault`` once the controller knows."""
        self._trainer_fault = fault
        self.deliver(TrainerLost())

    def _sync(self, command: Sync) -> None:
        self.calls.publishing(command)
        self._world.sync(command)

    def synced(self, command: Sync, accepted: bool) -> None:
        """A publication is over; whether the replicas accepted the weights."""
        self.calls.judged(command, accepted)
        if command.mode != "keep":
            self.calls.drop_kv()
            for request in self._on_the_way.values():
                request.restored_tokens = 0
        self.deliver(Synced(command.version, accepted))

    def role_set(self, command: SetRole) -> None:
        """GPUs have switched."""
        self.deliver(RoleSet(command.role))

    def _wake_at(self, command: WakeAt) -> None:
        self._clock.call_at(command.at, SERVICES, partial(self.deliver, Woke(command.at)))
