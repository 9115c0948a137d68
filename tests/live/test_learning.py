"""The trainer teaches: from chance to mastery on fresh data, and less on data from weights far in the past."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from learning_loop import Curve, Study, learn

SEEDS = (0, 1, 2)


@pytest.fixture(scope="module")
def curves(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Curve]]:
    """Three arms of the smallest task, with the same three seeds."""
    torch.set_num_threads(1)
    arms = {
        "on-policy": Study(),
        "16 steps old": Study(lag=16, most_weight=None),
        "16 steps old, corrected": Study(lag=16),
    }
    folder = tmp_path_factory.mktemp("learning")
    return {name: [learn(study.of_seed(seed), folder) for seed in SEEDS] for name, study in arms.items()}


@pytest.mark.slow
def test_reward_rises_from_chance_to_mastery_and_falls_short_on_stale_data(curves: dict[str, list[Curve]]) -> None:
    for name, arm in curves.items():
        for curve in arm:
            print(f"{name:24s} {curve.line()}")
    for curve in curves["on-policy"]:
        assert curve.rewards[0] < 0.3
        assert curve.final() >= 0.8
        assert min(curve.ess) > 0.99, "fresh samples have weight 1"
    ends = {name: sum(curve.final(30) for curve in arm) / len(arm) for name, arm in curves.items()}
    assert ends["16 steps old"] < ends["on-policy"] - 0.1
    for name in ("16 steps old", "16 steps old, corrected"):
        assert sum(sum(curve.ess[20:]) / len(curve.ess[20:]) for curve in curves[name]) / len(SEEDS) < 0.8
