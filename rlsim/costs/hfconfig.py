"""Hugging Face ``config.json`` to :class:`~rlsim.costs.architecture.Architecture`."""

from __future__ import annotations

from pathlib import Path

from rlsim.core.errors import unknown
from rlsim.costs.architecture import Architecture, Experts, LatentAttention, LinearAttention
from rlsim.costs.fields import Fields, read_json_object

LIMIT_BYTES = 1_000_000

_BIASED = {"qwen2", "qwen2_moe"}
_HYBRID = {"qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"}
_LATENT = {"deepseek_v2", "deepseek_v3", "kimi_k2"}
_PLAIN = {"llama", "mistral", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "mixtral"}
MODEL_TYPES = _PLAIN | _LATENT | _HYBRID
"""The values of ``model_type`` whose parameter layout is known."""


def read(file: Path, path: str = "model") -> Architecture:
    """The architecture a ``config.json`` describes; ``file`` may be its folder.

    Raises ``ParameterError`` at ``path``, naming the file and the key.
    """
    file = file / "config.json" if file.is_dir() else file
    config = Fields(read_json_object(file, LIMIT_BYTES, path), str(file), path)
    name = file.parent.name or file.stem
    return _architecture(config.child("text_config") if "text_config" in config.tree else config, name)


def _architecture(config: Fields, name: str) -> Architecture:
    model_type = config.text("model_type")
    if model_type not in MODEL_TYPES:
        raise unknown(config.path, model_type, MODEL_TYPES)
    heads, hidden = config.integer("num_attention_heads"), config.integer("hidden_size")
    layers = config.integer("num_hidden_layers")
    latent = _latent(config) if model_type in _LATENT else None
    experts = _experts(config, layers)
    return Architecture(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=config.integer("num_key_value_heads", default=heads),
        head_dim=_head_dim(config, hidden // heads, latent),
        ffn=config.integer("intermediate_size", default=experts.ffn if experts else None),
        vocab=config.integer("vocab_size"),
        tied_embeddings=config.tree.get("tie_word_embeddings") is True,
        qkv_bias=model_type in _BIASED or config.tree.get("attention_bias") is True,
        output_gate=model_type in _HYBRID,
        experts=experts,
        latent=latent,
        linear=_linear(config, layers) if model_type in _HYBRID else None,
    )


def _head_dim(config: Fields, default: int, latent: LatentAttention | None) -> int:
    if latent is None:
        return config.integer("head_dim", default=default)
    return config.integer("qk_nope_head_dim") + latent.rope_dim


def _latent(config: Fields) -> LatentAttention:
    return LatentAttention(
        kv_lora_rank=config.integer("kv_lora_rank"),
        rope_dim=config.integer("qk_rope_head_dim"),
        value_dim=config.integer("v_head_dim"),
        q_lora_rank=config.integer("q_lora_rank", default=0),
    )


def _experts(config: Fields, layers: int) -> Experts | None:
    names = ("num_experts", "num_local_experts", "n_routed_experts")
    key = next((name for name in names if config.tree.get(name) is not None), None)
    if key is None:
        return None
    ffn = config.integer(
        "moe_intermediate_size",
        default=config.integer("intermediate_size") if "num_local_experts" in config.tree else None,
    )
    shared = config.integer("shared_expert_intermediate_size", least=0, default=0)
    return Experts(
        experts=config.integer(key),
        active=config.integer("num_experts_per_tok"),
        ffn=ffn,
        shared_ffn=shared or config.integer("n_shared_experts", least=0, default=0) * ffn,
        dense_layers=_dense_layers(config, layers),
    )


def _dense_layers(config: Fields, layers: int) -> int:
    first = config.integer("first_k_dense_replace", least=0, default=0)
    every = config.integer("decoder_sparse_step", default=config.integer("moe_layer_freq", default=1))
    listed = config.tree.get("mlp_only_layers") or []
    offset = 1 if "decoder_sparse_step" in config.tree else 0
    return sum(layer < first or layer in listed or (layer + offset) % every != 0 for layer in range(layers))


def _linear(config: Fields, layers: int) -> LinearAttention:
    return LinearAttention(
        layers=_linear_layers(config, layers),
        key_heads=config.integer("linear_num_key_heads"),
        value_heads=config.integer("linear_num_value_heads"),
        key_dim=config.integer("linear_key_head_dim"),
        value_dim=config.integer("linear_value_head_dim"),
        conv_kernel=config.integer("linear_conv_kernel_dim"),
    )


def _linear_layers(config: Fields, layers: int) -> int:
    kinds = config.tree.get("layer_types")
    if isinstance(kinds, list):
        return kinds.count("linear_attention")
    return layers - layers // config.integer("full_attention_interval")
