"""A tiny random model for paced runs: real scheduling and KV blocks, next to no arithmetic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

VOCABULARY = 512
"""Token ids that the model knows; random prompts of them share no block."""
HEAD_SIZE = 32
"""The least that vLLM's attention takes on a CPU."""
HIDDEN = 64
KV_BYTES_PER_TOKEN = 2 * 2 * HEAD_SIZE
"""Keys and values of one head in bf16: 20 000 blocks of 16 tokens are 41 MB."""


def tiny_config(max_model_len: int) -> dict[str, Any]:
    """One layer, two query heads on one KV head, under Hugging Face names."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "hidden_size": HIDDEN,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": HEAD_SIZE,
        "intermediate_size": HIDDEN,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": max_model_len,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "dtype": "float32",
    }


def write_tiny_model(folder: Path, max_model_len: int, seed: int = 0) -> Path:
    """Configuration and random weights into ``folder``; gives the folder."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(tiny_config(max_model_len), indent=1), encoding="ascii")
    draw = np.random.default_rng(seed)
    tensors = {name: _weight(draw, shape) for name, shape in tiny_shapes().items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _weight(draw: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
    values = draw.normal(0.0, 0.05, shape) if len(shape) > 1 else np.ones(shape)
    return values.astype(np.float32)


def tiny_shapes() -> dict[str, tuple[int, ...]]:
    """Its tensors under Hugging Face names."""
    layer, rows = "model.layers.0.", 2 * HEAD_SIZE
    return {
        "model.embed_tokens.weight": (VOCABULARY, HIDDEN),
        layer + "input_layernorm.weight": (HIDDEN,),
        layer + "self_attn.q_proj.weight": (rows, HIDDEN),
        layer + "self_attn.k_proj.weight": (HEAD_SIZE, HIDDEN),
        layer + "self_attn.v_proj.weight": (HEAD_SIZE, HIDDEN),
        layer + "self_attn.o_proj.weight": (HIDDEN, rows),
        layer + "post_attention_layernorm.weight": (HIDDEN,),
        layer + "mlp.gate_proj.weight": (HIDDEN, HIDDEN),
        layer + "mlp.up_proj.weight": (HIDDEN, HIDDEN),
        layer + "mlp.down_proj.weight": (HIDDEN, HIDDEN),
        "model.norm.weight": (HIDDEN,),
        "lm_head.weight": (VOCABULARY, HIDDEN),
    }
