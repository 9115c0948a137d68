"""An engine and a trainer that do as they are told, for actors: no vLLM, no torch, notes as real engines write them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlsim.core.commands import Train
from rlsim.core.errors import RlsimError
from rlsim.engine.requests import Request
from rlsim.live.protocols import Call, CallOutput, EngineLostError, Experience, Learnt, Now, Record, Weights
from rlsim.live.site import Needs
from rlsim.live.vllm.step_log import CallEnd, EngineFiles, StepLogWriter, StepRow, read_steps, report, windows

STEP_SECONDS = 0.002
ONE_CORE = Needs(1)


def call(sample: int, tokens: int) -> Call:
    """With a prompt of four tokens."""
    return Call(sample, range(4), tokens, True, 0, Request(sample, sample, 4, 4, tokens))


class ScriptedEngine:
    """A token a step for each call: its sample, then 0, 1, 2, ...; a call of an odd priority kills the engine at 5.

    It notes its steps by the clock it is given.
    """

    def __init__(self, replica: int, model: Path, now: Now, work: Path) -> None:
        self.replica, self.model, self._now, self._files = replica, model, now, EngineFiles(work)
        self._version = 0
        self._aborted: set[int] = set()
        self._running: dict[int, CallOutput] = {}
        self._go = asyncio.Event()
        self._notes: StepLogWriter | None = None

    async def start(self) -> None:
        self._files.folder.mkdir(parents=True, exist_ok=True)
        self._notes = StepLogWriter(self._files)
        self._go.set()

    async def generate(self, call: Call, made: CallOutput) -> None:
        self._running[call.sample] = made
        try:
            while not made.reason:
                await self._go.wait()
                await self._step(call, made)
        finally:
            del self._running[call.sample]

    async def _step(self, call: Call, made: CallOutput) -> None:
        assert self._notes is not None
        start = self._now() // 1000
        await asyncio.sleep(STEP_SECONDS)
        if call.sample in self._aborted:
            self._aborted.discard(call.sample)
            made.reason = "abort"
            self._notes.end(f"s{call.sample}", CallEnd(len(made.tokens), 0))
            return
        if call.priority % 2 and len(made.tokens) == 5:
            raise EngineLostError("as it was told")
        if made.first_token_at < 0:
            made.first_token_at = self._now()
        made.tokens.append(call.sample if not made.tokens else len(made.tokens) - 1)
        made.log_probs.append(-float(len(made.tokens)))
        made.segments = _grown(made.segments, self._version)
        self._notes.step(StepRow(start, self._now() // 1000, 1, len(made.tokens), 0, 0, 1, 0))
        made.reason = "length" if len(made.tokens) == call.max_tokens else ""
        if made.reason and call.draft_tokens:
            made.draft_log_probs = [-(place + 1) / 4 for place in range(call.draft_tokens)]

    async def abort(self, samples: Sequence[int]) -> None:
        self._aborted |= set(samples) & set(self._running)

    async def pause(self) -> None:
        self._go.clear()

    async def resume(self) -> None:
        self._go.set()

    async def load(self, weights: Weights, reset: bool) -> int:
        if weights.file is not None and int(weights.file.read_text()) != weights.version:
            raise RlsimError("other weights")
        self._version = weights.version
        return self._version

    async def sleep(self) -> None:
        raise RlsimError("it does not sleep")

    async def wake(self) -> None:
        """It never slept."""

    async def close(self) -> Record:
        await self.abort(list(self._running))
        self._go.set()
        while self._running:
            await asyncio.sleep(STEP_SECONDS)
        steps = read_steps(self._files)
        return Record(windows(self.replica, steps, 0), report(steps).sampled_tokens)


def _grown(segments: Any, version: int) -> Any:
    if segments and segments[-1][0] == version:
        return (*segments[:-1], (version, segments[-1][1] + 1))
    return (*segments, (version, 1))


@dataclass(frozen=True, slots=True)
class EngineScript:
    """The spec of one."""

    replica: int
    model: Path
    needs: Needs = ONE_CORE

    def build(self, model: Path, now: Now, work: Path) -> ScriptedEngine:
        return ScriptedEngine(self.replica, model, now, work)


class ScriptedTrainer:
    """Publishes the number of the version."""

    def __init__(self, work: Path) -> None:
        self._folder = work / "weights"

    async def start(self) -> None:
        self._folder.mkdir(parents=True)

    async def train(self, command: Train, batch: Sequence[Experience]) -> Learnt:
        return Learnt([("update_actor", 0.5)], None, {"samples": float(len(batch)), "process": float(os.getpid())})

    async def publish(self, version: int) -> Weights:
        file = self._folder / f"version-{version}.safetensors"
        file.write_text(str(version))
        return Weights(version, file)

    async def close(self) -> None:
        """Files stay."""


@dataclass(frozen=True, slots=True)
class TrainerScript:
    """The spec of one."""

    model: Path
    needs: Needs = ONE_CORE

    def build(self, model: Path, work: Path) -> ScriptedTrainer:
        return ScriptedTrainer(work)
