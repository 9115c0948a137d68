"""Extension that every vLLM worker of a live run imports before it loads the model (``worker_extension_cls``).

This module imports vllm; nothing but vLLM imports it.
"""

from __future__ import annotations

from typing import Any

from vllm.platforms import current_platform

from rlsim.live.vllm import weights as vllm_weights

BLOCK_TOKENS = 16
"""Unit of vLLM's CPU attention kernel for any head size."""


class WorkerExtension:
    """Adds nothing to the worker: naming it makes the worker import this module."""

    weights = vllm_weights.BACKEND


def _take_small_blocks() -> None:
    """Let the CPU backend take KV blocks of 16 tokens.

    vLLM has a kernel for them and picks it by the block size, but its backend declares multiples of 32 only. Blocks of
    16 are the default of GPUs, and the block size decides when requests are preempted and what prefixes share. Tests
    hold the log-probs of such an engine to those of transformers.
    """
    from vllm.v1.attention.backend import MultipleOf
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    def sizes(kv_cache_spec: Any = None) -> list[Any]:
        return [MultipleOf(BLOCK_TOKENS)]

    CPUAttentionBackend.get_supported_kernel_block_sizes = staticmethod(sizes)


if current_platform.is_cpu():
    _take_small_blocks()
