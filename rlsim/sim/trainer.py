"""The trainer on the clock: phases of a step, publication of weights, and the switch of shared GPUs.

A pool of workers that serve one job each, first come first served: tools, sandboxes, reward models.

With exponential arrivals it is the M/G/c queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from rlsim.core.commands import SetRole, Sync, Train
from rlsim.core.log import RunLog, ServiceRow, SpanRow
from rlsim.core.ticks import Ticks
from rlsim.executor.system import System
from rlsim.sim.clock import SimClock
from rlsim.sim.durations import Durations
from rlsim.sim.fleet import SimFleet

TRAINER = -1
Then = Callable[[], None]
OnAccepted = Callable[[bool], None]


class SimTrainer:
    """One trainer; it does one thing at a time because its controller asks for one."""

    def __init__(self, clock: SimClock, world: System, fleet: SimFleet, log: RunLog, durations: Durations) -> None:
        self._clock, self._world, self._fleet, self._log = clock, world, fleet, log
        self._durations = durations
        self._laws = [replica.law for replica in world.replicas]
        """While nothing is trained."""
        self._tests = 0
        self._lent_since: Ticks = -1
        """When the loan under way began, or will; -1 without one."""

    def train(self, command: Train, samples: Sequence[tuple[int, int]], then: Then) -> None:
        """Run the phases of a step, or of the part of it that has come."""
        phases = self._durations.training(command, samples)
        contention = self._world.contention
        if contention is not None:
            self._fleet.set_laws(contention.laws)
            self._contended(command.step, deque(phases), then)
            return
        now = self._clock.now
        for name, ticks in phases:
            end = now + ticks
            self._log.spans.append(SpanRow(TRAINER, name, now, end, command.step))
            now = end
        self._clock.after(now - self._clock.now, then)

    def _contended(self, step: int, phases: deque[tuple[str, Ticks]], then: Then) -> None:
        """One phase after the other: each costs what the engines make of it when it begins."""
        if not phases:
            self._fleet.set_laws(self._laws)
            then()
            return
        name, ticks = phases.popleft()
        if self._fleet.at_work:
            ticks = self._durations.contended(ticks)
        now = self._clock.now
        self._log.spans.append(SpanRow(TRAINER, name, now, now + ticks, step))
        self._clock.after(ticks, lambda: self._contended(step, phases, then))

    def sync(self, command: Sync, then: OnAccepted) -> None:
        """Publish weights in the mode asked for; ``then`` is told whether the replicas accepted them."""
        reset = command.mode != "keep"
        requested_at = self._clock.now

        def booked(accepted: bool = True) -> None:
            what = "sync" if accepted else "rejected"
            self._log.spans.append(SpanRow(TRAINER, what, requested_at, self._clock.now, command.version))
            then(accepted)

        if command.mode == "pull":
            self._clock.after(self._durations.publication(command, 0), lambda: self._offer(command.version, booked))
            return
        lead = self._durations.lead(command)
        if lead:
            self._clock.after(lead, lambda: self._stop_and_give(command, requested_at, reset, booked))
        else:
            self._stop_and_give(command, requested_at, reset, booked)

    def _stop_and_give(self, command: Sync, requested_at: Ticks, reset: bool, then: OnAccepted) -> None:
        if self._world.sync_scope == "per_replica":
            self._fleet.update_each(command.version, partial(self._durations.load, command), reset, lambda: then(True))
        else:
            self._fleet.pause(lambda: self._transfer(command, requested_at, reset, then))

    def _offer(self, version: int, then: Then) -> None:
        """The weights have reached the relays; every replica loads them over its host link when it is empty."""
        self._fleet.offer(version, self._durations.pull)
        then()

    def _transfer(self, command: Sync, requested_at: Ticks, reset: bool, then: OnAccepted) -> None:
        start = self._clock.now
        accepted = self._judged(command)

        def arrived() -> None:
            self._fleet.set_version(command.version if accepted else command.version - 1, reset)
            what = "sync" if accepted else "rejected"
            for replica in self._fleet.replicas:
                self._log.spans.append(SpanRow(replica.index, what, start, self._clock.now, command.version))
            self._fleet.resume()
            then(accepted)

        self._clock.after(self._durations.publication(command, start - requested_at), arrived)

    def _judged(self, command: Sync) -> bool:
        """Whether the replicas accept the weights."""
        if not command.test or self._world.acceptance is None:
            return True
        self._tests += 1
        return self._world.acceptance.passes(self._tests)

    def set_role(self, command: SetRole, then: Then) -> None:
        """Switch shared GPUs; the engines are paused from here to the next publication. Lent ones hold no call."""
        requested_at = self._clock.now
        if command.lent:
            # The trainer's row shows the loan from the end of one switch to the beginning of the next.
            ticks = self._durations.switch(command, 0)
            now = self._clock.now
            if command.role == "train":
                self._log.spans.append(SpanRow(TRAINER, "lent", self._lent_since, now, -1))
                self._fleet.forget(self._world.lent_replicas)
            self._lent_since = -1 if command.role == "train" else now + ticks
            self._switch(ticks, then)
        else:
            self._fleet.pause(
                lambda: self._switch(self._durations.switch(command, self._clock.now - requested_at), then)
            )

    def _switch(self, ticks: Ticks, then: Then) -> None:
        now = self._clock.now
        self._log.spans.append(SpanRow(TRAINER, "switch", now, now + ticks, -1))
        self._clock.after(ticks, then)

    def close(self) -> None:
        """The run is over."""
        if self._lent_since >= 0:
            self._log.spans.append(SpanRow(TRAINER, "lent", self._lent_since, self._clock.now, -1))


Job = tuple[int, Ticks, Ticks, Callable[[], None]]


class WorkerPool:
    """``workers`` servers and one queue; None for as many servers as there are jobs."""

    def __init__(self, clock: SimClock, log: RunLog, what: str, workers: int | None) -> None:
        self._clock, self._log, self._what = clock, log, what
        self._free = workers
        self._queue: deque[Job] = deque()

    def serve(self, sample: int, service: Ticks, done: Callable[[], None]) -> None:
        """Enqueue a job that takes ``service`` once a worker has it."""
        job = (sample, self._clock.now, service, done)
        if self._free == 0:
            self._queue.append(job)
            return
        if self._free is not None:
            self._free -= 1
        self._start(job)

    def _start(self, job: Job) -> None:
        sample, requested_at, service, done = job
        start = self._clock.now
        self._log.services.append(ServiceRow(sample, self._what, requested_at, start, start + service))
        self._clock.after(service, lambda: self._end(done))

    def _end(self, done: Callable[[], None]) -> None:
        if self._queue:
            self._start(self._queue.popleft())
        elif self._free is not None:
            self._free += 1
        done()
