"""Prompts that nothing solves: their share comes back from a run's rewards, and no longer looks like spread."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibration.rewards.fit import STUCK_OFFSET, LearningFit, LearningSettings, fit_learning
from calibration.rewards.log import read_runs
from calibration.rewards.report import report_lines, write_overlay
from rlsim.learning.dynamics import LearningDynamics, TrainedSample
from rlsim.learning.model import BatchEffect, Domain, LearningModel, Population, ProgressCurve, Reference
from rlsim.learning.staleness import METHODS

GIVEN = LearningSettings(asymptote=0.99, steepness=1.5, information_exponent=0.5, has_stuck=True)
TRUTH = {"population.mean_success": 0.15, "population.spread": 0.8, "curve.half_updates": 30.0}
PROMPTS, A_STEP, GROUP, STEPS = 160, 16, 8, 60


def model(stuck: float) -> LearningModel:
    kinds = {"learnt": Domain(share=1 - stuck), "stuck": Domain(share=stuck, offset=STUCK_OFFSET)} if stuck else {}
    population = Population(
        mean_success=TRUTH["population.mean_success"], spread=TRUTH["population.spread"], domains=kinds
    )
    return LearningModel(
        population=population,
        curve=ProgressCurve(
            asymptote=GIVEN.asymptote, half_updates=TRUTH["curve.half_updates"], steepness=GIVEN.steepness
        ),
        effect=BatchEffect(information_exponent=0, breadth_exponent=0),
        method=METHODS["none"],
        reference=Reference(A_STEP * GROUP, GROUP),
    )


@cache
def rewards(seed: int, stuck: float) -> pd.DataFrame:
    """Of synchronous uniform training, an update a version."""
    course, draw, rows = LearningDynamics(model(stuck), seed, PROMPTS), np.random.default_rng(seed), []
    for version in range(STEPS):
        if version % (PROMPTS // A_STEP) == 0:
            order = draw.permutation(PROMPTS).reshape(-1, A_STEP)
        epoch, at = divmod(version, len(order))
        batch = [
            TrainedSample(int(p), version * A_STEP + i, course.reward(int(p), epoch, m, version), 0.0, 100)
            for i, p in enumerate(order[at])
            for m in range(GROUP)
        ]
        rows += [(version, s.prompt, s.group, s.reward) for s in batch]
        course.trained(batch, 1, 1)
        course.published(version + 1)
    return pd.DataFrame(rows, columns=["version", "prompt", "group", "reward"])


def fitted(folder: Path, stuck: float, given: LearningSettings = GIVEN, runs: int = 1) -> LearningFit:
    paths = [folder / f"{seed}.csv" for seed in range(runs)]
    for seed, path in enumerate(paths):
        rewards(seed, stuck).to_csv(path, index=False)
    return fit_learning(read_runs(paths, are_alike=True), given)


@pytest.mark.slow
def test_the_share_comes_back_and_the_spread_is_that_of_the_others(tmp_path: Path) -> None:
    fit = fitted(tmp_path, 0.12)
    share = fit.parameters["population.stuck_share"]
    assert share.low <= 0.12 <= share.high
    assert share.high - share.low < 0.15
    for key, value in TRUTH.items():
        found = fit.parameters[key]
        assert found.low <= value <= found.high, key
    alone = fitted(tmp_path, 0.12, LearningSettings(asymptote=0.99, steepness=1.5, information_exponent=0.5))
    assert alone.parameters["population.spread"].value > 1.5 * fit.parameters["population.spread"].value
    assert fit.loss < alone.loss
    assert "population.stuck_share" not in alone.parameters
    assert "domains" not in alone.overrides()["learning"]["population"]


def test_where_nothing_is_stuck_hardly_anything_is_found(tmp_path: Path) -> None:
    share = fitted(tmp_path, 0.0).parameters["population.stuck_share"]
    assert share.value < 0.03
    assert share.low == 0.0


@pytest.mark.slow
def test_several_runs_that_are_alike_are_fitted_as_one(tmp_path: Path) -> None:
    fit = fitted(tmp_path, 0.12, runs=3)
    share = fit.parameters["population.stuck_share"]
    assert share.low <= 0.12 <= share.high
    assert fit.groups == 3 * STEPS * A_STEP
    assert "effect.information_exponent" not in fit.parameters


def test_the_overlay_has_both_kinds_of_prompts(tmp_path: Path) -> None:
    from rlsim.resolve.scenario import make_learning
    from rlsim.scenario.document import load

    fit = fitted(tmp_path, 0.12)
    write_overlay(fit, tmp_path / "learning.yaml")
    scenario = load("scenarios/quickstart.yaml", overlays=[tmp_path / "learning.yaml"]).resolve("on-policy colocated")
    made = make_learning(scenario)
    assert made is not None
    learnt, stuck = made.population.domains.values()
    share = fit.parameters["population.stuck_share"].value
    assert (stuck.share, stuck.offset) == (share, STUCK_OFFSET)
    assert (learnt.share, learnt.offset) == (pytest.approx(1 - share), 0.0)
    assert any("stuck_share" in line for line in report_lines(fit))
