"""The learning model from a run's rewards: what was put in comes back, and what cannot be told is not."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pytest

from calibration.learning_fit import Given, LearningFit, fit_learning
from calibration.learning_report import report_lines, write_overlay
from calibration.reward_log import RewardLog, read_rewards
from rlsim.core.errors import ParameterError
from rlsim.learning.course import Course, TrainedSample
from rlsim.learning.model import BatchEffect, Curve, LearningModel, Population, Reference
from rlsim.learning.staleness import METHODS

GIVEN = Given(updates_per_version=1.0, asymptote=0.85, steepness=1.0, drift_versions=10.0)
TRUTH = {
    "population.mean_success": 0.35,
    "population.spread": 1.8,
    "population.persistence": 0.75,
    "curve.half_updates": 60.0,
}
PROMPTS, A_STEP, GROUP, EPOCHS = 900, 30, 8, 3


def model(truth: dict[str, float]) -> LearningModel:
    return LearningModel(
        population=Population(
            truth["population.mean_success"],
            spread=truth["population.spread"],
            persistence=truth["population.persistence"],
            drift_versions=GIVEN.drift_versions,
        ),
        curve=Curve(GIVEN.asymptote, truth["curve.half_updates"], GIVEN.steepness),
        effect=BatchEffect(information_exponent=0, breadth_exponent=0),
        method=METHODS["none"],
        reference=Reference(A_STEP * GROUP, GROUP),
    )


@cache
def rewards(seed: int, epochs: int = EPOCHS, half_updates: float = 60.0) -> pd.DataFrame:
    """The rewards of synchronous training, an update a version, in the columns of a run's table."""
    course = Course(model({**TRUTH, "curve.half_updates": half_updates}), seed, PROMPTS)
    draw, rows, version = np.random.default_rng(seed), [], 0
    for epoch in range(epochs):
        for prompts in draw.permutation(PROMPTS).reshape(-1, A_STEP):
            batch = [
                TrainedSample(int(p), version * A_STEP + i, course.reward(int(p), epoch, m, version), 0.0, 100)
                for i, p in enumerate(prompts)
                for m in range(GROUP)
            ]
            rows += [(version, s.prompt, s.group, n % GROUP, s.reward, 100, 0.0) for n, s in enumerate(batch)]
            course.trained(batch, 1, 1)
            version += 1
            course.published(version)
    return pd.DataFrame(rows, columns=["version", "prompt", "group", "member", "reward", "tokens", "lag"])


def log(tmp_path: Path, rows: pd.DataFrame) -> RewardLog:
    rows.to_csv(tmp_path / "rewards.csv", index=False)
    return read_rewards(tmp_path)


@cache
def fitted(seed: int) -> LearningFit:
    with TemporaryDirectory() as folder:
        return fit_learning(log(Path(folder), rewards(seed)), GIVEN)


def inside(fit: LearningFit, truth: dict[str, float]) -> list[bool]:
    return [fit.parameters[key].low <= value <= fit.parameters[key].high for key, value in truth.items()]


def test_parameters_come_back() -> None:
    fit = fitted(0)
    assert sum(inside(fit, TRUTH)) >= 3
    assert all(fit.parameters[key].value == pytest.approx(value, rel=0.3) for key, value in TRUTH.items())
    assert fit.loss < fit.loss_of_one_rate - 0.05


@pytest.mark.slow
def test_parameters_come_back_within_their_intervals() -> None:
    """Of 12 intervals of 95 %, fewer than 9 would hold the truth by chance in one case of 450."""
    fits = [fitted(seed) for seed in range(3)]
    assert sum(held for fit in fits for held in inside(fit, TRUTH)) >= 9
    for fit in fits:
        for key, value in TRUTH.items():
            found = fit.parameters[key]
            assert found.low < found.value < found.high
            assert found.value == pytest.approx(value, rel=0.3)
        assert fit.loss < fit.loss_of_one_rate - 0.05


def test_without_progress_the_gain_is_not_told(tmp_path: Path) -> None:
    fit = fit_learning(log(tmp_path, rewards(7, 2, 1e9)), GIVEN)
    found = fit.parameters.get("curve.half_updates")
    assert found is None or found.high == float("inf")


def test_prompts_seen_once_do_not_tell_how_long_difficulty_lasts(tmp_path: Path) -> None:
    fit = fit_learning(log(tmp_path, rewards(1, 1)), GIVEN)
    assert "population.persistence" not in fit.parameters
    assert any("not told: no prompt was visited twice" in line for line in report_lines(fit))


def test_the_overlay_is_a_scenarios(tmp_path: Path) -> None:
    from rlsim.build.learning import make_learning
    from rlsim.scenario.source import load

    fit = fitted(0)
    write_overlay(fit, tmp_path / "learning.yaml")
    scenario = load("scenarios/quickstart.yaml", overlays=[tmp_path / "learning.yaml"]).resolve("on-policy colocated")
    made = make_learning(scenario)
    assert made is not None
    assert made.population.spread == fit.parameters["population.spread"].value
    assert made.curve.half_updates == fit.parameters["curve.half_updates"].value
    assert made.curve.asymptote == GIVEN.asymptote


def test_the_command_prints_intervals_and_writes_the_overlay(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from rlsim.cli import app

    rewards(1, 1).to_csv(tmp_path / "rewards.csv", index=False)
    out = tmp_path / "learning.yaml"
    said = CliRunner().invoke(app, ["calibrate", "learning", str(tmp_path), "--out", str(out), "--asymptote", "0.85"])
    assert said.exit_code == 0
    assert "learning.population.mean_success" in said.output
    assert "taken as known: asymptote 0.85" in out.read_text()


def test_tables_may_be_parquet_and_count_steps(tmp_path: Path) -> None:
    rows = rewards(0)
    rows.rename(columns={"version": "step"}).to_parquet(tmp_path / "rewards.parquet")
    found = read_rewards(tmp_path)
    assert found.samples.sum() == len(rows)
    assert found.successes.sum() == rows["reward"].sum()
    assert (np.diff(found.prompt) >= 0).all()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: rows.drop(columns="reward"), "also reward"),
        (lambda rows: rows.drop(columns="version"), r"version \(or step\)"),
        (lambda rows: rows.head(80), "at least 50"),
        (lambda rows: rows[rows["member"] == 0], "groups of two or more"),
        (lambda rows: rows.assign(reward=1.0), "successes and failures"),
    ],
)
def test_a_log_that_cannot_support_a_fit_is_refused(change, said: str, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=said):
        log(tmp_path, change(rewards(0)))


def test_a_ceiling_that_is_passed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="above the success of the last versions"):
        fit_learning(log(tmp_path, rewards(0)), replace(GIVEN, asymptote=0.4))


def test_a_missing_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"rewards\.parquet"):
        read_rewards(tmp_path)
