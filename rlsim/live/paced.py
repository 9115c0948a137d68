"""Trainer, tools and rewards that do nothing but take the time that the scenario's costs give them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlsim.core.commands import CallTool, Score, Train
from rlsim.core.streams import stream_key
from rlsim.core.ticks import to_ticks
from rlsim.executor.system import Phases, System
from rlsim.live.clock import LiveClock, sleep_until
from rlsim.live.protocols import Experience, Learnt, Tools, Weights
from rlsim.live.texts import random_ids


class PacedTrainer:
    """Training steps as long as the cost model says; it publishes the same weights under new versions."""

    def __init__(self, clock: LiveClock, world: System, lengths: Callable[[int], tuple[int, int]]) -> None:
        """``lengths(sample)`` gives (context tokens, response tokens)."""
        self._clock, self._phases, self._lengths = clock, Phases(world.training), lengths

    async def start(self) -> None:
        """Nothing to get ready."""

    async def train(self, command: Train, batch: Sequence[Experience]) -> Learnt:
        phases = self._phases.of(command, [self._lengths(sample) for sample in command.samples])
        end = self._clock.now + sum(to_ticks(seconds) for _, seconds in phases)
        await sleep_until(self._clock, end)
        return Learnt(phases)

    async def publish(self, version: int) -> Weights:
        return Weights(version, None)

    async def close(self) -> None:
        """Nothing to stop."""


class PacedTools:
    """Tools of the workload's latency and output length."""

    def __init__(
        self, clock: LiveClock, seconds: Callable[[CallTool], float], output: Callable[[CallTool], Sequence[int]]
    ):
        self._clock, self._seconds, self._output = clock, seconds, output

    async def call(self, command: CallTool, turn: Sequence[int]) -> Sequence[int]:
        """Wait, and answer."""
        await sleep_until(self._clock, self._clock.now + to_ticks(self._seconds(command)))
        return self._output(command)


class PacedRewards:
    """Scoring that takes the workload's latency; what samples earn is not its business."""

    def __init__(self, clock: LiveClock, seconds: Callable[[Score], float]) -> None:
        self._clock, self._seconds = clock, seconds

    async def score(self, command: Score, response: Sequence[int]) -> float | None:
        """Wait."""
        await sleep_until(self._clock, self._clock.now + to_ticks(self._seconds(command)))
        return None


class SpokenTools:
    """Tools whose answers are token ids that any model knows, as many as the tool behind it says."""

    def __init__(self, tools: Tools, seed: int, vocabulary: int) -> None:
        self._tools, self._seed, self._vocabulary = tools, seed, vocabulary

    async def call(self, command: CallTool, turn: Sequence[int]) -> Sequence[int]:
        """An answer."""
        answer = await self._tools.call(command, turn)
        key = stream_key(self._seed, "tool text", command.draw, command.recycle, command.member, command.turn)[0]
        return random_ids(key, len(answer), self._vocabulary)
