"""What is tried on every real server: calls, cuts, whole runs."""

from __future__ import annotations

import asyncio
import time
import urllib.request
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from policy_runs import scenario

from rlsim.engine.requests import Request
from rlsim.live.openai.capabilities import ServerCapabilities
from rlsim.live.openai.engine import OpenAiEngine
from rlsim.live.openai.probe import probe
from rlsim.live.openai.settings import Patience, ServerSettings, server_settings
from rlsim.live.protocols import Call, CallOutput
from rlsim.resolve import ResolvedScenario, resolve

T = TypeVar("T")
PATIENCE = Patience(silence_seconds=60, gauge_seconds=0.05)


def settings_for(port: int, model: str = "") -> ServerSettings:
    (settings,) = server_settings([f"http://127.0.0.1:{port}/v1"], model=model, patience=PATIENCE)
    return settings


def offers_of(settings: ServerSettings) -> ServerCapabilities:
    return asyncio.run(probe(settings))


def with_engine(
    settings: ServerSettings,
    work: Callable[[OpenAiEngine], Awaitable[T]],
    capabilities: ServerCapabilities | None = None,
) -> T:
    """Something done with a started engine."""

    async def whole() -> T:
        zero = time.monotonic()
        engine = OpenAiEngine(settings, lambda: round((time.monotonic() - zero) * 1e12), capabilities)
        await engine.start()
        try:
            return await asyncio.wait_for(work(engine), 120)
        finally:
            await engine.close()

    return asyncio.run(whole())


def call(tokens: int, sample: int = 1, context: int = 20, ignore_eos: bool = True, priority: int = 0) -> Call:
    prompt = [7 + (sample * 31 + place * 17) % 200 for place in range(context)]
    return Call(sample, prompt, tokens, ignore_eos, priority, Request(sample, 0, context, context, tokens))


async def calls_of_many_lengths(engine: OpenAiEngine) -> list[tuple[int, CallOutput]]:
    """(tokens ordered, what was made) of a dozen calls at once."""
    orders = [(call(3 + 9 * sample, sample=sample, priority=sample % 3), CallOutput()) for sample in range(12)]
    await asyncio.gather(*(engine.generate(order, made) for order, made in orders))
    return [(order.max_tokens, made) for order, made in orders]


def counted(settings: ServerSettings, name: str) -> int:
    """A counter of the server's own."""
    with urllib.request.urlopen(f"{settings.root}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return int(sum(float(line.split()[-1]) for line in lines if line.startswith(name)))


async def cut_after_five(engine: OpenAiEngine) -> CallOutput:
    """A long call that is aborted once five tokens are there."""
    made = CallOutput()
    task = asyncio.create_task(engine.generate(call(450), made))
    while len(made.tokens) < 5:
        await asyncio.sleep(0.001)
    await engine.abort([1])
    await task
    return made


def plan_on(
    urls: list[str], preset: str, model: str = "", taught: dict[str, Any] | None = None, **parameters: Any
) -> ResolvedScenario:
    """A small run of a preset on servers, everything else paced unless ``taught`` says otherwise."""
    live = {"servers": urls, "trainer": "paced", "gauge_interval_seconds": 0.1, **(taught or {})}
    live |= {"server_model": model} if model else {}
    changes = {"rollout__max_num_seqs": 4, "rollout__gpus": len(urls), "rollout__max_model_len": 256, "live": live}
    changes |= {"workload__response_tokens": {"law": "uniform", "low_tokens": 20, "high_tokens": 150}}
    changes |= {"trainer": {"gpus": len(urls), "mfu": 0.4, "fixed_seconds_per_step": 0.02}}
    return resolve(scenario({"preset": preset, **parameters}, **changes))
