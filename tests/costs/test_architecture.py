"""Shapes of models against the counts their publishers state."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsim.core.errors import ParameterError
from rlsim.costs.architecture import Architecture, Experts
from rlsim.costs.catalogue import model

PUBLISHED_BILLIONS = {
    "Qwen2.5-0.5B": 0.49,
    "Qwen2.5-1.5B": 1.54,
    "Qwen2.5-7B": 7.61,
    "Qwen2.5-14B": 14.7,
    "Qwen2.5-32B": 32.5,
    "Qwen2.5-72B": 72.7,
    "Qwen3-0.6B": 0.6,
    "Qwen3-1.7B": 1.7,
    "Qwen3-4B": 4.0,
    "Qwen3-8B": 8.2,
    "Qwen3-14B": 14.8,
    "Qwen3-32B": 32.8,
    "Qwen3-30B-A3B": 30.5,
    "Qwen3-235B-A22B": 235,
    "Llama-3.1-8B": 8.03,
    "Llama-3.1-70B": 70.6,
    "Llama-3.2-1B": 1.24,
    "Llama-3.2-3B": 3.21,
    "DeepSeek-V3": 671,
}


@pytest.mark.parametrize(("name", "billions"), PUBLISHED_BILLIONS.items())
def test_parameters_are_those_of_the_model_card(name: str, billions: float) -> None:
    assert model(name).parameters() / 1e9 == pytest.approx(billions, rel=0.015)


@pytest.mark.parametrize(
    ("name", "billions"), [("Qwen3-30B-A3B", 3.35), ("Qwen3-235B-A22B", 22), ("DeepSeek-V3", 37.5)]
)
def test_active_parameters_of_a_mixture_of_experts(name: str, billions: float) -> None:
    assert model(name).active_parameters() / 1e9 == pytest.approx(billions, rel=0.015)


@pytest.mark.parametrize(
    ("name", "kv_bytes"),
    [("Llama-3.1-8B", 131_072), ("Qwen2.5-7B", 57_344), ("Qwen2.5-14B", 196_608), ("DeepSeek-V3", 2 * 35_136)],
)
def test_kv_bytes_per_token_are_the_published_ones(name: str, kv_bytes: int) -> None:
    assert model(name).kv_bytes_per_token() == kv_bytes


def test_kv_heads_are_replicated_when_ranks_outnumber_them() -> None:
    eight_heads = model("Llama-3.1-8B")
    assert eight_heads.kv_bytes_per_token_per_gpu(8) == eight_heads.kv_bytes_per_token() / 8
    assert eight_heads.kv_bytes_per_token_per_gpu(16) == eight_heads.kv_bytes_per_token_per_gpu(8)


def test_a_latent_cache_is_replicated_on_every_rank() -> None:
    latent = model("DeepSeek-V3")
    assert latent.kv_bytes_per_token_per_gpu(8) == latent.kv_bytes_per_token()


def test_forward_flops_are_two_a_multiplied_parameter_and_four_a_pair_and_head_element() -> None:
    llama = model("Llama-3.1-8B")
    embedding = 128_256 * 4096
    assert llama.forward_flops(1, 0) == 2 * (llama.parameters() - embedding)
    assert llama.forward_flops(0, 1) == 4 * 32 * 128 * 32


def test_tied_embeddings_still_multiply_in_the_head() -> None:
    tied = model("Qwen3-0.6B")
    assert tied.matmul_parameters() == tied.parameters()


@given(st.floats(1, 1e5))
def test_experts_touched_grow_from_one_tokens_share_towards_all(tokens: float) -> None:
    experts = Experts(experts=128, active=8, ffn=768)
    assert experts.touched(1) == pytest.approx(8 / 128)
    assert 8 / 128 - 1e-12 <= experts.touched(tokens) <= min(1.0, tokens * 8 / 128) + 1e-12


LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}
MIXTRAL_8X7B = LLAMA | {
    "model_type": "mixtral",
    "vocab_size": 32000,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
QWEN3_NEXT_80B_A3B = {
    "model_type": "qwen3_next",
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "vocab_size": 151936,
    "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "decoder_sparse_step": 1,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "num_experts_per_tok": 10,
    "num_experts": 512,
}
DEEPSEEK_V2_LITE = {
    "model_type": "deepseek_v2",
    "hidden_size": 2048,
    "intermediate_size": 10944,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "vocab_size": 102400,
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1408,
    "first_k_dense_replace": 1,
}


def read(tmp_path: Path, config: dict[str, Any]) -> Architecture:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    return Architecture.from_hf_config(file)


@pytest.mark.parametrize(
    ("config", "billions", "active_billions"),
    [
        (LLAMA, 8.03, 8.03),
        (MIXTRAL_8X7B, 46.7, 12.9),
        (QWEN3_NEXT_80B_A3B, 80, 3.9),
        (DEEPSEEK_V2_LITE, 15.7, 2.66),
    ],
)
def test_a_hugging_face_config_gives_the_published_counts(
    tmp_path: Path, config: dict[str, Any], billions: float, active_billions: float
) -> None:
    shape = read(tmp_path, config)
    assert shape.parameters() / 1e9 == pytest.approx(billions, rel=0.015)
    assert shape.active_parameters() / 1e9 == pytest.approx(active_billions, rel=0.015)


def test_linear_attention_layers_keep_a_constant_state_and_no_kv(tmp_path: Path) -> None:
    shape = read(tmp_path, QWEN3_NEXT_80B_A3B)
    assert shape.attention_layers == 12
    assert shape.kv_bytes_per_token() == 12 * 2 * 2 * 256 * 2
    recurrent, window = 32 * 128 * 128 * 4, (2 * 16 * 128 + 32 * 128) * 3 * 2
    assert shape.state_bytes_per_sequence() == 36 * (recurrent + window)


def test_a_multimodal_config_is_read_from_its_text_part(tmp_path: Path) -> None:
    assert read(tmp_path, {"model_type": "any", "text_config": LLAMA}).layers == 32


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "vocab_size", "intermediate_size"])
@pytest.mark.parametrize("value", [None, 0, -1, 1.5, "many"])
def test_a_missing_or_impossible_key_is_named(tmp_path: Path, key: str, value: object) -> None:
    with pytest.raises(ParameterError, match=key):
        read(tmp_path, LLAMA | {key: value})


def test_an_unknown_model_type_is_read_as_a_plain_decoder_and_says_so(tmp_path: Path) -> None:
    shape = read(tmp_path, LLAMA | {"model_type": "nova"})
    assert shape.assumed == ("model_type nova is not known: it is read as a plain decoder",)
    assert shape.parameters() == read(tmp_path, LLAMA).parameters()


GPT_OSS_20B = LLAMA | {
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_attention_heads": 64,
    "num_hidden_layers": 24,
    "head_dim": 64,
    "vocab_size": 201088,
    "num_local_experts": 32,
    "num_experts_per_tok": 4,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "quantization_config": {"quant_method": "mxfp4"},
}
GEMMA_3_27B = {
    "model_type": "gemma3",
    "vision_config": {},
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 5376,
        "intermediate_size": 21504,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "head_dim": 128,
        "num_hidden_layers": 62,
        "sliding_window": 1024,
        "sliding_window_pattern": 6,
        "vocab_size": 262208,
    },
}
NEMOTRON_NANO_9B = {
    "model_type": "nemotron_h",
    "hidden_size": 4480,
    "intermediate_size": 15680,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_hidden_layers": 56,
    "hybrid_override_pattern": "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",
    "mamba_num_heads": 128,
    "mamba_head_dim": 80,
    "ssm_state_size": 128,
    "n_groups": 8,
    "conv_kernel": 4,
    "vocab_size": 131072,
}
LLAMA_4_MAVERICK = LLAMA | {
    "model_type": "llama4_text",
    "hidden_size": 5120,
    "intermediate_size": 8192,
    "intermediate_size_mlp": 16384,
    "num_attention_heads": 40,
    "num_hidden_layers": 48,
    "head_dim": 128,
    "vocab_size": 202048,
    "num_local_experts": 128,
    "num_experts_per_tok": 1,
    "interleave_moe_layer_step": 2,
}


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (GPT_OSS_20B, "gpt-oss-20b"),
        (GEMMA_3_27B, "Gemma-3-27B"),
        (NEMOTRON_NANO_9B, "Nemotron-Nano-9B-v2"),
        (LLAMA_4_MAVERICK, "Llama-4-Maverick-17B-128E"),
        (QWEN3_NEXT_80B_A3B, "Qwen3-Next-80B-A3B"),
        (DEEPSEEK_V2_LITE, "DeepSeek-V2-Lite"),
    ],
)
def test_a_config_and_the_catalogue_describe_one_shape(tmp_path: Path, config: dict[str, Any], name: str) -> None:
    shape, known = read(tmp_path, config), model(name)
    assert replace(shape, name=name, assumed=()) == known


def test_what_a_file_describes_and_the_shape_does_not_hold_is_said(tmp_path: Path) -> None:
    assert any("stored as mxfp4" in line for line in read(tmp_path, GPT_OSS_20B).assumed)
    assert any("images" in line for line in read(tmp_path, GEMMA_3_27B).assumed)
    wide = read(tmp_path, GPT_OSS_20B | {"sliding_window": 4096})
    assert any("4096 tokens are counted as attention over all tokens" in line for line in wide.assumed)
    assert wide.window is None


def test_a_sliding_window_is_a_constant_cache_and_a_constant_work_of_a_token() -> None:
    shape = model("gpt-oss-20b")
    assert shape.kv_bytes_per_token() == 12 * 2 * 8 * 64 * 2
    assert shape.state_bytes_per_sequence() == 12 * 128 * 2 * 8 * 64 * 2
    whole = replace(shape, window=None)
    tokens = 128 * 100
    pairs = tokens * 128
    assert shape.forward_flops(tokens, pairs) == pytest.approx(whole.forward_flops(tokens, pairs))


@pytest.mark.parametrize("text", ["", "[]", "{", '"' + "x" * 1_000_001 + '"'])
def test_a_file_that_is_no_bounded_json_object_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(text)
    with pytest.raises(ParameterError, match="model"):
        Architecture.from_hf_config(file)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="No such file"):
        model(str(tmp_path / "absent.json"))
