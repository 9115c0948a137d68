"""Host inside an actor: one engine or one trainer, built there, and a folder of the node for its files."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlsim.core.commands import Train
from rlsim.core.errors import ParameterError, RlsimError
from rlsim.core.events import Segments
from rlsim.core.ticks import Ticks
from rlsim.live.protocols import Call, CallOutput, Engine, Experience, Learnt, LiveTrainer, Record, TellsSteps, Weights
from rlsim.live.ray.actor import Porter
from rlsim.live.ray.clock import host, node_now, node_ns
from rlsim.live.ray.files import Payload, unpack, unpack_model
from rlsim.live.site import EngineSpec, TrainerSpec

REPORT_SECONDS = 0.02
"""Interval of reports of tokens; the end of a call is reported at once."""


@dataclass(frozen=True, slots=True)
class Location:
    """Place of an actor: its node, host, process and folder."""

    node: str
    host: str
    folder: Path
    """Folder of its files, on its node."""
    process: int


@dataclass(frozen=True, slots=True)
class CallReport:
    """Tokens of a call since the last report."""

    number: int
    tokens: list[int]
    log_probs: list[float]
    segments: Segments
    """Versions of all its tokens so far."""
    first_token_at: Ticks
    """By the node's clock."""
    end: CallOutput | None = None
    """When it has ended: its reason, undelivered tokens, log-probs of a draft; nothing else is in it."""
    fault: RlsimError | None = None
    """Why it has ended before its end."""


@dataclass(slots=True)
class _HostedCall:
    """A call under way."""

    output: CallOutput
    reported_tokens: int = 0
    is_done: bool = False
    fault: RlsimError | None = None

    def report(self, number: int) -> CallReport | None:
        """Tokens and end that have not been reported; None when there is nothing."""
        output, end, before = self.output, None, self.reported_tokens
        tokens, log_probs = output.tokens[before:], output.log_probs[before:]
        if not tokens and not self.is_done:
            return None
        self.reported_tokens += len(tokens)
        if self.is_done:
            end = CallOutput(
                reason=output.reason,
                undelivered_tokens=output.undelivered_tokens,
                draft_log_probs=output.draft_log_probs,
            )
        return CallReport(number, tokens, log_probs, output.segments, output.first_token_at, end, self.fault)


class EngineHost:
    """One engine and its calls by number."""

    def __init__(self, spec: EngineSpec, porter: Porter) -> None:
        self._spec, self._porter = spec, porter
        self._folder = Path(tempfile.mkdtemp(prefix="rlsim-engine-"))
        self._engine: Engine
        self._open: dict[int, _HostedCall] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_news = asyncio.Event()
        self._is_closed = False

    async def location(self) -> Location:
        """Place of this actor."""
        return Location(self._porter.node(), host(), self._folder, os.getpid())

    async def clock(self) -> int:
        """Nanoseconds of the node's monotonic clock."""
        return node_ns()

    async def start(self, model: tuple[Payload, ...]) -> None:
        """Build the engine and start it."""
        folder = await _model(self._porter, self._spec.model, model, self._folder)
        self._engine = self._spec.build(folder, node_now, log_folder(self._folder))
        await self._engine.start()

    async def begin(self, number: int, call: Call) -> None:
        """Start a call: it is under way, and can be aborted, when this returns."""
        opened = self._open[number] = _HostedCall(CallOutput())
        task = asyncio.create_task(self._run(opened, call))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.sleep(0)
        self._has_news.set()

    async def _run(self, opened: _HostedCall, call: Call) -> None:
        try:
            await self._engine.generate(call, opened.output)
        except RlsimError as fault:
            opened.fault = fault
        except Exception as error:
            opened.fault = RlsimError(f"the engine failed: {type(error).__name__}: {error}")
        opened.is_done = True
        self._has_news.set()

    async def reports(self) -> AsyncIterator[list[CallReport]]:
        """Reports of all calls, at an end or an interval, until the engine is closed."""
        while self._open or not self._is_closed:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._has_news.wait(), REPORT_SECONDS if self._open else None)
            self._has_news.clear()
            calls = self._open.items()
            reports = [report for number, opened in calls if (report := opened.report(number)) is not None]
            for report in reports:
                if report.end is not None:
                    del self._open[report.number]
            if reports:
                yield reports

    async def abort(self, samples: Sequence[int]) -> None:
        """End calls."""
        await self._engine.abort(samples)

    async def pause(self) -> Ticks:
        """Pause; when the last step ended, by the node's clock: now, where the engine does not tell."""
        await self._engine.pause()
        return self._engine.last_step_end() if isinstance(self._engine, TellsSteps) else node_now()

    async def resume(self) -> None:
        """Go on."""
        await self._engine.resume()

    async def load(self, version: int, payload: Payload | None, reset: bool) -> int:
        """Load weights; a file from another node is gone when it has been taken."""
        file = None if payload is None else await unpack(self._porter, payload, self._folder)
        served = await self._engine.load(Weights(version, file), reset)
        if file is not None and file.is_relative_to(self._folder):
            file.unlink()
        return served

    async def sleep(self) -> None:
        """Give memory back."""
        await self._engine.sleep()

    async def wake(self) -> None:
        """Take memory back."""
        await self._engine.wake()

    async def close(self) -> Record:
        """Close the engine; reports end with the ends of all calls."""
        record = await self._engine.close()
        self._is_closed = True
        self._has_news.set()
        return record


def log_folder(folder: Path) -> Path:
    """Folder of an engine's log."""
    return folder / "engine"


def last_record(spec: EngineSpec, folder: Path) -> Record:
    """Record of an engine whose actor is gone, from its log on this node; its files are removed."""
    record = asyncio.run(spec.build(spec.model, node_now, log_folder(folder)).close())
    remove(folder)
    return record


def remove(folder: Path) -> None:
    """Remove the files of an actor that is gone."""
    shutil.rmtree(folder, ignore_errors=True)


class TrainerHost:
    """One trainer."""

    def __init__(self, spec: TrainerSpec, porter: Porter) -> None:
        self._spec, self._porter = spec, porter
        self._folder = Path(tempfile.mkdtemp(prefix="rlsim-trainer-"))
        self._trainer: LiveTrainer

    async def location(self) -> Location:
        """Place of this actor."""
        return Location(self._porter.node(), host(), self._folder, os.getpid())

    async def start(self, model: tuple[Payload, ...]) -> None:
        folder = await _model(self._porter, self._spec.model, model, self._folder)
        self._trainer = self._spec.build(folder, self._folder)
        await self._trainer.start()

    async def train(self, command: Train, batch: Sequence[Experience]) -> Learnt:
        return await self._trainer.train(command, batch)

    async def publish(self, version: int) -> Weights:
        """Publish weights: the file is on this node."""
        return await self._trainer.publish(version)

    async def pack(self, file: Path) -> Any:
        """Handle by which engines on other nodes fetch a published file."""
        return await asyncio.to_thread(self._porter.pack, file)

    async def close(self) -> None:
        await self._trainer.close()


async def _model(porter: Porter, folder: Path, payloads: tuple[Payload, ...], work: Path) -> Path:
    """Folder of the model on this node; ``ParameterError`` where there is none."""
    model = await unpack_model(porter, folder, payloads, work / "model")
    if not (model / "config.json").is_file():
        allowed = "a folder that every node of the cluster has under this path"
        raise ParameterError("live.model", str(model), allowed)
    return model
