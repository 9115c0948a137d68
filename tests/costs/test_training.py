"""Training time: hand-computed cases, scaling laws and the slowest rank."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

import rlsim
from rlsim.core.errors import ParameterError, ScenarioError
from rlsim.costs.catalogue import device, model
from rlsim.costs.trainer import TrainerConfig
from rlsim.costs.training import TrainingCost

QUICKSTART = Path(__file__).parents[2] / "scenarios" / "quickstart.yaml"
LLAMA, H100 = model("Llama-3.1-8B"), device("H100-SXM")
ONE_GPU = TrainingCost(TrainerConfig(gpus=1, mfu=0.4, old_log_prob=False), LLAMA, H100)
EIGHT = TrainingCost(TrainerConfig(gpus=8, mfu=0.4), LLAMA, H100)
samples = st.lists(st.tuples(st.integers(1, 500), st.integers(0, 4000)), min_size=1, max_size=64)


def compute(cost: TrainingCost, batch: list[tuple[int, int]]) -> float:
    return cost.micro_batch_seconds(batch)


def test_two_samples_on_one_gpu_by_hand() -> None:
    tokens, pairs = 100 + 300, 100 * 101 / 2 + 300 * 301 / 2
    flops = 3 * (2 * LLAMA.matmul_parameters() * tokens + 4 * 32 * 128 * 32 * pairs)
    expected = flops / (989e12 * 0.4)
    assert compute(ONE_GPU, [(40, 60), (100, 200)]) == pytest.approx(expected)
    [(name, seconds)] = ONE_GPU.phases([(40, 60), (100, 200)])
    assert name == "update_actor"
    assert seconds == pytest.approx(expected + ONE_GPU.optimizer_seconds())


def test_the_optimizer_step_moves_28_bytes_a_parameter() -> None:
    expected = LLAMA.parameters() * 28 / (3.35e12 * 0.77)
    assert ONE_GPU.optimizer_seconds() == pytest.approx(expected)
    assert ONE_GPU.replace(gpus=4).optimizer_seconds() == pytest.approx(expected / 4)


def test_an_offloaded_optimizer_crosses_the_host_link_both_ways() -> None:
    extra = ONE_GPU.replace(optimizer_offload=True).optimizer_seconds() - ONE_GPU.optimizer_seconds()
    assert extra == pytest.approx(2 * 12 * LLAMA.parameters() / 64e9)


@given(samples)
def test_twice_the_samples_is_twice_the_compute_on_one_rank(batch: list[tuple[int, int]]) -> None:
    assert compute(ONE_GPU, batch + batch) == pytest.approx(2 * compute(ONE_GPU, batch))


@given(samples)
def test_the_slowest_rank_is_never_faster_than_the_mean(batch: list[tuple[int, int]]) -> None:
    assert compute(EIGHT, batch) >= compute(EIGHT.replace(gpus=1), batch) / 8 * (1 - 1e-12)


@given(samples)
def test_greedy_balance_stays_within_grahams_bound(batch: list[tuple[int, int]]) -> None:
    """On tokens: at most mean + (1 - 1/K) longest. One second a token makes the load readable."""
    cost = EIGHT.replace(balance="lpt", micro_batch_tokens=1, seconds_per_micro_batch=1.0, mfu=1.0)
    slowest_tokens = round(compute(cost, batch) - compute(cost.replace(seconds_per_micro_batch=0.0), batch), 3)
    lengths = [prompt + response for prompt, response in batch]
    assert slowest_tokens <= sum(lengths) / 8 + (1 - 1 / 8) * max(lengths) + 1


def test_balancing_shortens_a_batch_that_is_sorted_by_length() -> None:
    batch = [(100, length) for length in range(64, 64 * 65, 64)]
    assert compute(EIGHT.replace(balance="lpt"), batch) < 0.75 * compute(EIGHT, batch)


@given(samples)
def test_padding_never_shortens(batch: list[tuple[int, int]]) -> None:
    assert compute(EIGHT.replace(packing="padded"), batch) >= compute(EIGHT, batch) * (1 - 1e-12)


def test_padded_samples_are_all_as_long_as_the_longest() -> None:
    padded = ONE_GPU.replace(packing="padded")
    assert compute(padded, [(10, 90), (10, 10)]) == pytest.approx(compute(ONE_GPU, [(10, 90)] * 2))


def test_recomputing_activations_costs_eight_sixths() -> None:
    again = ONE_GPU.replace(activation_recompute=True)
    assert compute(again, [(10, 90)]) == pytest.approx(8 / 6 * compute(ONE_GPU, [(10, 90)]))


def test_model_parallel_ranks_share_a_sample() -> None:
    batch = [(100, 900)] * 8
    sharded = EIGHT.replace(tensor_parallel=2, pipeline_parallel=2)
    assert sharded.data_parallel == 2
    assert compute(sharded, batch) == pytest.approx(compute(EIGHT, batch))


def test_phases_run_in_the_order_of_ppo() -> None:
    everything = EIGHT.replace(reference=True, critic=True, fixed_seconds_per_step=3.0)
    phases = everything.phases([(100, 900)] * 8)
    assert [name for name, _ in phases] == [
        "old_log_prob",
        "reference",
        "values",
        "update_critic",
        "update_actor",
        "overhead",
    ]
    assert phases[-1] == ("overhead", 3.0)
    assert everything.step_seconds([(100, 900)] * 8) == pytest.approx(sum(second for _, second in phases))


def test_a_log_prob_pass_is_a_third_of_forward_and_backward() -> None:
    batch = [(100, 900)] * 8
    assert dict(EIGHT.phases(batch))["old_log_prob"] == pytest.approx(compute(EIGHT, batch) / 3)
    faster = EIGHT.replace(logprob_mfu=0.8)
    assert dict(faster.phases(batch))["old_log_prob"] == pytest.approx(compute(EIGHT, batch) / 6)


def test_attention_may_reach_another_share_of_the_peak_in_every_pass() -> None:
    tokens, pairs = 1000, 1000 * 1001 / 2
    seconds = (LLAMA.token_flops() * tokens / 0.4 + LLAMA.pair_flops() * pairs / 0.1) / 989e12
    slow = ONE_GPU.replace(attention_mfu=0.1, old_log_prob=True)
    assert compute(slow, [(100, 900)]) == pytest.approx(3 * seconds)
    assert dict(slow.phases([(100, 900)]))["old_log_prob"] == pytest.approx(seconds)
    same = ONE_GPU.replace(attention_mfu=0.4)
    assert compute(same, [(100, 900)]) == pytest.approx(compute(ONE_GPU, [(100, 900)]))


def test_a_micro_batch_of_log_probabilities_may_have_an_overhead_of_its_own() -> None:
    batch = [(0, 1000)] * 8
    plain = ONE_GPU.replace(micro_batch_tokens=1000, seconds_per_micro_batch=0.5, old_log_prob=True)
    own = plain.replace(logprob_seconds_per_micro_batch=0.125)
    before, after = dict(plain.phases(batch)), dict(own.phases(batch))
    assert before["old_log_prob"] - after["old_log_prob"] == pytest.approx(8 * 0.375)
    assert before["update_actor"] == after["update_actor"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("attention_mfu", 0.0),
        ("logprob_seconds_per_micro_batch", -1.0),
        ("expert_utilisation", 0.0),
        ("seconds_per_sample", -1.0),
    ],
)
def test_measured_shares_and_overheads_are_checked(name: str, value: float) -> None:
    with pytest.raises(ScenarioError, match=rf" trainer\.{name}: found"):
        rlsim.load(QUICKSTART, {f"trainer.{name}": value}).resolve_all()


def test_each_update_and_each_micro_batch_pays_its_overhead() -> None:
    batch = [(0, 1000)] * 64
    plain = EIGHT.replace(updates_per_step=4, epochs=2, micro_batch_tokens=1000, old_log_prob=False)
    costly = plain.replace(seconds_per_update=0.5, seconds_per_micro_batch=0.01)
    extra = costly.step_seconds(batch) - plain.step_seconds(batch)
    assert extra == pytest.approx(2 * 4 * 0.5 + 2 * 8 * 0.01)


def test_each_sample_pays_its_overhead_and_a_step_its_own_once() -> None:
    plain = EIGHT.replace(old_log_prob=False)
    costly = plain.replace(seconds_per_sample=0.01, fixed_seconds_per_step=2.0)
    batch = [(0, 1000)] * 64
    assert costly.step_seconds(batch) - plain.step_seconds(batch) == pytest.approx(2.0 + 64 * 0.01)
    parts = [dict(costly.phases(batch[:32], last=last))["overhead"] for last in (False, True)]
    assert parts == pytest.approx([32 * 0.01, 2.0 + 32 * 0.01])


def test_grouped_products_of_experts_may_be_slower_than_dense_ones() -> None:
    shape = model("Qwen3-30B-A3B")
    even = replace(ONE_GPU, architecture=shape)
    third = even.replace(expert_utilisation=1 / 3)
    batch = [(0, 1000)]
    experts = 3 * 2 * shape.active_expert_parameters() * 1000 / (0.4 * H100.bf16_flops)
    assert compute(third, batch) - compute(even, batch) == pytest.approx(2 * experts)
    assert compute(ONE_GPU.replace(expert_utilisation=1 / 3), batch) == compute(ONE_GPU, batch)


def test_a_pipeline_idles_for_as_many_micro_batches_as_it_has_stages_less_one() -> None:
    plain = EIGHT.replace(pipeline_parallel=4, micro_batch_tokens=1000, old_log_prob=False)
    idle = plain.replace(pipeline_bubbles=True)
    batch = [(0, 1000)] * 32  # 16 micro-batches on each of two ranks
    assert compute(idle, batch) == pytest.approx(compute(plain, batch) * (1 + 3 / 16))
    alone = EIGHT.replace(old_log_prob=False)
    assert compute(alone.replace(pipeline_bubbles=True), batch) == compute(alone, batch)


def test_a_long_sample_costs_more_than_its_tokens() -> None:
    assert compute(ONE_GPU, [(0, 32_000)]) > 1.1 * compute(ONE_GPU, [(0, 1000)] * 32)


def test_a_batch_of_two_thousand_samples_is_priced_in_milliseconds() -> None:
    lengths = np.random.default_rng(0).integers(1, 4096, 2048)
    batch = [(120, int(length)) for length in lengths]
    cost = EIGHT.replace(gpus=64, updates_per_step=4, balance="lpt")
    best = min(_timed(cost, batch) for _ in range(5))
    assert best < 0.01


def _timed(cost: TrainingCost, batch: list[tuple[int, int]]) -> float:
    begin = time.perf_counter()
    cost.phases(batch)
    return time.perf_counter() - begin


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"mfu": float("nan")}, "trainer.mfu"),
        ({"mfu": 0.0}, "trainer.mfu"),
        ({"logprob_mfu": 1.2}, "trainer.logprob_mfu"),
        ({"gpus": 0}, "trainer.gpus"),
        ({"gpus": 8, "tensor_parallel": 3}, "trainer.gpus"),
        ({"epochs": -1}, "trainer.epochs"),
        ({"fixed_seconds_per_step": -1.0}, "trainer.fixed_seconds_per_step"),
        ({"seconds_per_update": float("inf")}, "trainer.seconds_per_update"),
        ({"packing": "paded"}, "did you mean 'padded'"),
        ({"balance": "ltp"}, "did you mean 'lpt'"),
    ],
)
def test_values_that_cannot_be_are_refused(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ScenarioError, match=named):
        rlsim.load(QUICKSTART, {f"trainer.{name}": value for name, value in change.items()}).resolve_all()
    with pytest.raises(ValidationError, match=next(reversed(change)) if "tensor_parallel" not in change else "gpus"):
        EIGHT.replace(**change)


@pytest.mark.parametrize("batch", [[], [(10, -1)], [(float("nan"), 1)], [(1, 2, 3)]])
def test_batches_that_cannot_be_are_refused(batch: Any) -> None:
    with pytest.raises(ParameterError, match="samples"):
        EIGHT.phases(batch)
