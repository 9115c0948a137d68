"""A few dozen requests on the real engine and on the simulated one with the fitted law: how far apart are they?"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibration.serving.engines import replay
from calibration.serving.score import end_to_end_seconds, first_token_seconds
from calibration.serving.timelines import EngineSettings, RecordedRun, Timeline
from calibration.vllm.bench import VllmBench
from rlsim.costs.step_model import StepTimeModel
from rlsim.engine.requests import EngineLimits

REQUESTS = 50
MEAN_PROMPT_TOKENS, MEAN_RESPONSE_TOKENS = 128, 64
ARRIVAL_STEPS = 2.0
"""Mean gap between arrivals, in steps of one decode: busy, but not all at once."""


@dataclass(frozen=True, slots=True)
class EndToEnd:
    """Measured and simulated seconds."""

    measured: RecordedRun
    simulated: tuple[Timeline, ...]
    clock: str
    """Clock of the measured run, in words."""

    def rows(self) -> Iterator[tuple[str, float, float]]:
        """Statistic, measured, simulated."""
        real, ours = self.measured.timelines, self.simulated
        yield "mean end-to-end", _mean(end_to_end_seconds(real)), _mean(end_to_end_seconds(ours))
        yield "mean TTFT", _mean(first_token_seconds(real)), _mean(first_token_seconds(ours))
        yield "makespan", max(t.last_token_seconds for t in real), max(t.last_token_seconds for t in ours)

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"{len(self.simulated)} requests on the real engine against the simulated one, both on {self.clock}:"
        for name, real, ours in self.rows():
            yield f"  {name:<16} measured {real:.3f} s, simulated {ours:.3f} s ({ours / real - 1:+.1%})"


def run_requests(engine: VllmBench, law: StepTimeModel, seed: int = 0) -> RecordedRun:
    """Random prompts and long-tailed responses that arrive while others run; times on :func:`clock_of` the engine."""
    generator = random.Random(seed)
    gap = ARRIVAL_STEPS * law.decode_seconds(1, MEAN_PROMPT_TOKENS)
    due, at, half = [], 0.0, engine.setup.max_model_len // 2
    for _ in range(REQUESTS):
        prompt = max(8, min(int(generator.expovariate(1 / MEAN_PROMPT_TOKENS)), half))
        response = max(2, min(int(generator.lognormvariate(0, 0.8) * MEAN_RESPONSE_TOKENS), half - 1))
        due.append((at, prompt, response))
        at += generator.expovariate(1 / gap)
    return RecordedRun("calibration check", _settings(engine), tuple(_drive(engine, due)))


def clock_of(engine: VllmBench) -> tuple[Callable[[], float], str]:
    """Wall clock; where steps are this process's own CPU time, that, so that other processes are not in it."""
    if engine.own_cpu:
        return time.process_time, "the CPU time of this process"
    return time.perf_counter, "the wall clock"


def check(engine_facts: dict[str, Any], run: RecordedRun, law: StepTimeModel, clock: str) -> EndToEnd:
    """Simulate the requests of ``run`` at their arrival times on one replica."""
    limits = EngineLimits(
        max_num_seqs=engine_facts["max_num_seqs"],
        max_num_batched_tokens=engine_facts["max_num_batched_tokens"],
        max_model_len=engine_facts["max_model_len"],
        block_size=engine_facts["block_size"],
        kv_blocks=engine_facts["kv_blocks"],
        enable_prefix_caching=engine_facts["enable_prefix_caching"],
    )
    replayed = replay(run, limits, law, bool(engine_facts["asynchronous"]))
    return EndToEnd(run, replayed.timelines, clock)


def _drive(engine: VllmBench, due: list[tuple[float, int, int]]) -> list[Timeline]:
    """Step the engine, adding what has become due; a request's tokens are seen at the ends of steps."""
    clock, _ = clock_of(engine)
    begun, waiting = clock(), list(reversed(due))
    requests: list[Any] = []
    queued: list[float] = []
    token_times: dict[int, list[float]] = {}
    while waiting or engine.core.scheduler.has_requests():
        now = clock() - begun
        while waiting and waiting[-1][0] <= now:
            _, prompt, response = waiting.pop()
            requests.append(engine.core.scheduler.requests[engine.add(prompt, response=response)])
            queued.append(now)
        if engine.core.scheduler.has_requests():
            engine.step()
            _note(requests, token_times, clock() - begun)
    engine.drain()
    return [
        Timeline(request.num_prompt_tokens, request.num_output_tokens, queued[index], *token_times[index])
        for index, request in enumerate(requests)
    ]


def _note(requests: list[Any], token_times: dict[int, list[float]], now: float) -> None:
    for index, request in enumerate(requests):
        times = token_times.setdefault(index, [])
        if not times and request.num_output_tokens:
            times.append(now)
        if len(times) == 1 and request.is_finished():
            times.append(now)


def _settings(engine: VllmBench) -> EngineSettings:
    setup = engine.setup
    return EngineSettings(
        model=str(setup.model),
        engine_version="",
        tensor_parallel=setup.tensor_parallel,
        max_num_seqs=setup.max_num_seqs,
        max_num_batched_tokens=setup.max_num_batched_tokens,
        block_size=engine.block_size,
        kv_blocks=engine.kv_blocks,
    )


def _mean(values: Any) -> float:
    return float(np.mean(values))
