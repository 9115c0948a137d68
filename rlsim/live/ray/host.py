"""What runs inside an actor: one engine or one trainer, built there, and a folder of the node for its files."""

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
from rlsim.live.protocols import Call, Engine, Experience, Learnt, LiveTrainer, Made, Record, TellsSteps, Weights
from rlsim.live.ray.actor import Porter
from rlsim.live.ray.clock import host, node_now, node_ns
from rlsim.live.ray.files import Parcel, unpack, unpack_model
from rlsim.live.site import EngineSpec, TrainerSpec

REPORT_SECONDS = 0.02
"""Between two reports of tokens; the end of a call is reported at once."""


@dataclass(frozen=True, slots=True)
class Presence:
    """Where an actor is."""

    node: str
    host: str
    folder: Path
    """Of its files, on its node."""
    process: int


@dataclass(frozen=True, slots=True)
class News:
    """What a call has made since the last report."""

    number: int
    tokens: list[int]
    log_probs: list[float]
    segments: Segments
    """Of all its tokens so far."""
    first_token_at: Ticks
    """By the node's clock."""
    made: Made | None = None
    """When it has ended: its reason, what nobody got, what was said of a draft; nothing else is in it."""
    fault: RlsimError | None = None
    """Why it has ended before its end."""


@dataclass(slots=True)
class _Open:
    """A call under way."""

    made: Made
    told_tokens: int = 0
    is_done: bool = False
    fault: RlsimError | None = None

    def news(self, number: int) -> News | None:
        """What has not been reported; None when there is nothing."""
        made, told = self.made, self.told_tokens
        tokens, log_probs = made.tokens[told:], made.log_probs[told:]
        if not tokens and not self.is_done:
            return None
        self.told_tokens += len(tokens)
        return News(number, tokens, log_probs, made.segments, made.first_token_at, self._end(), self.fault)

    def _end(self) -> Made | None:
        """What is told once, at the end."""
        made = self.made
        if not self.is_done:
            return None
        return Made(
            reason=made.reason, undelivered_tokens=made.undelivered_tokens, draft_log_probs=made.draft_log_probs
        )


class EngineHost:
    """One engine and its calls by number."""

    def __init__(self, spec: EngineSpec, porter: Porter) -> None:
        self._spec, self._porter = spec, porter
        self._folder = Path(tempfile.mkdtemp(prefix="rlsim-engine-"))
        self._engine: Engine
        self._open: dict[int, _Open] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._something = asyncio.Event()
        self._is_closed = False

    async def presence(self) -> Presence:
        """Where this is."""
        return Presence(self._porter.node(), host(), self._folder, os.getpid())

    async def clock(self) -> int:
        """Nanoseconds of the node's monotonic clock."""
        return node_ns()

    async def start(self, model: tuple[Parcel, ...]) -> None:
        """Build the engine and start it."""
        folder = await _model(self._porter, self._spec.model, model, self._folder)
        self._engine = self._spec.build(folder, node_now, notes_of(self._folder))
        await self._engine.start()

    async def begin(self, number: int, call: Call) -> None:
        """Start a call: it is under way, and can be aborted, when this returns."""
        opened = self._open[number] = _Open(Made())
        task = asyncio.create_task(self._run(opened, call))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.sleep(0)
        self._something.set()

    async def _run(self, opened: _Open, call: Call) -> None:
        try:
            await self._engine.generate(call, opened.made)
        except RlsimError as fault:
            opened.fault = fault
        except Exception as error:
            opened.fault = RlsimError(f"the engine failed: {type(error).__name__}: {error}")
        opened.is_done = True
        self._something.set()

    async def reports(self) -> AsyncIterator[list[News]]:
        """All that calls make, until the engine is closed."""
        while self._open or not self._is_closed:
            await self._wait()
            news = [told for number, opened in self._open.items() if (told := opened.news(number)) is not None]
            for told in news:
                if told.made is not None:
                    del self._open[told.number]
            if news:
                yield news

    async def _wait(self) -> None:
        """For the end of a call, or a while."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._something.wait(), REPORT_SECONDS if self._open else None)
        self._something.clear()

    async def abort(self, samples: Sequence[int]) -> None:
        """As the engine's."""
        await self._engine.abort(samples)

    async def pause(self) -> Ticks:
        """As the engine's; when its last step ended, by the node's clock: now, where the engine does not tell."""
        await self._engine.pause()
        return self._engine.last_step_end() if isinstance(self._engine, TellsSteps) else node_now()

    async def resume(self) -> None:
        """As the engine's."""
        await self._engine.resume()

    async def load(self, version: int, parcel: Parcel | None, reset: bool) -> int:
        """As the engine's; a file from another node is gone when it has been taken."""
        file = None if parcel is None else await unpack(self._porter, parcel, self._folder)
        served = await self._engine.load(Weights(version, file), reset)
        if file is not None and file.is_relative_to(self._folder):
            file.unlink()
        return served

    async def sleep(self) -> None:
        """As the engine's."""
        await self._engine.sleep()

    async def wake(self) -> None:
        """As the engine's."""
        await self._engine.wake()

    async def close(self) -> Record:
        """As the engine's; reports end when the ends of all calls have been told."""
        record = await self._engine.close()
        self._is_closed = True
        self._something.set()
        return record


def notes_of(folder: Path) -> Path:
    """What an engine writes down goes here."""
    return folder / "engine"


def remains(spec: EngineSpec, folder: Path) -> Record:
    """What an engine whose actor is gone has noted on this node; its files are removed."""
    record = asyncio.run(spec.build(spec.model, node_now, notes_of(folder)).close())
    remove(folder)
    return record


def remove(folder: Path) -> None:
    """The files of an actor that is gone."""
    shutil.rmtree(folder, ignore_errors=True)


class TrainerHost:
    """One trainer."""

    def __init__(self, spec: TrainerSpec, porter: Porter) -> None:
        self._spec, self._porter = spec, porter
        self._folder = Path(tempfile.mkdtemp(prefix="rlsim-trainer-"))
        self._trainer: LiveTrainer

    async def presence(self) -> Presence:
        """Where this is."""
        return Presence(self._porter.node(), host(), self._folder, os.getpid())

    async def start(self, model: tuple[Parcel, ...]) -> None:
        """Build the trainer and start it."""
        folder = await _model(self._porter, self._spec.model, model, self._folder)
        self._trainer = self._spec.build(folder, self._folder)
        await self._trainer.start()

    async def train(self, command: Train, batch: Sequence[Experience]) -> Learnt:
        """As the trainer's."""
        return await self._trainer.train(command, batch)

    async def publish(self, version: int) -> Weights:
        """As the trainer's: the file is on this node."""
        return await self._trainer.publish(version)

    async def pack(self, file: Path) -> Any:
        """What engines on other nodes fetch a published file by."""
        return await asyncio.to_thread(self._porter.pack, file)

    async def close(self) -> None:
        """As the trainer's."""
        await self._trainer.close()


async def _model(porter: Porter, folder: Path, parcels: tuple[Parcel, ...], work: Path) -> Path:
    """Where the model is on this node; ``ParameterError`` where it is not."""
    found = await unpack_model(porter, folder, parcels, work / "model")
    if not (found / "config.json").is_file():
        allowed = "a folder that every node of the cluster has under this path"
        raise ParameterError("live.model", str(found), allowed)
    return found
