"""Weight sync and role switches against published times."""

from __future__ import annotations

from typing import Any

import pytest

from rlsim.core.errors import ParameterError
from rlsim.costs.catalogue import device, model
from rlsim.costs.transfer import TRANSPORTS, SwitchCost, SyncCost, staged_bytes_per_second

PUBLISHED_SECONDS = [
    ("checkpoint-engine", 235.1e9 * 2, 6.22, 0.25),
    ("checkpoint-engine", 671e9, 10.19, 0.1),
    ("checkpoint-engine", 671e9, 11.33, 0.1),
    ("nccl", 9.4e9 * 2, 0.69, 0.1),
    ("nccl", 30.5e9 * 2, 2.67, 0.25),
    ("rdma", 235.1e9 * 2, 3.16, 0.25),
]
"""Transport, bytes of the model, seconds: checkpoint-engine README (Qwen3-235B bf16, DeepSeek-V3.1 fp8 on 16
and 256 GPUs) and the LMSYS P2P weight-transfer tables."""


@pytest.mark.parametrize(("transport", "size", "seconds", "tolerance"), PUBLISHED_SECONDS)
def test_a_sync_is_near_the_published_time(transport: str, size: float, seconds: float, tolerance: float) -> None:
    assert SyncCost.over(transport, size).seconds() == pytest.approx(seconds, rel=tolerance)


def test_a_sync_is_base_and_wire_and_control_plane() -> None:
    cost = SyncCost(60e9, 20e9, base_seconds=0.5, tensors=200, per_tensor_seconds=0.01)
    assert cost.seconds() == pytest.approx(0.5 + 3.0 + 2.0)


def test_weights_that_an_offloaded_trainer_brings_back_first_take_their_time() -> None:
    assert SyncCost(60e9, 20e9, restore_seconds=1.5).seconds() == pytest.approx(3.1 + 1.5)


def test_pipeline_stages_send_at_once_until_a_receiver_takes_in_no_more() -> None:
    assert [staged_bytes_per_second(20e9, stages, 50e9) for stages in (1, 2, 4)] == [20e9, 40e9, 50e9]
    for faulty in ((0.0, 1, 50e9), (20e9, 0, 50e9), (20e9, 1, float("inf"))):
        with pytest.raises(ParameterError):
            staged_bytes_per_second(*faulty)


def test_the_published_weights_of_four_stages_arrive_within_a_seventh() -> None:
    """miles, NCCL: 2.67 s for 30B-A3B from one stage; 10.75 s for 235B-A22B from four."""
    small, large = (model(name).weight_bytes() for name in ("Qwen3-30B-A3B", "Qwen3-235B-A22B"))
    rate = staged_bytes_per_second(small / 2.57, 4, device("H100-SXM").inter_node_bytes_per_second)
    assert SyncCost(large, rate, base_seconds=0.1).seconds() == pytest.approx(10.75, rel=1 / 7)


def test_every_transport_has_a_source_and_a_range() -> None:
    assert all(transport.source and "GB/s" in transport.measured for transport in TRANSPORTS.values())


def test_vllm_sleep_of_an_8b_model_takes_the_reported_seconds() -> None:
    size = model("Llama-3.1-8B").weight_bytes()
    keeping, dropping = (SwitchCost.vllm_sleep(size, level) for level in (1, 2))
    assert (keeping.sleep_seconds, keeping.wake_seconds) == pytest.approx((10.57, 2.19), rel=0.01)
    assert (dropping.sleep_seconds, dropping.wake_seconds) == pytest.approx((0.31, 6.53), rel=0.01)


def test_a_known_host_link_sets_the_time() -> None:
    assert SwitchCost.vllm_sleep(16e9, 1, 32e9).sleep_seconds == pytest.approx(0.5)
    both = SwitchCost.from_bytes(16e9, 96e9, host_link_bytes_per_second=32e9, reshard_seconds=0.25)
    assert both.to_training_seconds() == pytest.approx(0.5 + 3.0)
    assert both.to_rollout_seconds() == pytest.approx(3.0 + 0.25 + 0.5)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model_bytes": float("nan")}, "sync.model_bytes"),
        ({"bytes_per_second": 0.0}, "sync.link_bytes_per_second"),
        ({"base_seconds": -0.1}, "sync.base_seconds"),
        ({"tensors": -1}, "sync.tensors"),
        ({"scope": "globl"}, "did you mean 'global'"),
    ],
)
def test_impossible_syncs_are_refused(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ParameterError, match=named):
        SyncCost(**({"model_bytes": 1e9} | change))


def test_an_unknown_transport_gets_the_nearest_spelling() -> None:
    with pytest.raises(ParameterError, match="did you mean 'nccl'"):
        SyncCost.over("ncl", 1e9)


@pytest.mark.parametrize("link", [0.0, -1.0, float("nan")])
def test_an_impossible_host_link_is_refused(link: float) -> None:
    with pytest.raises(ParameterError, match="host_link"):
        SwitchCost.vllm_sleep(1e9, 1, link)


def test_an_impossible_sleep_level_is_refused() -> None:
    with pytest.raises(ParameterError, match="level"):
        SwitchCost.vllm_sleep(1e9, 3)
