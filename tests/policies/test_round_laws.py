"""What over-issue, pools and moving calls are worth: paired runs, t intervals over replications.

Engine steps last the same whatever the batch, unless a test says otherwise: what is gained is the tail alone.
"""

from __future__ import annotations

from typing import Any

import pytest
from tail_runs import gain, high, low, measured, planned, prefill_costs, ran, rollout_seconds, step_seconds

from rlsim.core.commands import Submit

# -- over-sampling -------------------------------------------------------------------------------------

AMPLE: dict[str, Any] = {"run__steps": 8, "rollout__max_num_seqs": 256, "workload__prompts_per_step": 8}
OVER_SAMPLING: list[dict[str, Any]] = [
    {"preset": "slime-april", "over_sampling_batch_size": 12},
    {"preset": "rollpacker"},
]


@pytest.mark.parametrize("policy", OVER_SAMPLING, ids=lambda policy: str(policy["preset"]))
def test_over_sampling_gains_nothing_without_a_tail_and_more_the_longer_the_tail(policy: dict[str, Any]) -> None:
    gains = []
    for sigma in (0.0, 0.4, 1.2):
        plain = measured({"preset": "sync-colocated"}, step_seconds, 4, sigma=sigma, **AMPLE)
        gains.append(gain(plain, measured(policy, step_seconds, 4, sigma=sigma, **AMPLE)))
    assert gains[0].mean == pytest.approx(1.0, abs=0.01)
    means = [one.mean for one in gains]
    assert means == sorted(means)
    assert low(gains[1]) > 1.1
    assert low(gains[2]) > high(gains[1])


# -- pools ---------------------------------------------------------------------------------------------


def test_a_pool_of_copris_has_a_best_size_where_sequences_cost_step_time() -> None:
    """Small pools leave the engines idle; large ones slow each step and cut more work than they finish."""
    law = {**prefill_costs(1e-4), "per_sequence_seconds": 2e-4}
    given: dict[str, Any] = {**AMPLE, "rollout__max_num_seqs": 512, "rollout__step_time": law}
    pools = (16, 128, 512)
    times = [
        measured({"preset": "copris", "partial_rollout_pool_size": pool}, step_seconds, 3, **given) for pool in pools
    ]
    assert low(gain(times[0], times[1])) > 1.3
    assert low(gain(times[2], times[1])) > 1.3


# -- moving calls --------------------------------------------------------------------------------------


def repacked(**given: Any) -> dict[str, Any]:
    return {"preset": "laminar-repack", "repack_seconds": 0.2, "repack_capacity": 16, **given}


def test_repacking_helps_only_with_a_tail_and_more_with_a_longer_one() -> None:
    given: dict[str, Any] = {"rollout__gpus": 4, "rollout__max_num_seqs": 16, "workload__prompts_per_step": 8}
    gains = []
    for sigma in (0.0, 0.5, 1.1):
        stay, move = (
            measured(policy, step_seconds, 3, sigma=sigma, run__steps=12, **given)
            for policy in ({"preset": "laminar"}, repacked(repack_below=8))
        )
        gains.append(gain(stay, move))
    assert gains[0].mean == pytest.approx(1.0, abs=0.01)
    assert low(gains[1]) > 1.05
    assert low(gains[2]) > high(gains[1])


def test_balancing_moves_nothing_while_loads_are_even_and_helps_where_groups_stay_together() -> None:
    given: dict[str, Any] = {"rollout__gpus": 4, "rollout__max_num_seqs": 4, "workload__intra_group_correlation": 0.8}
    parts = {"dispatch": {"use": "group-affinity"}}
    moves = {**parts, "migration": {"use": "balance", "max_gap_calls": 4}}
    stay, move = ({"preset": "sync-disaggregated", "parts": chosen} for chosen in (parts, moves))
    found = gain(measured(stay, rollout_seconds, **given), measured(move, rollout_seconds, **given))
    assert low(found) > 1.05
    even = ran(planned(move, sigma=0.0, **given), 0)
    submitted = [made for row in even.decisions for made in row.commands if isinstance(made, Submit)]
    assert len(submitted) == 128 + 128
