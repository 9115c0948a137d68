"""Lengths by outcome, difficulty and kind: what was put in comes back from a run's table."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pytest

from calibration.rewards.fit import STUCK_OFFSET, LearningFit, LearningSettings, fit_learning
from calibration.rewards.log import read_runs
from calibration.rewards.report import report_lines, write_overlay
from rlsim.learning.dynamics import LearningDynamics
from rlsim.learning.model import Domain, LearningModel, LengthCoupling, Population, ProgressCurve
from rlsim.resolve.scenario import make_learning
from rlsim.scenario.document import load

TRUTH = {
    "lengths.failure_ratio": 1.6,
    "lengths.difficulty_ratio": 1.15,
    "lengths.success_difficulty_ratio": 0.9,
    "population.stuck_length_ratio": 0.5,
}
STUCK, PROMPTS, GROUP, VISITS, MEAN_TOKENS = 0.12, 400, 8, 3, 400
GIVEN = LearningSettings(asymptote=0.99, steepness=1.5, has_stuck=True)


@cache
def rewards(seed: int, stuck: float = STUCK) -> pd.DataFrame:
    """Groups of weights that do not learn; lengths spread about their mean as widely as an exponential law's."""
    ratio = TRUTH["population.stuck_length_ratio"]
    kinds = {"learnt": Domain(share=1 - stuck)}
    if stuck:
        kinds["stuck"] = Domain(share=stuck, offset=STUCK_OFFSET, length_ratio=ratio)
    model = LearningModel(
        population=Population(mean_success=0.4, spread=1.0, persistence=1.0, domains=kinds),
        lengths=LengthCoupling(**dict(zip(LengthCoupling.model_fields, TRUTH.values(), strict=False))),
        curve=ProgressCurve(asymptote=GIVEN.asymptote, half_updates=30, steepness=GIVEN.steepness),
    )
    course, draw, rows = LearningDynamics(model, seed, PROMPTS), np.random.default_rng(seed), []
    for visit in range(VISITS):
        for prompt in range(PROMPTS):
            for member in range(GROUP):
                mean = MEAN_TOKENS * course.length_factor(prompt, visit, member, 0)
                tokens = max(1, round(mean * draw.exponential()))
                earned = course.reward(prompt, visit, member, 0)
                rows.append((visit, prompt, visit * PROMPTS + prompt, earned, tokens))
    return pd.DataFrame(rows, columns=["version", "prompt", "group", "reward", "tokens"])


def fitted(seed: int, given: LearningSettings = GIVEN, stuck: float = STUCK, without: str = "") -> LearningFit:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rewards.csv"
        rewards(seed, stuck).drop(columns=without or []).to_csv(path, index=False)
        return fit_learning(read_runs([path]), given)


@cache
def usual(seed: int) -> LearningFit:
    return fitted(seed)


def test_ratios_come_back() -> None:
    fits = [usual(seed) for seed in range(3)]
    inside = [
        fit.parameters[key].low <= value <= fit.parameters[key].high for fit in fits for key, value in TRUTH.items()
    ]
    assert sum(inside) >= len(inside) - 1
    widths = [fits[0].parameters[key].high / fits[0].parameters[key].low for key in TRUTH]
    assert max(widths) < 2
    assert all(fit.lengths is not None and 0.05 < fit.lengths.explained < 0.9 for fit in fits)


def test_what_is_stuck_and_short_is_not_taken_for_difficulty() -> None:
    """Without the kind hard prompts look shorter than they are, and less of the lengths is explained."""
    alone = fitted(0, LearningSettings(asymptote=0.99, steepness=1.5))
    assert "population.stuck_length_ratio" not in alone.parameters
    assert alone.parameters["lengths.difficulty_ratio"].high < TRUTH["lengths.difficulty_ratio"]
    assert alone.lengths is not None
    assert (kinds := usual(0).lengths) is not None
    assert alone.lengths.explained < kinds.explained


def test_where_nothing_is_stuck_its_length_is_not_told() -> None:
    fit = fitted(0, stuck=0.0)
    assert "population.stuck_length_ratio" not in fit.parameters
    for key in ("lengths.failure_ratio", "lengths.difficulty_ratio"):
        assert fit.parameters[key].value == pytest.approx(TRUTH[key], rel=0.1)


def test_a_log_without_lengths_leaves_them_as_they_are() -> None:
    fit = fitted(0, without="tokens")
    assert fit.lengths is None
    assert "'lengths'" not in str(fit.overrides())
    assert "'lengths'" in str(usual(0).overrides())
    assert any("learning.lengths" in line and "no column tokens" in line for line in report_lines(fit))
    assert {key: value for key, value in usual(0).parameters.items() if key in fit.parameters} == fit.parameters


def test_the_overlay_says_it_to_a_scenario(tmp_path: Path) -> None:
    fit = usual(0)
    write_overlay(fit, tmp_path / "learning.yaml")
    found = make_learning(
        load("scenarios/live/allocation.yaml", overlays=[tmp_path / "learning.yaml"]).resolve("uniform")
    )
    assert found is not None
    lengths = found.lengths
    ratios = [lengths.failure_ratio, lengths.difficulty_ratio, lengths.success_difficulty_ratio]
    assert [*ratios, found.population.domains["stuck"].length_ratio] == [fit.parameters[key].value for key in TRUTH]
    assert any("held out, lengths" in line for line in report_lines(fit))
