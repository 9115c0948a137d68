"""A small Llama made on the spot, in a folder that transformers and vLLM load: no download, no torch, no tokenizer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rlsim.core.errors import ParameterError
from rlsim.live.extras import require_live
from rlsim.live.tasks.vocabulary import BOS, EOS, PAD

FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class LlamaShape:
    """A Llama-like decoder in float32 with an output layer of its own.

    Weights that the embedding shares with the output are packed once by some engines when they load, and an update in
    place then reaches only one of the two.
    """

    vocabulary: int
    """Token ids."""
    layers: int = 2
    hidden: int = 64
    heads: int = 2
    kv_heads: int = 1
    feed_forward: int = 128
    positions: int = 512
    """Tokens of the longest sequence."""

    def __post_init__(self) -> None:
        if self.hidden % (32 * self.heads):
            raise ParameterError("live.model.hidden", self.hidden, "a multiple of 32 a head, as engines need it")
        if self.heads % self.kv_heads:
            raise ParameterError("live.model.kv_heads", self.kv_heads, f"a divisor of heads ({self.heads})")

    @classmethod
    def of_config(cls, config: Mapping[str, Any], source: str) -> LlamaShape:
        """The shape that a ``config.json`` describes; ``ParameterError`` for what is no such decoder."""
        names = {
            "vocabulary": "vocab_size",
            "layers": "num_hidden_layers",
            "hidden": "hidden_size",
            "heads": "num_attention_heads",
            "kv_heads": "num_key_value_heads",
            "feed_forward": "intermediate_size",
            "positions": "max_position_embeddings",
        }
        missing = [key for key in names.values() if not isinstance(config.get(key), int)]
        if config.get("model_type") != "llama" or config.get("tie_word_embeddings", True) or missing:
            allowed = "weights beside it, or a Llama with untied embeddings, for which random ones are made"
            raise ParameterError("live.model", source, allowed)
        return cls(**{field: config[key] for field, key in names.items()})


def write_model(shape: LlamaShape, folder: Path, seed: int = 0, spread: float = 0.05) -> Path:
    """Write ``config.json`` and random weights, normal with deviation ``spread``, into ``folder``; return the folder.

    Norms begin at 1.
    Raises ``ParameterError`` where safetensors is not installed.
    """
    save = require_live("safetensors.numpy").save_file
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(_config(shape), indent=1), encoding="utf-8")
    draw = np.random.default_rng(seed)
    weights: dict[str, FloatArray] = {}
    for name, size in _sizes(shape):
        is_norm = len(size) == 1
        weights[name] = np.ones(size, np.float32) if is_norm else draw.normal(0.0, spread, size).astype(np.float32)
    save(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _config(shape: LlamaShape) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": shape.layers,
        "hidden_size": shape.hidden,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.hidden // shape.heads,
        "intermediate_size": shape.feed_forward,
        "vocab_size": shape.vocabulary,
        "max_position_embeddings": shape.positions,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "pad_token_id": PAD,
        "dtype": "float32",
    }


def _sizes(shape: LlamaShape) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names as Hugging Face gives them, and sizes (out, in)."""
    hidden, kv = shape.hidden, shape.kv_heads * (shape.hidden // shape.heads)
    yield "model.embed_tokens.weight", (shape.vocabulary, hidden)
    for layer in range(shape.layers):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", (hidden,)
        yield prefix + "self_attn.q_proj.weight", (hidden, hidden)
        yield prefix + "self_attn.k_proj.weight", (kv, hidden)
        yield prefix + "self_attn.v_proj.weight", (kv, hidden)
        yield prefix + "self_attn.o_proj.weight", (hidden, hidden)
        yield prefix + "post_attention_layernorm.weight", (hidden,)
        yield prefix + "mlp.gate_proj.weight", (shape.feed_forward, hidden)
        yield prefix + "mlp.up_proj.weight", (shape.feed_forward, hidden)
        yield prefix + "mlp.down_proj.weight", (hidden, shape.feed_forward)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (shape.vocabulary, hidden)
