"""Names, facts and sources of the catalogue."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsim.core.errors import ParameterError
from rlsim.costs.catalogue import device, device_names, model, model_names, model_source


def test_every_model_builds_and_says_where_its_shape_comes_from() -> None:
    assert {model(name).name for name in model_names()} == set(model_names())
    assert all(re.search(r"arXiv|config\.json|scripts/models", model_source(name)) for name in model_names())


def test_every_device_has_a_source_and_its_price_is_called_an_assumption() -> None:
    for name in device_names():
        assert device(name).source
        assert "assumption" in device(name).price_source


PUBLISHED = {
    "Qwen2.5-3B": (3.09, 3.09),
    "Qwen3-Next-80B-A3B": (80, 3.9),
    "Qwen3.5-35B-A3B": (35, 3.45),
    "Qwen3-Coder-480B-A35B": (480, 35.4),
    "Llama-3.1-405B": (405.9, 405.9),
    "Llama-2-7B": (6.74, 6.74),
    "Llama-4-Scout-17B-16E": (108.6, 17.2),
    "Llama-4-Maverick-17B-128E": (401.6, 17.2),
    "DeepSeek-V2": (236, 21.4),
    "DeepSeek-V2-Lite": (15.7, 2.66),
    "Moonlight-16B-A3B": (16, 2.9),
    "Kimi-K2": (1026, 32.9),
    "GLM-4-9B": (9.4, 9.4),
    "GLM-4-32B": (32.6, 32.6),
    "GLM-4.5": (355, 33.6),
    "GLM-4.5-Air": (106.9, 13.4),
    "GLM-4.7-Flash": (30, 3.9),
    "GLM-5": (744, 41),
    "gpt-oss-20b": (20.91, 4.19),
    "gpt-oss-120b": (116.8, 5.7),
    "MiniMax-M2": (229, 11),
    "MiMo-7B": (7.6, 7.6),
    "Gemma-2-9B": (9.24, 9.24),
    "Gemma-3-27B": (27.0, 27.0),
    "OLMo-2-32B": (32.2, 32.2),
    "Olmo-3-7B": (7.3, 7.3),
    "Mistral-7B": (7.25, 7.25),
    "Mistral-Nemo-12B": (12.25, 12.25),
    "Mistral-Small-24B": (23.6, 23.6),
    "Mistral-Large-123B": (122.6, 122.6),
    "Mixtral-8x7B": (46.7, 12.9),
    "Phi-4": (14.7, 14.7),
    "SmolLM2-1.7B": (1.71, 1.71),
    "SmolLM3-3B": (3.08, 3.08),
    "Nemotron-H-8B": (8.1, 8.1),
    "Nemotron-Nano-9B-v2": (8.89, 8.89),
    "Nemotron-3-Nano-30B-A3B": (31.6, 3.6),
    "Nemotron-Nano-12B-v2": (12.3, 12.3),
    "Nemotron-3-Super-120B-A12B": (120.6, 12.7),
    "Qwen3.5-397B-A17B": (397, 17.2),
    "Qwen3.5-122B-A10B": (122, 9.75),
    "DeepSeek-LLM-7B": (6.9, 6.9),
    "Seed-OSS-36B": (36.2, 36.2),
}
"""Billions of parameters in all and of a token, embeddings included, as model cards and reports state them."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_parameters_of_a_model_are_those_that_its_card_states(name: str) -> None:
    billions, active_billions = PUBLISHED[name]
    assert model(name).parameters() / 1e9 == pytest.approx(billions, rel=0.01)
    assert model(name).active_parameters() / 1e9 == pytest.approx(active_billions, rel=0.015)


@pytest.mark.parametrize(
    ("text", "name", "is_assumed"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", "Qwen2.5-7B", False),
        ("/models/Qwen3-30B-A3B-Thinking-2507-FP8", "Qwen3-30B-A3B", False),
        ("Qwen3-4B_torch_dist", "Qwen3-4B", False),
        ("unsloth/gpt-oss-20b-BF16", "gpt-oss-20b", False),
        ("Qwen/Qwen2.5-Math-7B", "Qwen2.5-7B", True),
        ("Qwen/Qwen2-7B-Instruct", "Qwen2.5-7B", True),
        ("Qwen/Qwen2.5-VL-7B-Instruct", "Qwen2.5-7B", True),
        ("Qwen/Qwen3-VL-30B-A3B-Instruct", "Qwen3-30B-A3B", True),
        ("Qwen/Qwen3.6-35B-A3B", "Qwen3.5-35B-A3B", True),
        ("Qwen/QwQ-32B", "Qwen2.5-32B", True),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", "Qwen2.5-1.5B", True),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "Llama-3.1-70B", True),
        ("deepseek-ai/DeepSeek-R1-0528", "DeepSeek-V3", True),
        ("DeepSeek-V3-config-verl", "DeepSeek-V3", True),
        ("agentica-org/DeepScaleR-1.5B-Preview", "Qwen2.5-1.5B", True),
        ("Skywork/Skywork-OR1-Math-7B", "Qwen2.5-7B", True),
        ("BytedTsinghua-SIA/DAPO-Qwen-32B", "Qwen2.5-32B", True),
        ("allenai/Llama-3.1-Tulu-3-8B-DPO", "Llama-3.1-8B", True),
        ("OpenRLHF/Llama-3-8b-sft-mixture", "Llama-3.1-8B", True),
        ("meta-llama/Llama-3.3-70B-Instruct", "Llama-3.1-70B", True),
        ("meta-llama/Meta-Llama-3-8B", "Llama-3.1-8B", True),
        ("allenai/Olmo-3-1025-7B", "Olmo-3-7B", True),
        ("allenai/OLMo-2-1124-7B-SFT", "OLMo-2-7B", True),
        ("THUDM/GLM-Z1-9B-0414", "GLM-4-9B", True),
        ("zai-org/GLM-4.6", "GLM-4.5", True),
        ("zai-org/GLM-4.5-Air-FP8", "GLM-4.5-Air", False),
        ("XiaomiMiMo/MiMo-7B-RL", "MiMo-7B", True),
        ("moonshotai/Kimi-K2-Instruct", "Kimi-K2", False),
        ("mistralai/Mistral-7B-Instruct-v0.3", "Mistral-7B", True),
        ("google/gemma-3-4b-it", "Gemma-3-4B", False),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", "SmolLM2-135M", False),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "Nemotron-3-Nano-30B-A3B", True),
        ("zai-org/GLM-5.1", "GLM-5", True),
        ("MiniMaxAI/MiniMax-M2.5", "MiniMax-M2", True),
        ("PrimeIntellect/INTELLECT-3-Base", "GLM-4.5-Air", True),
    ],
)
def test_a_checkpoint_has_the_shape_of_its_base_and_says_where_that_is_assumed(
    text: str, name: str, is_assumed: bool
) -> None:
    found = model(text)
    assert found.name == name
    assert bool(found.assumed) == is_assumed
    assert all(text in line and name in line for line in found.assumed)


@pytest.mark.parametrize("text", ["Qwen3-7B", "acme/Nova-9B", "", "Qwen9-8B", "7B", "Llama-9-8B"])
def test_a_name_of_no_known_shape_is_refused(text: str) -> None:
    with pytest.raises(ParameterError, match=r"or the path of its config\.json"):
        model(text)


@given(
    st.sampled_from(model_names()),
    st.sampled_from(["", "org/", "/models/", "~/ckpt/x/"]),
    st.lists(st.sampled_from(["-Instruct", "-Base", "-FP8", "_torch_dist", "-2507", "-hf"]), max_size=2),
    st.booleans(),
)
def test_a_name_is_found_in_any_dress(name: str, folder: str, endings: list[str], small: bool) -> None:
    text = folder + name + "".join(endings)
    found = model(text.lower() if small else text)
    assert found == model(name)


def test_case_and_organisation_do_not_matter() -> None:
    assert model("Qwen/qwen3-8b") == model("Qwen3-8B")
    assert device("h100-sxm") == device("H100-SXM")


def test_an_unknown_model_gets_the_nearest_spelling() -> None:
    with pytest.raises(ParameterError, match=r"^model: found 'Lama-3.1-8B'.*did you mean 'Llama-3.1-8B'"):
        model("Lama-3.1-8B")


def test_an_unknown_device_gets_the_nearest_spelling() -> None:
    with pytest.raises(ParameterError, match=r"^cluster.device: .*did you mean 'H100-SXM'"):
        device("H100SXM")


def test_an_h200_is_an_h100_with_more_and_faster_memory() -> None:
    h100, h200 = device("H100-SXM"), device("H200-SXM")
    assert h100.bf16_flops == h200.bf16_flops
    assert h200.memory_bytes_per_second / h100.memory_bytes_per_second == pytest.approx(4.8 / 3.35)
