"""The steps at which tables are asked, and which of them a fit does not see.

Every third batch size and every third KV length is held out, and in prefill every third number of new and of cached
tokens: a point with one of them tests the fit, so the fit meets neither the batch size nor the length.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from calibration.fitting.step_model import StepSample
from rlsim.engine.steptime import attention_pairs

BATCHES = (
    *(1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64),
    *(80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 1024),
)
CONTEXTS = (64, 128, 256, 512, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 65536)
CHUNKS = (
    *(16, 24, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024),
    *(1280, 1536, 1792, 2048, 2560, 3072, 3584, 4096, 5120, 6144, 7168, 8192, 10240, 12288, 14336, 16384),
)
CACHED = (0, 512, 1024, 2048, 4096, 8192, 16384)
PROMPTS = (128, 512, 2048)
BATCHES_BESIDE = (1, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024)
PROMPTS_IN_STEP = (1, 2, 4, 8, 16, 32)
MAX_PREFILL_TOKENS = 16384


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

    def decode_step_per_op(self, gen_tokens: int, isl: int, osl: int) -> list[tuple[str, float, float, str]]:
        """Name, latency, energy and label of each operation of :meth:`decode_step_latency`."""
        ...


class GridPoint(NamedTuple):
    """A step of the grid."""

    sample: StepSample
    held_out: bool


def grid(tables: StepTables, kv_capacity_tokens: int) -> Iterator[GridPoint]:
    """Decode, prefill and mixed steps that fit the KV cache."""
    for batch in BATCHES:
        for context in CONTEXTS:
            if batch * context <= kv_capacity_tokens:
                milliseconds = tables.decode_step_latency(batch, context - 2, 2)
                sample = StepSample(milliseconds / 1e3, decodes=batch, kv_tokens=batch * context)
                yield GridPoint(sample, _is_third(batch, BATCHES) or _is_third(context, CONTEXTS))
    for cached in CACHED:
        for tokens in CHUNKS:
            if cached + tokens <= kv_capacity_tokens:
                milliseconds = tables.predict_prefill_latency(1, cached + tokens, cached)
                pairs = attention_pairs(tokens, cached)
                sample = StepSample(milliseconds / 1e3, chunks=1, prefill_tokens=tokens, pairs=pairs)
                yield GridPoint(sample, _is_third(tokens, CHUNKS) or _is_third(cached, CACHED))
    for prompt in PROMPTS:
        for batch in BATCHES_BESIDE:
            for chunks in PROMPTS_IN_STEP:
                tokens = chunks * prompt
                if tokens <= MAX_PREFILL_TOKENS and batch * prompt + tokens <= kv_capacity_tokens:
                    held_out = _is_third(batch, BATCHES) or _is_third(chunks, PROMPTS_IN_STEP)
                    yield GridPoint(_mixed(tables, prompt, batch, chunks), held_out)


def fitted_of(values: tuple[int, ...]) -> tuple[int, ...]:
    """``values`` without every third one."""
    return tuple(value for value in values if not _is_third(value, values))


def _is_third(value: int, values: tuple[int, ...]) -> bool:
    return values.index(value) % 3 == 2


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
