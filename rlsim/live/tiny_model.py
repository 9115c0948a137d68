"""The model of paced runs: real scheduling and KV blocks, next to no arithmetic."""

from __future__ import annotations

from pathlib import Path

from rlsim.live.small_model import Shape, write_model

VOCABULARY = 512
"""Token ids that the model knows; random prompts of them share no block."""
HEAD_SIZE = 32
"""The least that vLLM's attention takes on a CPU."""
KV_BYTES_PER_TOKEN = 2 * 2 * HEAD_SIZE
"""Keys and values of one head in bf16: 20 000 blocks of 16 tokens are 41 MB."""
SPREAD = 0.05
"""Deviation of its weights: two seeds give models that can be told apart by their log-probs."""


def tiny(max_model_len: int) -> Shape:
    """One layer, two query heads on one KV head."""
    return Shape(VOCABULARY, 1, 2 * HEAD_SIZE, 2, 1, 2 * HEAD_SIZE, max_model_len)


def write_tiny_model(folder: Path, max_model_len: int, seed: int = 0) -> Path:
    """Configuration and random weights into ``folder``; gives the folder."""
    return write_model(tiny(max_model_len), folder, seed, SPREAD)
