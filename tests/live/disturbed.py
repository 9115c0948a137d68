"""Fake live execution whose costs are not those of the scenario: what a prediction is wrong about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rlsim.core.errors import ParameterError
from rlsim.core.ticks import Ticks, to_ticks
from rlsim.executor.system import System
from rlsim.live.clock import LiveClock, sleep_until
from rlsim.live.components import LiveComponents
from rlsim.live.fake import fake_components
from rlsim.live.protocols import Call, CallOutput, Engine, Record, Weights
from rlsim.resolve import ResolvedScenario
from rlsim.workload.workload import Workload

Wrap = Callable[[Engine, LiveClock, np.random.Generator], Engine]


@dataclass
class Disturbed:
    """A backend: the fake engines in a world that ``change`` has changed, wrapped; each run has its own luck."""

    change: Callable[[System, np.random.Generator], None] = lambda world, rng: None
    wrap: Wrap = lambda engine, clock, rng: engine
    seed: int = 0
    runs: int = 0
    virtual: bool = True
    emulated: bool = True
    label: str = "EMULATED, disturbed"

    def refusals(self, plan: ResolvedScenario) -> list[ParameterError]:
        return []

    def workload(self, plan: ResolvedScenario, replication: int) -> Workload:
        return plan.workload_of(replication)

    def crew(self, plan: ResolvedScenario, world: System, clock: LiveClock, work: Path) -> LiveComponents:
        rng = np.random.default_rng([self.seed, self.runs])
        self.runs += 1
        self.change(world, rng)
        crew = fake_components(world, clock)
        return replace(crew, engines=[self.wrap(engine, clock, rng) for engine in crew.engines])

    def facts(self) -> dict[str, Any]:
        return {}


class RandomExtra:
    """Steps up to ``share`` longer or shorter than the law's."""

    def __init__(self, rng: np.random.Generator, share: float, law_ticks: Callable[[], Ticks]) -> None:
        self._rng, self._share, self._law_ticks = rng, share, law_ticks
        self._extra = 0

    def open(self, steps: int) -> None:
        self._extra = round(self._law_ticks() * self._rng.uniform(-self._share, self._share))

    def ticks(self, steps: int) -> Ticks:
        return self._extra


def random_steps(share: float) -> Callable[[System, np.random.Generator], None]:
    """Every step of every replica is disturbed by itself."""

    def change(world: System, rng: np.random.Generator) -> None:
        for replica in world.replicas:
            replica.jump = False
            replica.noise = RandomExtra(rng, share, lambda replica=replica: replica.law_ticks)  # type: ignore[misc]

    return change


def slower_steps(factor: float) -> Callable[[System, np.random.Generator], None]:
    """All steps take that much longer."""

    def change(world: System, rng: np.random.Generator) -> None:
        for replica in world.replicas:
            law = replica.law
            stretched = {
                name: [round(ticks * factor) for ticks in getattr(law, name)]
                for name in ("dense_ps", "sequence_ps", "kv_ps", "prefill_ps", "mixed_kv_ps")
            }
            replica.law = replace(law, **stretched, pair_ps=round(law.pair_ps * factor))

    return change


class Wrapped:
    """An engine behind another; subclasses replace what they disturb."""

    def __init__(self, engine: Engine, clock: LiveClock, rng: np.random.Generator) -> None:
        self.engine, self.clock, self.rng = engine, clock, rng

    async def start(self) -> None:
        await self.engine.start()

    async def generate(self, call: Call, made: CallOutput) -> None:
        await self.engine.generate(call, made)

    async def abort(self, samples: Sequence[int]) -> None:
        await self.engine.abort(samples)

    async def pause(self) -> None:
        await self.engine.pause()

    async def resume(self) -> None:
        await self.engine.resume()

    async def load(self, weights: Weights, reset: bool) -> int:
        return await self.engine.load(weights, reset)

    async def sleep(self) -> None:
        await self.engine.sleep()

    async def wake(self) -> None:
        await self.engine.wake()

    async def close(self) -> Record:
        return await self.engine.close()


class Lagging(Wrapped):
    """Ends of calls are heard of, and publications begin, some milliseconds late."""

    async def generate(self, call: Call, made: CallOutput) -> None:
        await self.engine.generate(call, made)
        await self._lag()

    async def load(self, weights: Weights, reset: bool) -> int:
        await self._lag()
        return await self.engine.load(weights, reset)

    async def _lag(self) -> None:
        await sleep_until(self.clock, self.clock.now + to_ticks(float(self.rng.uniform(0.001, 0.006))))


def late_in(runs: set[int], late_steps: int) -> Wrap:
    """Engines that were late in these runs, counted from 0 (each run makes two of them)."""
    made = iter(range(1 << 20))

    class Late(Wrapped):
        def __init__(self, engine: Engine, clock: LiveClock, rng: np.random.Generator) -> None:
            super().__init__(engine, clock, rng)
            self.run = next(made) // 2

        async def close(self) -> Record:
            record = await self.engine.close()
            return replace(record, late_steps=late_steps if self.run in runs else 0)

    return Late
