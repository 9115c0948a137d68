"""A replica whose engine is in an actor: calls go there, what they make comes back in one stream of reports.

Tokens that were reported before the actor was lost have been taken; an engine's notes are read on its node all the
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
from rlsim.live.protocols import Call, EngineLostError, Made, Marked, Now, Record, Weights
from rlsim.live.ray.actor import Actor, ActorGoneError, Hire
from rlsim.live.ray.clock import Offset, host, offset
from rlsim.live.ray.files import Freight
from rlsim.live.ray.host import EngineHost, News, Presence, remains, remove
from rlsim.live.running import MarkTeller
from rlsim.live.site import EngineSpec

CLOSE_SECONDS = 30.0
"""What an actor gets to stop its engine."""
REMAINS_SECONDS = 10.0
"""What a node gets to tell what is left of one: it may be gone itself."""
SAME_CLOCK = Offset(0, 0)


@dataclass(slots=True)
class _Open:
    """A call under way."""

    call: Call
    made: Made
    ended: asyncio.Future[RlsimError | None]
    begun: asyncio.Future[Any]


class RayEngine:
    """A replica; ``hire`` makes its actor, ``work`` is the run's folder where it is driven."""

    def __init__(self, replica: int, spec: EngineSpec, now: Now, work: Path, hire: Hire, freight: Freight) -> None:
        self.replica, self._spec, self._now, self._work = replica, spec, now, work
        self._hire, self._freight = hire, freight
        self._numbers = itertools.count()
        self._open: dict[int, _Open] = {}
        self._marks = MarkTeller()
        self._actor: Actor | None = None
        self._listener: asyncio.Task[None] | None = None
        self._lost: EngineLostError | None = None
        self._last_step_end: Ticks = -1
        self.presence: Presence | None = None
        """Where it is, once it has started."""
        self.offset = SAME_CLOCK
        """The clock of its node."""

    def set_marked(self, marked: Marked) -> None:
        """Tell ``marked`` when a call comes to one of its marks, as far as has been reported."""
        self._marks.marked = marked

    async def start(self) -> None:
        """Hire the actor, compare clocks, bring the model where it was made for the run, start the engine."""
        self._actor = self._hire(EngineHost, self._spec, self._freight.porter)
        self.presence = await self._ask("presence")
        if not self.presence.host or self.presence.host != host():
            self.offset = await offset(lambda: self._ask("clock"))
        model = await self._freight.model(self._spec.model, self._work, self.presence.node)
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

    async def generate(self, call: Call, made: Made) -> None:
        """Run a call to its end; what had been reported when the actor was lost is in ``made``."""
        number = next(self._numbers)
        begun = asyncio.ensure_future(self._ask("begin", number, _bare(call)))
        opened = self._open[number] = _Open(call, made, asyncio.get_running_loop().create_future(), begun)
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
                for news in reports:
                    self._take(news)
        except ActorGoneError as error:
            why = str(error)
        finally:
            self._lost = EngineLostError(f"the actor of replica {self.replica} is gone: {why}")
            for opened in self._open.values():
                _end(opened, self._lost)

    def _take(self, news: News) -> None:
        opened = self._open.get(news.number)
        if opened is None:
            return
        made, before = opened.made, len(opened.made.tokens)
        made.tokens += news.tokens
        made.log_probs += news.log_probs
        made.segments = news.segments
        if made.first_token_at < 0 <= news.first_token_at:
            made.first_token_at = min(self.offset.ticks(news.first_token_at, self._now), self._now())
        if news.made is not None:
            made.undelivered_tokens, made.reason = news.made.undelivered_tokens, news.made.reason
            made.draft_log_probs = news.made.draft_log_probs
            _end(opened, news.fault)
        self._marks.grown(opened.call, made, before, news.made is not None)

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
        """As it was told with the last pause."""
        return self._last_step_end

    async def resume(self) -> None:
        """Go on."""
        await self._ask("resume")

    async def load(self, weights: Weights, reset: bool) -> int:
        """Take new weights in place, brought to the engine's node where they are on another."""
        parcel = None
        if weights.file is not None and self.presence is not None:
            parcel = await self._freight.parcel(weights.file, self.presence.node)
        served: int = await self._ask("load", weights.version, parcel, reset)
        return served

    async def sleep(self) -> None:
        """As the engine's."""
        await self._ask("sleep")

    async def wake(self) -> None:
        """As the engine's."""
        await self._ask("wake")

    # -- the end --------------------------------------------------------------------------------------

    async def close(self) -> Record:
        """Stop the engine and end the actor; of one that is gone, what is left on its node."""
        actor, listener, self._actor, self._listener = self._actor, self._listener, None, None
        if actor is None:
            return Record()
        record = None if listener is None else await self._last(actor, listener)
        actor.end()
        if self.presence is not None:
            left = await self._remains(actor, self.presence.folder, listener is not None and record is None)
            record = record or left
        return self._on_own_clock(record or Record())

    async def _last(self, actor: Actor, listener: asyncio.Task[None]) -> Record | None:
        """The engine's own answer, when all reports have been taken; None when there is none."""
        with contextlib.suppress(ActorGoneError, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                record: Record = await actor.ask("close")
                await listener
                return record
        listener.cancel()
        return None

    async def _remains(self, actor: Actor, folder: Path, is_wanted: bool) -> Record | None:
        """Remove the actor's files; what they tell, if it ``is_wanted``."""
        with contextlib.suppress(ActorGoneError, TimeoutError):
            async with asyncio.timeout(REMAINS_SECONDS):
                if is_wanted:
                    return await actor.after(remains, self._spec, folder)
                await actor.after(remove, folder)
        return None

    def _on_own_clock(self, record: Record) -> Record:
        ticks = self.offset.ticks(0, self._now)
        rows = [row._replace(start=row.start + ticks, end=row.end + ticks) for row in record.windows]
        return replace(record, windows=rows)


def _end(opened: _Open, fault: RlsimError | None) -> None:
    if not opened.ended.done():
        opened.ended.set_result(fault)


def _bare(call: Call) -> Call:
    """The call without what only simulated engines need."""
    tokens, most = len(call.context), call.max_tokens
    request = Request(call.sample, call.request.prompt, call.request.prompt_tokens, tokens, most)
    return replace(call, context=tuple(call.context), request=request)
