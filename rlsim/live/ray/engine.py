"""A replica whose engine is in an actor: calls go there, their tokens come back in one stream of reports.

Tokens that were reported before the actor was lost have been taken; an engine's log is read on its node all the
same, where that is still there. Times are turned from the node's clock into the run's as they come.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlsim.core.errors import RlsimError
from rlsim.core.ticks import Ticks
from rlsim.engine.requests import Request
from rlsim.live.protocols import Call, CallOutput, EngineLostError, Marked, Now, Record, Weights
from rlsim.live.ray.actor import Actor, ActorGoneError, Hire
from rlsim.live.ray.clock import Offset, host, offset
from rlsim.live.ray.files import FileTransfer
from rlsim.live.ray.host import CallReport, EngineHost, Location, last_record, remove
from rlsim.live.running import MarkTeller
from rlsim.live.site import EngineSpec

CLOSE_SECONDS = 30.0
"""Time for an actor to stop its engine."""
REMAINS_SECONDS = 10.0
"""Time for a node to report what is left of an actor: the node may be gone itself."""
SAME_CLOCK = Offset(0, 0)


@dataclass(slots=True)
class _RemoteCall:
    """A call under way."""

    call: Call
    output: CallOutput
    ended: asyncio.Future[RlsimError | None]
    begun: asyncio.Future[Any]


class RayEngine:
    """A replica; ``hire`` makes its actor, ``work`` is the run's folder where it is driven."""

    def __init__(
        self, replica: int, spec: EngineSpec, now: Now, work: Path, hire: Hire, transfer: FileTransfer
    ) -> None:
        self.replica, self._spec, self._now, self._work = replica, spec, now, work
        self._hire, self._transfer = hire, transfer
        self._numbers = itertools.count()
        self._open: dict[int, _RemoteCall] = {}
        self._marks = MarkTeller()
        self._actor: Actor | None = None
        self._listener: asyncio.Task[None] | None = None
        self._lost: EngineLostError | None = None
        self._last_step_end: Ticks = -1
        self.location: Location | None = None
        """Where it is, once it has started."""
        self.offset = SAME_CLOCK
        """The clock of its node."""

    def set_marked(self, marked: Marked) -> None:
        """Tell ``marked`` when a call comes to one of its marks, as far as has been reported."""
        self._marks.marked = marked

    async def start(self) -> None:
        """Hire the actor, compare clocks, bring the model where it was made for the run, start the engine."""
        self._actor = self._hire(EngineHost, self._spec, self._transfer.porter)
        self.location = await self._ask("location")
        if not self.location.host or self.location.host != host():
            self.offset = await offset(lambda: self._ask("clock"))
        model = await self._transfer.model(self._spec.model, self._work, self.location.node)
        await self._ask("start", model)
        self._listener = asyncio.create_task(self._listen(self._actor))

    async def _ask(self, method: str, *arguments: Any) -> Any:
        if self._actor is None or self._lost is not None:
            raise EngineLostError(f"the actor of replica {self.replica} is gone, or has not been started")
        try:
            return await self._actor.ask(method, *arguments)
        except ActorGoneError as error:
            raise EngineLostError(f"the actor of replica {self.replica} is gone: {error}") from error

    # -- calls ----------------------------------------------------------------------------------------

    async def generate(self, call: Call, output: CallOutput) -> None:
        """Run a call to its end; what had been reported when the actor was lost is in ``output``."""
        number = next(self._numbers)
        # without what only simulated engines need
        prompt, prompt_tokens = call.request.prompt, call.request.prompt_tokens
        request = Request(call.sample, prompt, prompt_tokens, len(call.context), call.max_tokens)
        bare = replace(call, context=tuple(call.context), request=request)
        begun = asyncio.ensure_future(self._ask("begin", number, bare))
        opened = self._open[number] = _RemoteCall(call, output, asyncio.get_running_loop().create_future(), begun)
        try:
            await begun
            fault = await opened.ended
        finally:
            del self._open[number]
        if fault is not None:
            raise fault

    async def _listen(self, actor: Actor) -> None:
        """Take reports until the engine is closed, or its actor gone; then no call is under way any more."""
        why = "its engine is closed"
        try:
            async for reports in actor.stream("reports"):
                for report in reports:
                    self._take(report)
        except ActorGoneError as error:
            why = str(error)
        finally:
            self._lost = EngineLostError(f"the actor of replica {self.replica} is gone: {why}")
            for opened in self._open.values():
                _end(opened, self._lost)

    def _take(self, report: CallReport) -> None:
        opened = self._open.get(report.number)
        if opened is None:
            return
        output, before = opened.output, len(opened.output.tokens)
        output.tokens += report.tokens
        output.log_probs += report.log_probs
        output.segments = report.segments
        if output.first_token_at < 0 <= report.first_token_at:
            output.first_token_at = min(self.offset.ticks(report.first_token_at, self._now), self._now())
        if report.end is not None:
            output.undelivered_tokens, output.reason = report.end.undelivered_tokens, report.end.reason
            output.draft_log_probs = report.end.draft_log_probs
            _end(opened, report.fault)
        self._marks.grown(opened.call, output, before, report.end is not None)

    async def abort(self, samples: Sequence[int]) -> None:
        """End calls, once they have reached the actor."""
        wanted = set(samples)
        begun = [opened.begun for opened in self._open.values() if opened.call.sample in wanted]
        await asyncio.gather(*begun, return_exceptions=True)
        await self._ask("abort", list(samples))

    # -- weights --------------------------------------------------------------------------------------

    async def pause(self) -> None:
        """Let the step under way end and no further one begin."""
        ended = await self._ask("pause")
        self._last_step_end = min(self.offset.ticks(ended, self._now), self._now()) if ended >= 0 else -1

    def last_step_end(self) -> Ticks:
        """Value that came with the last pause."""
        return self._last_step_end

    async def resume(self) -> None:
        await self._ask("resume")

    async def load(self, weights: Weights, reset: bool) -> int:
        """Take new weights in place, brought to the engine's node where they are on another."""
        payload = None
        if weights.file is not None and self.location is not None:
            payload = await self._transfer.payload(weights.file, self.location.node)
        served: int = await self._ask("load", weights.version, payload, reset)
        return served

    async def sleep(self) -> None:
        await self._ask("sleep")

    async def wake(self) -> None:
        await self._ask("wake")

    # -- the end --------------------------------------------------------------------------------------

    async def close(self) -> Record:
        """Stop the engine and end the actor; the record of a lost one is read from the log on its node."""
        actor, listener, self._actor, self._listener = self._actor, self._listener, None, None
        if actor is None:
            return Record()
        record = None if listener is None else await self._last(actor, listener)
        actor.end()
        if self.location is not None:
            is_lost = listener is not None and record is None
            with contextlib.suppress(ActorGoneError, TimeoutError):
                async with asyncio.timeout(REMAINS_SECONDS):
                    if is_lost:
                        record = await actor.after(last_record, self._spec, self.location.folder)
                    else:
                        await actor.after(remove, self.location.folder)
        record, ticks = record or Record(), self.offset.ticks(0, self._now)
        rows = [row._replace(start=row.start + ticks, end=row.end + ticks) for row in record.windows]
        return replace(record, windows=rows)

    async def _last(self, actor: Actor, listener: asyncio.Task[None]) -> Record | None:
        """The engine's own answer, when all reports have been taken; None when there is none."""
        with contextlib.suppress(ActorGoneError, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                record: Record = await actor.ask("close")
                await listener
                return record
        listener.cancel()
        return None


def _end(opened: _RemoteCall, fault: RlsimError | None) -> None:
    if not opened.ended.done():
        opened.ended.set_result(fault)
