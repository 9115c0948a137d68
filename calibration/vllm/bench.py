"""A real vLLM engine in this process, put into the states that are to be timed.

The engine core is driven directly, one step a call, so that neither the tokenizer nor the output processing, which
other processes do in service, is in the times. Contexts are *claimed*: KV blocks are allotted and marked as computed,
as when another engine has sent them, so a decode over a long context needs no prefill of it first.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np

from calibration.measure.points import StepPoint, TimedStep
from rlsim.core.errors import RlsimError
from rlsim.live.vllm.setup import EngineSetup, engine_config, prepare_environment
from rlsim.live.vllm.step_log import CallEnd, StepRow

SETTLING_STEPS = 2
"""Steps after a change of the batch that are not timed: buffers grow, graphs are found."""
REFERENCE_REPEATS = 5
NANOSECONDS = 1e9
SETTINGS = (
    "device",
    "tensor_parallel",
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_model_len",
    "kv_cache_bytes",
    "threads",
    "load_format",
)
"""Fields of the set-up that samples depend on."""


def settings_of(setup: EngineSetup) -> dict[str, Any]:
    """The model's folder and the ``SETTINGS`` by name, as JSON takes them."""
    return {"model": str(setup.model)} | {name: getattr(setup, name) for name in SETTINGS}


class StepMemory:
    """Step log of an engine in this process, kept as timed steps; vLLM's ``additional_config``."""

    def __init__(self) -> None:
        self.steps: list[TimedStep] = []

    def compute_hash(self) -> str:
        """A constant, for vLLM: compiled graphs depend on nothing here."""
        return "rlsim"

    def open(self) -> StepMemory:
        """The sink of the rows."""
        return self

    def step(self, row: StepRow) -> None:
        self.steps.append(
            TimedStep(
                seconds=(row.end_ns - row.start_ns) / NANOSECONDS,
                cpu_seconds=row.cpu_ns / NANOSECONDS,
                decodes=row.decodes,
                kv_tokens=row.kv_tokens,
                chunks=row.chunks,
                prefill_tokens=row.prefill_tokens,
                pairs=row.pairs,
                preempted=row.preempted,
            )
        )

    def end(self, call: str, end: CallEnd) -> None:
        """Nothing is kept of the ends of calls."""


class VllmBench:
    """Starts an engine at construction; ``start_seconds`` and ``import_seconds`` say how long that took."""

    def __init__(self, setup: EngineSetup) -> None:
        prepare_environment(setup.threads)
        began = time.perf_counter()
        import torch
        from vllm.v1.engine.core import EngineCore
        from vllm.v1.executor.abstract import Executor

        if setup.device == "cpu":
            torch.set_num_threads(setup.threads)
        imported = time.perf_counter()
        log = StepMemory()
        config = engine_config(setup, log)
        self.setup, self._config, self.steps = setup, config, log.steps
        self.asynchronous = bool(config.scheduler_config.async_scheduling)
        self.core: Any = EngineCore(config, Executor.get_class(config), log_stats=False)
        self.import_seconds = imported - began
        self.start_seconds = time.perf_counter() - imported
        self._names, self._random = itertools.count(), np.random.default_rng(0)
        size = 512 if setup.device == "cpu" else 4096
        self._matrix = torch.randn(size, size, device=setup.device).bfloat16()
        self._multiply()

    # -- facts --------------------------------------------------------------------------------------------

    @property
    def block_size(self) -> int:
        """Tokens a KV block."""
        return int(self._config.cache_config.block_size)

    @property
    def kv_blocks(self) -> int:
        """Blocks requests can hold; vLLM keeps one of its own."""
        return int(self._config.cache_config.num_gpu_blocks) - 1

    def facts(self) -> dict[str, Any]:
        """Settings as vLLM resolved them."""
        cache = self._config.cache_config
        return {
            **settings_of(self.setup),
            "asynchronous": self.asynchronous,
            "block_size": self.block_size,
            "kv_blocks": self.kv_blocks,
            "enable_prefix_caching": bool(cache.enable_prefix_caching),
            "enforce_eager": bool(self._config.model_config.enforce_eager),
        }

    @property
    def own_cpu(self) -> bool:
        """Whether the steps are CPU time of this process, and of one thread of it."""
        return self.setup.device == "cpu" and self.setup.tensor_parallel == 1 and self.setup.threads == 1

    def reference_seconds(self) -> float:
        """The quickest of a few matrix products on the device, which tells a slow host from a slow point."""
        return min(self._multiply() for _ in range(REFERENCE_REPEATS))

    def _multiply(self) -> float:
        """Seconds of one bf16 matrix product."""
        began = time.perf_counter()
        float((self._matrix @ self._matrix)[0, 0])
        return time.perf_counter() - began

    # -- steps --------------------------------------------------------------------------------------------

    def measure(self, point: StepPoint, repeats: int) -> list[TimedStep]:
        """``repeats`` steps of the point's composition; fewer where the engine composed them otherwise."""
        decodes = [self.add(point.context, point.context - 1) for _ in range(point.decodes)]
        for _ in range(SETTLING_STEPS if decodes else 0):
            self.step()
        if point.chunks:
            first = len(self.steps)
            whole = point.cached + point.tokens
            for _ in range(repeats):
                names = [self.add(whole, point.cached) for _ in range(point.chunks)]
                self.step()
                self.core.abort_requests(names)
                if point.decodes:
                    self.step()
                else:
                    self.drain()
        else:
            self.step()
            first = len(self.steps)
            for _ in range(repeats):
                self.step()
        steps = [step for step in self.steps[first:] if step.is_at(point)]
        self.abort(decodes)
        return steps

    def add(self, tokens: int, claimed: int = 0, response: int | None = None, prompt: list[int] | None = None) -> str:
        """Queue a request of ``tokens`` random tokens, of which the first ``claimed`` count as computed."""
        from vllm import SamplingParams
        from vllm.v1.request import Request

        name = f"r{next(self._names):09d}"
        room = self.setup.max_model_len - tokens
        request = Request(
            request_id=name,
            prompt_token_ids=prompt or self.tokens(tokens),
            sampling_params=SamplingParams(
                temperature=1.0, max_tokens=room if response is None else response, ignore_eos=True
            ),
            pooling_params=None,
            arrival_time=time.time(),
            block_hasher=self.core.request_block_hasher,
        )
        if claimed:
            # KV blocks are allotted as for a context received from another engine
            blocks = self.core.scheduler.kv_cache_manager.allocate_slots(request, claimed, delay_cache_blocks=True)
            if blocks is None:
                raise RlsimError(f"vLLM has no KV blocks left for a context of {claimed} tokens")
            request.num_computed_tokens = claimed
        self.core.add_request(request)
        return name

    def tokens(self, count: int) -> list[int]:
        """Random token ids: no two prompts share a prefix."""
        vocabulary = self._config.model_config.get_vocab_size()
        tokens: list[int] = self._random.integers(4, vocabulary, count).tolist()
        return tokens

    def step(self) -> None:
        """Let the engine run one step, or, with asynchronous scheduling, take the next one that ends."""
        before = len(self.steps)
        for _ in range(3):
            self.core.step_fn()
            if len(self.steps) > before:
                return

    def abort(self, names: list[str]) -> None:
        """Forget requests, and let the engine take notice."""
        self.core.abort_requests(names)
        self.drain()

    def drain(self) -> None:
        """Step until nothing is left."""
        while self.core.scheduler.has_requests() or self.core.batch_queue:
            self.core.step_fn()

    def close(self) -> None:
        """Let the engine end what it started."""
        self.core.shutdown()
