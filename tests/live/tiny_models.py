"""Tiny random models for real servers: in Hugging Face's layout with a tokenizer of bytes, and as GGUF."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

VOCABULARY, HIDDEN, HEADS, FEED_FORWARD, LAYERS = 512, 64, 2, 128, 2
LONGEST = 512


def _weights(seed: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    shapes = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN), "lm_head.weight": (VOCABULARY, HIDDEN)}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        shapes |= {f"{prefix}self_attn.{name}_proj.weight": (HIDDEN, HIDDEN) for name in "qkvo"}
        shapes |= {f"{prefix}mlp.{name}_proj.weight": (FEED_FORWARD, HIDDEN) for name in ("gate", "up")}
        shapes |= {f"{prefix}mlp.down_proj.weight": (HIDDEN, FEED_FORWARD)}
        shapes |= {f"{prefix}{name}_layernorm.weight": (HIDDEN,) for name in ("input", "post_attention")}
    made = {name: draw.normal(0, 0.05, shape) if len(shape) > 1 else np.ones(shape) for name, shape in shapes.items()}
    return {name: value.astype(np.float32) for name, value in {**made, "model.norm.weight": np.ones(HIDDEN)}.items()}


def write_weights(file: Path, seed: int) -> Path:
    """Safetensors under Hugging Face names."""
    from safetensors.numpy import save_file

    save_file(_weights(seed), file, metadata={"format": "pt"})
    return file


def write_folder(folder: Path) -> Path:
    """Configuration, weights and a tokenizer whose every id is a text."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": LAYERS,
        "hidden_size": HIDDEN,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "head_dim": HIDDEN // HEADS,
        "intermediate_size": FEED_FORWARD,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": LONGEST,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "dtype": "float32",
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_weights(folder / "model.safetensors", seed=0)
    _write_tokenizer(folder)
    return folder


def _write_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    names = ["<unk>", "<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    names += [f"Ġw{number}" for number in range(VOCABULARY - len(names))]
    made = Tokenizer(models.BPE(vocab={name: place for place, name in enumerate(names)}, merges=[], unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.save(str(folder / "tokenizer.json"))
    told = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))


def write_gguf(file: Path) -> Path:
    """The same model for llama.cpp, with a vocabulary of bytes and words."""
    import gguf

    made = gguf.GGUFWriter(str(file), "llama")
    made.add_context_length(LONGEST)
    made.add_embedding_length(HIDDEN)
    made.add_block_count(LAYERS)
    made.add_feed_forward_length(FEED_FORWARD)
    made.add_head_count(HEADS)
    made.add_head_count_kv(HEADS)
    made.add_layer_norm_rms_eps(1e-5)
    made.add_vocab_size(VOCABULARY)
    _add_vocabulary(made)
    for name, value in _weights(0).items():
        made.add_tensor(_gguf_name(name), value)
    made.write_header_to_file()
    made.write_kv_data_to_file()
    made.write_tensors_to_file()
    made.close()
    return file


def _add_vocabulary(made: object) -> None:
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    kinds = [2, 3, 3, *[6] * 256]
    words = [f"▁w{number}" for number in range(VOCABULARY - len(tokens))]
    made.add_tokenizer_model("llama")  # type: ignore[attr-defined]
    made.add_token_list([token.encode() for token in tokens + words])  # type: ignore[attr-defined]
    made.add_token_scores([-float(place) for place in range(VOCABULARY)])  # type: ignore[attr-defined]
    made.add_token_types(kinds + [1] * len(words))  # type: ignore[attr-defined]
    made.add_bos_token_id(1)  # type: ignore[attr-defined]
    made.add_eos_token_id(2)  # type: ignore[attr-defined]
    made.add_unk_token_id(0)  # type: ignore[attr-defined]


def _gguf_name(name: str) -> str:
    parts = {
        "model.embed_tokens": "token_embd",
        "lm_head": "output",
        "model.norm": "output_norm",
        "model.layers.": "blk.",
        "self_attn.o_proj": "attn_output",
        "post_attention_layernorm": "ffn_norm",
        "input_layernorm": "attn_norm",
    }
    parts |= {f"self_attn.{one}_proj": f"attn_{one}" for one in "qkv"}
    parts |= {f"mlp.{one}_proj": f"ffn_{one}" for one in ("gate", "up", "down")}
    for ours, theirs in parts.items():
        name = name.replace(ours, theirs)
    return name
