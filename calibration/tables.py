"""Step laws from the measured-kernel tables of aiconfigurator-core (Apache-2.0).

The tables compose a step from timed kernels of one GPU type and engine version. They price uniform batches
(all contexts of a step equal), so a law fitted to them does too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from calibration.stepfit import StepSample, fit_step_law, hold_out_by_kind, hold_out_error
from rlsim.core.errors import ParameterError
from rlsim.core.steptime import attention_pairs
from rlsim.costs.profile import Profile
from rlsim.costs.provenance import Provenance

BATCHES = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
CONTEXTS = (64, 128, 256, 512, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 65536)
CHUNKS = (
    16,
    32,
    64,
    96,
    128,
    192,
    256,
    384,
    512,
    768,
    1024,
    1536,
    2048,
    3072,
    4096,
    6144,
    8192,
    12288,
    16384,
)
CACHED = (0, 1024, 4096, 16384)
PROMPTS = (128, 512, 2048)
MAX_PREFILL_TOKENS = 16384

DEVICES = {
    "h100_sxm": "H100-SXM",
    "h200_sxm": "H200-SXM",
    "a100_sxm": "A100-SXM-80GB",
    "b200_sxm": "B200",
    "l40s": "L40S",
}
"""Names of the tables' systems in our device catalogue."""

UNIFORM = "The tables price uniform batches: mixed context lengths cost 2-3 % more in the median."
SOURCE = "aiconfigurator-core {version} tables of {system}, {backend} {backend_version}"
LICENCE = "Apache-2.0; data copyright NVIDIA CORPORATION & AFFILIATES; the coefficients are our fit"


class StepTables(Protocol):
    """What is used of the tables' engine handle; latencies in milliseconds."""

    def decode_step_latency(self, gen_tokens: int, isl: int, osl: int) -> float:
        """A step of ``gen_tokens`` decodes at a context of ``isl + osl // 2 + 1`` tokens."""
        ...

    def predict_prefill_latency(self, bs: int, isl: int, prefix: int) -> float:
        """A step of ``bs`` prompts of ``isl`` tokens, ``prefix`` of them cached."""
        ...

    def mixed_step_latency(self, ctx_tokens: int, gen_tokens: int, isl: int, osl: int) -> float:
        """A step of ``ctx_tokens`` tokens of prompts of ``isl`` tokens beside ``gen_tokens`` decodes."""
        ...


def silicon_profile(
    model_id: str,
    system: str,
    backend: str = "vllm",
    tensor_parallel: int = 1,
    expert_parallel: int = 1,
    backend_version: str = "0.24.0",
    date: str = "",
    out: Path | None = None,
) -> Profile:
    """Fit a profile to the tables on one half of a grid and test it on the other.

    ``model_id`` is a name the tables know (``Qwen/Qwen3-8B``) or a folder with a ``config.json``. With
    ``out`` (a folder) the profile is written there as JSON. Raises ``ParameterError`` without the
    ``tables`` extra.
    """
    tables = open_tables(model_id, system, backend, tensor_parallel, expert_parallel, backend_version)
    kv_tokens, weight_bytes = _memory(model_id, system, backend, tensor_parallel, expert_parallel, backend_version)
    samples = list(grid(tables, kv_tokens))
    source = SOURCE.format(version=_package_version(), system=system, backend=backend, backend_version=backend_version)
    law = fit_step_law(samples[::2], Provenance("silicon-table", source, date, LICENCE))
    profile = Profile(
        name=profile_name(model_id, system, tensor_parallel),
        model=_model_name(model_id),
        device=DEVICES.get(system, system),
        tensor_parallel=tensor_parallel,
        expert_parallel=expert_parallel,
        engine=backend,
        engine_version=backend_version,
        law=law,
        hold_out=hold_out_error(law, samples[1::2]),
        hold_out_by_kind=hold_out_by_kind(law, samples[1::2]),
        kv_capacity_tokens=kv_tokens,
        weight_bytes=weight_bytes,
        notes=UNIFORM,
    )
    if out is not None:
        profile.write(out / f"{profile.name}.json")
    return profile


def profile_name(model_id: str, system: str, tensor_parallel: int) -> str:
    """``qwen3-32b_h100-sxm_tp2``."""
    device = DEVICES.get(system, system)
    return f"{_model_name(model_id)}_{device}_tp{tensor_parallel}".lower()


def open_tables(
    model_id: str, system: str, backend: str, tensor_parallel: int, expert_parallel: int, backend_version: str
) -> StepTables:
    """The tables' engine for one configuration."""
    try:
        from aiconfigurator_core.sdk.engine import EngineHandle
    except ImportError as error:
        raise ParameterError("tables", "aiconfigurator-core is not installed", "pip install 'rlsim[tables]'") from error
    handle: StepTables = EngineHandle.compile(
        model_id,
        system,
        backend,
        backend_version=backend_version,
        **_sharding(tensor_parallel, expert_parallel),
    )
    return handle


def grid(tables: StepTables, kv_capacity_tokens: int) -> Iterator[StepSample]:
    """Decode, prefill and mixed steps that fit the KV cache, interleaved so that every other one tests."""
    yield from _decode_grid(tables, kv_capacity_tokens)
    yield from _prefill_grid(tables, kv_capacity_tokens)
    yield from _mixed_grid(tables, kv_capacity_tokens)


def _decode_grid(tables: StepTables, capacity: int) -> Iterator[StepSample]:
    for batch in BATCHES:
        for context in CONTEXTS:
            if batch * context <= capacity:
                milliseconds = tables.decode_step_latency(batch, context - 2, 2)
                yield StepSample(milliseconds / 1e3, decodes=batch, kv_tokens=batch * context)


def _prefill_grid(tables: StepTables, capacity: int) -> Iterator[StepSample]:
    for cached in CACHED:
        for tokens in CHUNKS:
            if cached + tokens <= capacity:
                milliseconds = tables.predict_prefill_latency(1, cached + tokens, cached)
                pairs = attention_pairs(tokens, cached)
                yield StepSample(milliseconds / 1e3, chunks=1, prefill_tokens=tokens, pairs=pairs)


def _mixed_grid(tables: StepTables, capacity: int) -> Iterator[StepSample]:
    for prompt in PROMPTS:
        for batch in BATCHES[4::2]:
            for chunks in (1, 2, 4, 8, 16, 32):
                tokens = chunks * prompt
                if tokens <= MAX_PREFILL_TOKENS and batch * prompt + tokens <= capacity:
                    yield _mixed(tables, prompt, batch, chunks)


def _mixed(tables: StepTables, prompt: int, batch: int, chunks: int) -> StepSample:
    milliseconds = tables.mixed_step_latency(chunks * prompt, batch, prompt, 2)
    return StepSample(
        milliseconds / 1e3,
        decodes=batch,
        kv_tokens=batch * (prompt + 2),
        chunks=chunks,
        prefill_tokens=chunks * prompt,
        pairs=chunks * attention_pairs(prompt, 0),
    )


def _memory(
    model_id: str, system: str, backend: str, tensor_parallel: int, expert_parallel: int, backend_version: str
) -> tuple[int, float]:
    """KV tokens of a replica at 0.9 of the memory, and bytes of its weights."""
    from aiconfigurator_core.sdk.memory import estimate_kv_cache

    estimate = estimate_kv_cache(
        model_id,
        system,
        backend,
        backend_version,
        max_num_tokens=8192,
        max_batch_size=512,
        memory_fraction_kind="of_total",
        memory_fraction_value=0.9,
        **_sharding(tensor_parallel, expert_parallel),
    )
    breakdown = estimate["memory_breakdown"]
    return int(estimate["total_kv_size_tokens"]), float(breakdown["weights_bytes"]) * tensor_parallel


def _sharding(tensor_parallel: int, expert_parallel: int) -> dict[str, int]:
    if expert_parallel == 1:
        return {"tp_size": tensor_parallel}
    return {"tp_size": tensor_parallel, "moe_tp_size": 1, "moe_ep_size": expert_parallel}


def _package_version() -> str:
    from importlib.metadata import version

    return version("aiconfigurator-core")


def _model_name(model_id: str) -> str:
    return model_id.rstrip("/").rsplit("/", 1)[-1].removeprefix("Meta-")
