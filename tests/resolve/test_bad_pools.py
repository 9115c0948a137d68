"""Pools that do not add up fail before anything runs, each at the key that mends it."""

from __future__ import annotations

from pathlib import Path

import pytest
from faulty_files import faults_of, written

POOLS = """\
  gpus: 8
  pools:
    - {name: prefill, gpus: 4}
    - {name: decode, gpus: 4, max_num_seqs: 128}
"""
SHARED = """\
  gpus: 4
  pools:
    - {name: prefill, gpus: 4, sm_share: 0.4}
    - {name: decode, gpus: 4, sm_share: 0.6, shares_gpus_with: prefill}
"""


def told(folder: Path, text: str, *changes: tuple[str, str]) -> tuple[str, ...]:
    """What a user is told of a scenario with these rollout GPUs."""
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    path = written(folder, ("rollout:\n  gpus: 8\n", f"rollout:\n{text}"))
    return tuple(fault.removeprefix(f"{path}:") for fault in faults_of(path))


@pytest.mark.parametrize("text", [POOLS, SHARED])
def test_pools_that_add_up_are_planned(tmp_path: Path, text: str) -> None:
    assert told(tmp_path, text) == ()


CASES = [
    (POOLS, ("gpus: 8", "gpus: 6"), "7: rollout.gpus: found 6; allowed: 8: the sum over rollout.pools"),
    (
        POOLS,
        ("name: decode", "name: prefill"),
        "10: rollout.pools[1].name: found 'prefill'; allowed: a name of its own: pools[0] has it",
    ),
    (
        POOLS,
        ("max_num_seqs: 128", "tensor_parallel: 3"),
        "10: rollout.pools[1].gpus: found 4; allowed: a multiple of 3",
    ),
    (
        POOLS,
        ("max_num_seqs: 128", "max_num_seqs: 9000"),
        "10: rollout.pools[1].max_num_batched_tokens: found 8192; allowed: at least max_num_seqs (9000)",
    ),
    (
        POOLS,
        ("max_num_seqs: 128", "device: H21"),
        "10: rollout.pools[1].device: found 'H21'; allowed: A100-SXM-80GB",
    ),
    (
        POOLS,
        ("max_num_seqs: 128", "device: H20"),
        "14: rollout.step_time.profile: found 'llama-3.1-8b_h100-sxm_tp1'; allowed: a profile of this set-up",
    ),
    (
        POOLS,
        ("max_num_seqs: 128", "kv_blocks: 3"),
        "10: rollout.pools[1].kv_blocks: found '3 KV blocks of 16 tokens'; allowed: room for one sequence",
    ),
    (
        POOLS,
        ("max_num_seqs: 128", "max_num_seq: 128"),
        "10: rollout.pools[1].max_num_seq: unknown key",
    ),
    (
        POOLS,
        ("max_num_seqs: 128", "sm_share: 0.5"),
        "10: rollout.pools[1].sm_share: found 0.5; allowed: nothing, as no pool shares these GPUs",
    ),
    (
        SHARED,
        ("sm_share: 0.6", "sm_share: 0.7"),
        "10: rollout.pools[1].sm_share: found 0.7; allowed: at most 0.6: what the other pools on these GPUs leave",
    ),
    (SHARED, ("sm_share: 0.6", "sm_share: 1.6"), "10: rollout.pools[1].sm_share: found 1.6; allowed: a number"),
    (
        SHARED,
        (", sm_share: 0.4", ""),
        "9: rollout.pools[0].sm_share: missing; allowed: a share, above 0 and at most 1, on shared GPUs",
    ),
    (
        SHARED,
        ("with: prefill", "with: prefil"),
        "10: rollout.pools[1].shares_gpus_with: found 'prefil'; allowed: prefill",
    ),
    (
        SHARED,
        ("gpus: 4, sm_share: 0.6", "gpus: 2, sm_share: 0.6"),
        "10: rollout.pools[1].gpus: found 2; allowed: 4, as prefill: one copy of the weights serves both",
    ),
    (
        SHARED,
        ("sm_share: 0.6", "sm_share: 0.6, tensor_parallel: 2"),
        "10: rollout.pools[1].tensor_parallel: found 2; allowed: 1, as prefill",
    ),
    (
        SHARED,
        ("sm_share: 0.6", "sm_share: 0.6, device: H20"),
        "10: rollout.pools[1].device: found 'H20'; allowed: nothing, as prefill: they are its GPUs",
    ),
    (
        SHARED,
        ("sm_share: 0.6", "sm_share: 0.6, price_usd_per_gpu_hour: 3"),
        "10: rollout.pools[1].price_usd_per_gpu_hour: found 3.0; allowed: nothing, as prefill has the GPUs",
    ),
    (
        SHARED,
        ("sm_share: 0.6", "sm_share: 0.6, kv_share: 0.9"),
        "10: rollout.pools[1].kv_share: found 0.9; allowed: at most 0.6",
    ),
    (
        SHARED,
        ("sm_share: 0.6", "sm_share: 0.6, kv_share: 0.5, kv_blocks: 900"),
        "10: rollout.pools[1].kv_share: found 0.5; allowed: nothing, as kv_blocks says how many",
    ),
    (
        SHARED,
        ("sm_share: 0.6", "sm_share: 0.6, kv_share: 0.0001"),
        "10: rollout.pools[1].kv_share: found '",
    ),
]


@pytest.mark.parametrize(("text", "change", "fault"), CASES)
def test_a_fault_of_a_pool_is_at_its_key(tmp_path: Path, text: str, change: tuple[str, str], fault: str) -> None:
    found = told(tmp_path, text, change)
    assert len(found) == 1, found
    assert found[0].startswith(fault)


def test_pools_of_several_devices_each_have_their_profile_or_roofline(tmp_path: Path) -> None:
    mixed = ("max_num_seqs: 128", "device: H20, step_time: {source: roofline}")
    assert told(tmp_path, POOLS, mixed) == ()
