"""Prompts that gain as their successes teach them: found again from rewards, and told from those that gain alike."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from calibration.rewards.fit import LearningFit, LearningSettings, fit_learning
from calibration.rewards.log import read_runs
from calibration.rewards.report import report_lines
from rlsim.learning.dynamics import LearningDynamics, TrainedSample
from rlsim.learning.model import BatchEffect, LearningModel, Population, ProgressCurve, Reference
from rlsim.learning.staleness import METHODS

GIVEN = LearningSettings(asymptote=0.95, steepness=1.5, gains="reinforced")
TRUTH = {"population.mean_success": 0.12, "population.spread": 1.4, "curve.half_updates": 30.0}
PROMPTS, A_STEP, GROUP, STEPS = 320, 16, 8, 60


@cache
def rewards(seed: int) -> pd.DataFrame:
    """Of synchronous uniform training, an update a version."""
    model = LearningModel(
        population=Population(mean_success=TRUTH["population.mean_success"], spread=TRUTH["population.spread"]),
        curve=ProgressCurve(
            asymptote=GIVEN.asymptote, half_updates=TRUTH["curve.half_updates"], steepness=GIVEN.steepness
        ),
        effect=BatchEffect(information_exponent=0, breadth_exponent=0, gains="reinforced"),
        method=METHODS["none"],
        reference=Reference(A_STEP * GROUP, GROUP),
    )
    course, draw, rows = LearningDynamics(model, seed, PROMPTS), np.random.default_rng(seed), []
    for version in range(STEPS):
        batch = [
            TrainedSample(int(p), version * A_STEP + i, course.reward(int(p), version, m, version), 0.0, 100)
            for i, p in enumerate(draw.choice(PROMPTS, A_STEP, replace=False))
            for m in range(GROUP)
        ]
        rows += [(version, s.prompt, s.group, s.reward) for s in batch]
        course.trained(batch, 1, 1)
        course.published(version + 1)
    return pd.DataFrame(rows, columns=["version", "prompt", "group", "reward"])


@cache
def fitted(given: LearningSettings, runs: int = 2) -> LearningFit:
    with TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{seed}.csv" for seed in range(runs)]
        for seed, path in enumerate(paths):
            rewards(seed).to_csv(path, index=False)
        return fit_learning(read_runs(paths, are_alike=True), given)


def test_what_was_put_in_comes_back() -> None:
    found = fitted(GIVEN).parameters
    for key, value in TRUTH.items():
        assert found[key].low <= value <= found[key].high, key
        assert abs(found[key].value / value - 1) < 0.25, key
    assert "effect.transfer" not in found
    assert fitted(GIVEN).overrides()["learning"]["effect"]["gains"] == "reinforced"
    assert not any("transfer" in line for line in report_lines(fitted(GIVEN)))


def test_the_law_that_made_the_rewards_tells_more_of_others() -> None:
    alike = fitted(replace(GIVEN, gains="alike"))
    assert fitted(GIVEN).loss < alike.loss - 0.002
    assert alike.overrides()["learning"]["effect"]["gains"] == "alike"
