"""Hugging Face ``config.json`` to :class:`~rlsim.costs.architecture.Architecture`, by tables of its keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlsim.costs.architecture import Architecture, Experts, LatentAttention, LinearAttention, SlidingWindow
from rlsim.costs.fields import Fields, read_json_object

LIMIT_BYTES = 1_000_000
WIDEST_WINDOW_TOKENS = 1024
"""Wider sliding windows are counted as attention over all tokens: contexts of RL seldom fill several of them."""


@dataclass(frozen=True, slots=True)
class Family:
    """What the values of ``model_type`` say beside the keys."""

    bias: bool = False
    """Queries, keys and values have a bias, whatever ``attention_bias`` says."""
    gate: bool = False
    """Attention output is gated."""
    latent: bool = False
    tied: bool = False
    """Embeddings are tied, where ``tie_word_embeddings`` is silent."""


_PLAIN, _BIASED, _TIED, _LATENT = Family(), Family(bias=True), Family(tied=True), Family(latent=True)
_GATED = Family(gate=True)
FAMILIES: dict[str, Family] = {
    **dict.fromkeys(("llama", "mistral", "ministral", "mixtral", "qwen3", "qwen3_moe", "glm4_moe"), _PLAIN),
    **dict.fromkeys(("olmo2", "olmo3", "phi3", "granite", "granitemoe", "smollm3", "minimax", "minimax_m2"), _PLAIN),
    **dict.fromkeys(("llama4", "llama4_text", "nemotron_h", "qwen3_vl_text", "qwen3_vl_moe_text", "exaone4"), _PLAIN),
    **dict.fromkeys(("qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl", "qwen2_5_vl_text", "gpt_oss", "mimo"), _BIASED),
    **dict.fromkeys(("glm", "glm4"), _BIASED),
    **dict.fromkeys(("gemma", "gemma2", "gemma3", "gemma3_text", "smollm"), _TIED),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm4_moe_lite", "glm_moe_dsa"), _LATENT),
    **dict.fromkeys(("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"), _GATED),
}
"""The values of ``model_type`` whose parameter layout is known."""
_COUNT = ("num_experts", "num_local_experts", "n_routed_experts")
_ACTIVE = ("experts_per_token", "num_experts_per_token", "num_experts_per_tok")
_SHARED = ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size")


def read(file: Path, path: str = "model") -> Architecture:
    """The architecture a ``config.json`` describes; ``file`` may be its folder.

    Raises ``ParameterError`` at ``path``, naming the file and the key.
    """
    file = file / "config.json" if file.is_dir() else file
    config = Fields(read_json_object(file, LIMIT_BYTES, path), str(file), path)
    name = file.parent.name or file.stem
    text = config.child("text_config") if "text_config" in config.tree else config
    return _architecture(text, name, _left_out(config.tree) + (_left_out(text.tree) if text is not config else ()))


def _left_out(tree: Mapping[str, Any]) -> tuple[str, ...]:
    """What the file describes and the shape does not hold."""
    left = []
    if "vision_config" in tree or "audio_config" in tree:
        left.append("towers for images and sound are left out of the model")
    if tree.get("num_nextn_predict_layers") or tree.get("mtp_num_hidden_layers"):
        left.append("extra layers that predict further tokens are left out of the model")
    stored = tree.get("quantization_config")
    if isinstance(stored, dict):
        kind = stored.get("quant_method", "fewer bits")
        left.append(f"weights are stored as {kind}; they are simulated with 2 bytes a parameter")
    return tuple(left)


def _architecture(config: Fields, name: str, assumed: tuple[str, ...]) -> Architecture:
    model_type = config.text("model_type")
    family = FAMILIES.get(model_type)
    if family is None:
        assumed += (f"model_type {model_type} is not known: it is read as a plain decoder",)
        family = Family(latent="kv_lora_rank" in config.tree)
    heads, hidden = config.integer("num_attention_heads"), config.integer("hidden_size")
    layers = config.integer("num_hidden_layers")
    kinds = _layer_kinds(config, layers)
    mixing = layers - kinds.count("ffn")
    latent = _latent(config) if family.latent else None
    experts = _experts(config, kinds.count("ffn") or layers)
    window, wide_windows = _window(config, kinds)
    return Architecture(
        name=name,
        layers=mixing,
        hidden=hidden,
        heads=heads,
        kv_heads=config.integer("num_key_value_heads", default=heads),
        head_dim=_head_dim(config, hidden // heads, latent),
        ffn=_first(config, ("intermediate_size_mlp", "intermediate_size"), default=experts.ffn if experts else None),
        vocab=config.integer("vocab_size"),
        tied_embeddings=bool(config.tree.get("tie_word_embeddings", family.tied)),
        qkv_bias=family.bias or config.tree.get("attention_bias") is True,
        output_gate=family.gate,
        experts=experts,
        latent=latent,
        linear=_linear(config, kinds),
        window=window,
        ffn_layers=kinds.count("ffn"),
        ffn_matrices=2 if model_type == "nemotron_h" else 3,
        assumed=assumed + wide_windows,
    )


def _first(config: Fields, keys: tuple[str, ...], default: int | None = None) -> int:
    """The first key that is there; the last is named where none is."""
    key = next((key for key in keys if config.tree.get(key) is not None), keys[-1])
    return config.integer(key, default=default)


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
    key = next((name for name in _COUNT if config.tree.get(name) is not None), None)
    if key is None:
        return None
    wide = config.integer("intermediate_size") if "num_local_experts" in config.tree else None
    ffn = config.integer("moe_intermediate_size", default=wide)
    shared = next((config.integer(name, least=0) for name in _SHARED if config.tree.get(name)), 0)
    if "interleave_moe_layer_step" in config.tree:
        shared = ffn
    return Experts(
        experts=config.integer(key),
        active=_first(config, _ACTIVE),
        ffn=ffn,
        shared_ffn=shared or config.integer("n_shared_experts", least=0, default=0) * ffn,
        dense_layers=_dense_layers(config, layers),
    )


def _dense_layers(config: Fields, layers: int) -> int:
    first = config.integer("first_k_dense_replace", least=0, default=0)
    step = next((key for key in ("decoder_sparse_step", "interleave_moe_layer_step") if key in config.tree), None)
    every = config.integer(step or "moe_layer_freq", default=1)
    listed = config.tree.get("mlp_only_layers") or []
    offset = 1 if step is not None else 0
    return sum(layer < first or layer in listed or (layer + offset) % every != 0 for layer in range(layers))


def _layer_kinds(config: Fields, layers: int) -> list[str]:
    """Kind of each layer: ``full``, ``window``, ``linear``, or ``ffn`` for one that mixes no tokens."""
    pattern, listed = config.tree.get("hybrid_override_pattern"), config.tree.get("layer_types")
    if isinstance(pattern, str):
        return [{"M": "linear", "*": "full"}.get(letter, "ffn") for letter in pattern[:layers]]
    if isinstance(listed, list):
        names = {"linear_attention": "linear", "sliding_attention": "window"}
        return [names.get(str(kind), "full") for kind in listed]
    if isinstance(config.tree.get("attn_type_list"), list):
        return ["full" if kind == 1 else "linear" for kind in config.tree["attn_type_list"]]
    if "full_attention_interval" in config.tree:
        every = config.integer("full_attention_interval")
        return ["full" if (layer + 1) % every == 0 else "linear" for layer in range(layers)]
    if "sliding_window_pattern" in config.tree and config.tree.get("sliding_window"):
        every = config.integer("sliding_window_pattern")
        return ["full" if (layer + 1) % every == 0 else "window" for layer in range(layers)]
    return ["full"] * layers


def _window(config: Fields, kinds: list[str]) -> tuple[SlidingWindow | None, tuple[str, ...]]:
    """Layers with a narrow window; wide ones are counted whole, which is said."""
    if "window" not in kinds or not config.tree.get("sliding_window"):
        return None, ()
    tokens = config.integer("sliding_window")
    if tokens > WIDEST_WINDOW_TOKENS:
        return None, (f"sliding windows of {tokens} tokens are counted as attention over all tokens",)
    return SlidingWindow(kinds.count("window"), tokens), ()


_GATED_DELTA = ("linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim")
_MAMBA = ("n_groups", "mamba_num_heads", "ssm_state_size", "mamba_head_dim")
_LIGHTNING = ("num_attention_heads", "num_attention_heads", "head_dim", "head_dim")


def _linear(config: Fields, kinds: list[str]) -> LinearAttention | None:
    """Layers with a constant state: gated delta rule, Mamba-2 or lightning attention, by the keys that are there."""
    if "linear" not in kinds:
        return None
    known = (_GATED_DELTA, _MAMBA, _LIGHTNING)
    keys = next((keys for keys in known if all(key in config.tree for key in keys)), _GATED_DELTA)
    key_heads, value_heads, key_dim, value_dim = (config.integer(key) for key in keys)
    kernel = config.integer("linear_conv_kernel_dim", default=config.integer("conv_kernel", default=4))
    return LinearAttention(kinds.count("linear"), key_heads, value_heads, key_dim, value_dim, kernel)
