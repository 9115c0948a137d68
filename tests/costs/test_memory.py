"""KV-cache capacity against the estimates of aiconfigurator-core 0.12 (0.9 of the memory, vLLM)."""

from __future__ import annotations

import pytest

from rlsim.core.errors import ParameterError
from rlsim.costs.catalogue import device, model
from rlsim.costs.memory import kv_blocks, weight_bytes_per_gpu

CAPACITY_BY_STEP_TOKENS = [(2_048, 437_000), (8_192, 433_000), (16_384, 427_000)]
"""Of Llama-3.1-8B on one H100, by the tokens that a step may have."""

CAPACITY_TOKENS = [
    ("Llama-3.1-8B", "H100-SXM", 1, 433_000),
    ("Qwen3-8B", "H100-SXM", 1, 383_000),
    ("Qwen3-8B", "H200-SXM", 1, 782_000),
    ("Qwen3-32B", "H100-SXM", 2, 302_000),
    ("Qwen3-32B", "H200-SXM", 4, 1_760_000),
    ("Qwen3-30B-A3B", "H100-SXM", 2, 856_000),
]


@pytest.mark.parametrize(("name", "gpu", "tensor_parallel", "tokens"), CAPACITY_TOKENS)
def test_capacity_is_near_the_reference_estimate(name: str, gpu: str, tensor_parallel: int, tokens: int) -> None:
    blocks = kv_blocks(model(name), device(gpu), tensor_parallel, block_size=16)
    assert blocks * 16 == pytest.approx(tokens, rel=0.02)


@pytest.mark.parametrize(("step_tokens", "tokens"), CAPACITY_BY_STEP_TOKENS)
def test_activations_take_room_in_proportion_to_the_tokens_of_a_step(step_tokens: int, tokens: int) -> None:
    blocks = kv_blocks(model("Llama-3.1-8B"), device("H100-SXM"), max_num_batched_tokens=step_tokens)
    assert blocks * 16 == pytest.approx(tokens, rel=0.01)
    room = kv_blocks(model("Llama-3.1-8B"), device("H100-SXM"))
    if step_tokens != 8_192:
        assert (blocks > room) == (step_tokens < 8_192)


def test_replicated_kv_heads_take_the_room_of_further_ranks() -> None:
    four_heads, h100 = model("Qwen3-30B-A3B"), device("H100-SXM")
    four, eight = (kv_blocks(four_heads, h100, ranks) for ranks in (4, 8))
    assert eight < 1.2 * four


def test_pipeline_stages_share_the_cache_by_layers() -> None:
    llama, h100 = model("Llama-3.1-8B"), device("H100-SXM")
    assert kv_blocks(llama, h100, 1, 2) > 2 * kv_blocks(llama, h100, 1, 1)


def test_experts_are_spread_over_expert_ranks() -> None:
    moe = model("Qwen3-235B-A22B")
    saved = weight_bytes_per_gpu(moe, 4) - weight_bytes_per_gpu(moe, 4, expert_parallel=8)
    assert saved == pytest.approx(2 * moe.expert_parameters() / 8)


def test_a_model_that_does_not_fit_says_needed_and_available() -> None:
    with pytest.raises(ParameterError, match=r"needs \d+\.\d GiB on each L40S, 40\.5 of 45\.0 GiB"):
        kv_blocks(model("Qwen3-32B"), device("L40S"))


@pytest.mark.parametrize("value", [0.0, 1.01, -0.5, float("nan")])
def test_an_impossible_utilization_is_refused(value: float) -> None:
    with pytest.raises(ParameterError, match="gpu_memory_utilization"):
        kv_blocks(model("Qwen3-8B"), device("H100-SXM"), gpu_memory_utilization=value)


def test_negative_overheads_are_refused() -> None:
    with pytest.raises(ParameterError, match="activation_bytes"):
        kv_blocks(model("Qwen3-8B"), device("H100-SXM"), activation_bytes=-1.0)
