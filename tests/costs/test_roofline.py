"""The roofline estimate against measured steps and against its own limits.

The bounds say how rough the estimate is; they are no hold-out, as its efficiencies come from the same sources.
"""

from __future__ import annotations

from statistics import median

import pytest

from rlsim.core.errors import ParameterError
from rlsim.costs.catalogue import device, model
from rlsim.costs.profile import load_profile
from rlsim.costs.roofline import Efficiency, roofline

BATCHES = (1, 8, 16, 32, 48, 64)
CONTEXTS = (256, 512, 1024)
A100_MILLISECONDS = {
    "Qwen2.5-7B": (
        (9.53, 9.59, 9.61),
        (9.70, 9.72, 9.84),
        (9.86, 9.98, 10.12),
        (10.37, 11.20, 11.54),
        (11.35, 12.29, 12.63),
        (11.81, 12.69, 13.02),
    ),
    "Llama-3.1-8B": (
        (10.23, 10.24, 10.26),
        (10.24, 10.39, 10.56),
        (11.32, 11.50, 11.87),
        (12.73, 12.92, 13.30),
        (14.44, 14.65, 15.02),
        (14.79, 14.98, 15.38),
    ),
    "Qwen2.5-14B": (
        (18.56, 18.57, 18.61),
        (18.55, 18.76, 18.98),
        (19.38, 20.57, 21.16),
        (20.66, 21.89, 22.47),
        (21.20, 22.26, 22.85),
        (22.08, 22.89, 23.47),
    ),
}
"""Target decode steps of arXiv 2606.18967 (EfficientRollout, sd_toggle), A100-80GB, vLLM 0.11.2, median ms.
Contexts of 2048 and 4096 are left out: the source's own fit shows that its live contexts were shorter than
stated (it finds 19 to 46 % of the KV bytes a token that these models have)."""


def relative_errors(name: str) -> list[float]:
    law = roofline(model(name), device("A100-SXM-80GB"))
    return [
        law.decode_seconds(batch, batch * context) * 1e3 / measured - 1.0
        for batch, row in zip(BATCHES, A100_MILLISECONDS[name], strict=True)
        for context, measured in zip(CONTEXTS, row, strict=True)
    ]


@pytest.mark.parametrize("name", A100_MILLISECONDS)
def test_decode_on_a100_is_estimated_within_a_stated_bound(name: str) -> None:
    errors = [abs(error) for error in relative_errors(name)]
    assert median(errors) < 0.08
    assert max(errors) < 0.22


@pytest.mark.parametrize(
    ("profile", "tensor_parallel", "bound"),
    [
        ("llama-3.1-8b_h100-sxm_tp1", 1, 0.15),
        ("qwen3-32b_h100-sxm_tp2", 2, 0.15),
        ("qwen3-30b-a3b_h100-sxm_tp2_ep2", 2, 0.30),
    ],
)
def test_decode_on_h100_is_near_the_silicon_tables(profile: str, tensor_parallel: int, bound: float) -> None:
    table = load_profile(profile)
    law = roofline(model(table.model), device(table.device), tensor_parallel)
    for batch in (1, 8, 64, 256):
        for context in (256, 1024):
            ratio = law.decode_seconds(batch, batch * context) / table.law.decode_seconds(batch, batch * context)
            assert abs(ratio - 1) < bound


def test_it_calls_itself_an_estimate() -> None:
    assert roofline(model("Qwen3-8B"), device("H100-SXM")).provenance.is_estimate


def test_one_decode_reads_the_weights_once() -> None:
    perfect = Efficiency(memory=1.0, sequence_seconds=0.0, layer_seconds=0.0)
    llama, h100 = model("Llama-3.1-8B"), device("H100-SXM")
    read = (llama.parameters() - llama.vocab * llama.hidden) * 2 / h100.memory_bytes_per_second
    assert roofline(llama, h100, efficiency=perfect).decode_seconds(1, 0) == pytest.approx(read)


def test_long_prefill_runs_at_the_compute_rate() -> None:
    llama, h100 = model("Llama-3.1-8B"), device("H100-SXM")
    ideal = llama.token_flops() * 16384 / (h100.bf16_flops * Efficiency().compute)
    assert roofline(llama, h100).mixed_seconds(0, 0, 1, 16384, 0) == pytest.approx(ideal, rel=0.05)


def test_a_mixture_of_experts_reads_few_experts_at_batch_one() -> None:
    law = roofline(model("Qwen3-30B-A3B"), device("H100-SXM"), 2)
    assert law.decode_seconds(1, 100) < 0.35 * law.decode_seconds(128, 12_800)


def test_pipeline_stages_are_passed_one_after_the_other() -> None:
    shape, h100 = model("Llama-3.1-70B"), device("H100-SXM")
    one, two = (roofline(shape, h100, 4, stages).decode_seconds(1, 1000) for stages in (1, 2))
    assert one < two < one + 1e-4


def test_tensor_parallel_ranks_share_the_reading_but_pay_for_collectives() -> None:
    shape, h100 = model("Llama-3.1-70B"), device("H100-SXM")
    two, four = (roofline(shape, h100, ranks).decode_seconds(1, 1000) for ranks in (2, 4))
    assert two / 2 < four < two


@pytest.mark.parametrize("value", [0.0, 1.5, float("nan")])
def test_an_efficiency_outside_its_range_is_refused(value: float) -> None:
    with pytest.raises(ParameterError, match=r"efficiency\.memory"):
        Efficiency(memory=value)


def test_more_ranks_than_heads_are_refused() -> None:
    with pytest.raises(ParameterError, match="tensor_parallel"):
        roofline(model("Qwen2.5-0.5B"), device("H100-SXM"), 16)


def test_ranks_on_several_nodes_reduce_over_the_network() -> None:
    shape, h100 = model("Llama-3.1-70B"), device("H100-SXM")
    apart = roofline(shape, h100, 16).decode_seconds(1, 0)
    together = roofline(shape, h100, 16, gpus_per_node=16).decode_seconds(1, 0)
    assert apart - together == pytest.approx(2 * shape.layers * 97e-6, rel=0.05)
    assert roofline(shape, h100, 8) == roofline(shape, h100, 8, gpus_per_node=16)
