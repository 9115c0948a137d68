"""The trainer's side of a live run: training, publication in every mode, and the switch of shared GPUs."""

from __future__ import annotations

from rlsim.core.commands import SetRole, Sync, Train
from rlsim.core.log import RunLog, SpanRow
from rlsim.core.ticks import Ticks, to_ticks
from rlsim.executor.system import System
from rlsim.live.clock import LiveClock, sleep_until
from rlsim.live.components import LiveComponents
from rlsim.live.fleet import LiveFleet
from rlsim.live.protocols import Learnt, Weights

TRAINER = -1


class TrainerDriver:
    """One trainer; it does one thing at a time because its controller asks for one."""

    def __init__(self, clock: LiveClock, world: System, fleet: LiveFleet, log: RunLog, crew: LiveComponents) -> None:
        self._clock, self._world, self._fleet, self._log, self._crew = clock, world, fleet, log, crew
        self._published = Weights(0, None)
        self._tests = 0
        self._lent_since: Ticks = -1
        """When the loan under way began; -1 without one."""

    async def train(self, command: Train) -> Learnt:
        """Train on finished samples; the phases are laid end to end from when it was asked for."""
        start = self._clock.now
        learnt = await self._crew.trainer.train(command, self._crew.experiences(command.samples))
        now = start
        for name, seconds in learnt.phases:
            end = min(now + to_ticks(seconds), self._clock.now)
            self._log.spans.append(SpanRow(TRAINER, name, now, end, command.step))
            now = end
        self._crew.learnt.append((command.step, learnt))
        return learnt

    async def sync(self, command: Sync) -> bool:
        """Publish weights in the mode asked for; whether the replicas accepted them."""
        requested_at = self._clock.now
        accepted = await self._publish(command)
        what = "sync" if accepted else "rejected"
        self._log.spans.append(SpanRow(TRAINER, what, requested_at, self._clock.now, command.version))
        return accepted

    async def _publish(self, command: Sync) -> bool:
        weights = await self._crew.trainer.publish(command.version)
        pace, resume = self._crew.pace, to_ticks(command.resume_seconds)
        if command.mode == "pull":
            await sleep_until(self._clock, self._clock.now + pace.sync_ticks)
            self._fleet.offer(weights, pace.pull_time)
            return True
        if self._world.sync_scope == "per_replica":
            await self._fleet.publish_each(weights, command.mode, pace.sync_ticks + resume)
            return True
        accepted, test_ticks = self._judged(command)
        chosen = weights if accepted else self._published
        what = "sync" if accepted else "rejected"
        await self._fleet.publish(chosen, command.mode, pace.sync_ticks + test_ticks + resume, what, command.version)
        self._published = chosen
        return accepted

    def _judged(self, command: Sync) -> tuple[bool, Ticks]:
        """Whether the replicas accept the weights, and how long they take to find out."""
        acceptance = self._world.acceptance
        if not command.test or acceptance is None:
            return True, 0
        self._tests += 1
        return acceptance.passes(self._tests), to_ticks(acceptance.test_seconds)

    async def set_role(self, command: SetRole) -> None:
        """Switch shared GPUs; the engines are paused from here to the next publication. Lent ones hold no call."""
        to_training = command.role == "train"
        pace, replicas = self._crew.pace, self._world.lent_replicas if command.lent else range(len(self._crew.engines))
        ticks = pace.to_training_ticks if to_training else pace.to_rollout_ticks
        requested_at = self._clock.now
        if to_training:
            await self._fleet.sleep(replicas)
        else:
            await self._fleet.wake(replicas, resume=command.lent)
        start = requested_at if command.lent else self._clock.now
        if command.lent and to_training:
            self._log.spans.append(SpanRow(TRAINER, "lent", self._lent_since, start, -1))
            self._lent_since = -1
        await sleep_until(self._clock, start + ticks)
        self._log.spans.append(SpanRow(TRAINER, "switch", start, self._clock.now, -1))
        if command.lent and not to_training:
            self._lent_since = self._clock.now

    def close(self) -> None:
        """The run is over."""
        if self._lent_since >= 0:
            self._log.spans.append(SpanRow(TRAINER, "lent", self._lent_since, self._clock.now, -1))
