"""An engine on a server of our own, for one test."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from small_server import SmallServer

from rlsim.engine.requests import Request
from rlsim.live.openai.engine import OpenAiEngine
from rlsim.live.openai.settings import Patience, server_settings
from rlsim.live.protocols import Call, CallOutput

QUICK = Patience(connect_seconds=15, answer_seconds=15, silence_seconds=30, abort_seconds=15)


@asynccontextmanager
async def started(server: SmallServer, patience: Patience = QUICK, **others: object) -> AsyncIterator[OpenAiEngine]:
    """An engine on the server, probed and started."""
    async with server:
        (settings,) = server_settings([server.url], patience=patience, **others)  # type: ignore[arg-type]
        engine = OpenAiEngine(settings, now=itertools.count(1).__next__)
        await engine.start()
        server.bodies.clear()
        try:
            yield engine
        finally:
            await engine.close()


def call(tokens: int, sample: int = 1, context: int = 12, ignore_eos: bool = True, priority: int = 0) -> Call:
    return Call(sample, [5] * context, tokens, ignore_eos, priority, Request(sample, 0, context, context, tokens))


def run(
    server: SmallServer, work: Callable[[OpenAiEngine], Awaitable[CallOutput]], patience: Patience = QUICK
) -> CallOutput:
    async def whole() -> CallOutput:
        async with started(server, patience) as engine:
            return await work(engine)

    return asyncio.run(asyncio.wait_for(whole(), 60))


async def made_by(engine: OpenAiEngine, order: Call) -> CallOutput:
    made = CallOutput()
    await engine.generate(order, made)
    return made
