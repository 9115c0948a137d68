"""Progress tables: what was used, what was reached, and every reward that a policy was told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from runs import small_run

from rlsim.core.events import Scored
from rlsim.core.ticks import to_seconds
from rlsim.resolve.scenario import gpus_used
from rlsim.results.metrics import metrics_of
from rlsim.results.progress import USED, progress_columns, progress_tables, reward_columns, success_at, used_at
from rlsim.results.store import save
from rlsim.results.tables import digest

LEARNING = ("learning={curve: {half_updates: 4}}",)
LINE = {
    "step": np.array([-1, 0, 1]),
    "rollouts": np.array([0, 100, 300]),
    "success": np.array([0.4, 0.5, 0.6]),
}


@pytest.mark.parametrize(
    ("success", "rollouts"), [(0.4, 0.0), (0.45, 50.0), (0.5, 100.0), (0.55, 200.0), (0.6, 300.0), (0.61, None)]
)
def test_what_it_took_to_reach_a_success(success: float, rollouts: float | None) -> None:
    assert used_at(LINE, success, "rollouts") == (None if rollouts is None else pytest.approx(rollouts))


@pytest.mark.parametrize(("rollouts", "success"), [(0, 0.4), (50, 0.45), (200, 0.55), (300, 0.6), (301, None)])
def test_what_a_budget_has_bought(rollouts: float, success: float | None) -> None:
    assert success_at(LINE, "rollouts", rollouts) == (None if success is None else pytest.approx(success))


@pytest.mark.parametrize("preset", ["sync-colocated", "one-step-off", "slime-april", "pipelinerl"])
def test_what_was_used_only_grows_and_ends_with_the_run(preset: str) -> None:
    run = small_run(preset, extra=LEARNING)
    read = digest(run)
    rows, told = progress_columns(read), metrics_of(read)
    for used in USED:
        assert rows[used][0] == 0
        assert (np.diff(rows[used]) >= 0).all()
    assert len(rows["step"]) == len(run.log.progress) + 1
    assert rows["generated_tokens"][-1] <= told.generated_tokens
    trained = [row.tokens for row in run.log.final if row.outcome == "trained"]
    assert rows["trained_tokens"][-1] >= sum(trained)
    assert rows["gpu_seconds"][-1] == pytest.approx(to_seconds(run.log.progress[-1].now) * gpus_used(run.plan))


def test_every_reward_that_was_told_is_in_the_table_once() -> None:
    run = small_run("slime-april", extra=LEARNING)
    rewards = reward_columns(digest(run))
    told = {row.event.sample: row.event.reward for row in run.log.decisions if isinstance(row.event, Scored)}
    assert dict(zip(rewards["sample"].tolist(), rewards["reward"].tolist(), strict=True)) == told
    assert set(rewards["outcome"]) >= {"trained"}


def test_runs_that_do_not_learn_have_no_such_tables() -> None:
    assert progress_tables(digest(small_run())) == {}


def test_the_tables_are_saved(tmp_path: Path) -> None:
    directory = save(tmp_path, "arm", [small_run(extra=LEARNING)]) / "replication-0"
    assert pd.read_parquet(directory / "progress.parquet")["success"].is_monotonic_increasing
    assert {"prompt", "group", "reward", "version"} <= set(pd.read_parquet(directory / "rewards.parquet").columns)
