"""Races are fair: the same strategy gains nothing on itself, and nobody gains where rewards teach nothing."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlsim.cli.main import app
from rlsim.core.errors import ParameterError
from rlsim.policies.allocation.group_size import UniformGroups
from rlsim.policies.registry import parts_of
from rlsim.results.progress import USED
from rlsim.scenario.document import load
from rlsim.studies.compare import plans
from rlsim.studies.output import json_text
from rlsim.studies.race import Race, band_shares, race_plans, success, wasted
from rlsim.studies.report.page import write_report
from rlsim.studies.runs.executor import local_executor
from rlsim.studies.text.race import as_text, save_figures

NULL = "learning.effect={information_exponent: 0, breadth_exponent: 0}"
SMALL = """
name: race
seed: 3
model: Qwen2.5-0.5B
cluster: {device: H100-SXM, gpus: 2}
rollout:
  gpus: 2
  max_num_seqs: 64
  step_time: {source: coefficients, base_seconds: 0.005, per_sequence_seconds: 1.0e-4}
trainer: {gpus: 2, mfu: 0.4}
workload:
  prompts_per_step: 8
  group_size: 8
  dataset_prompts: 256
  prompt_tokens: 20
  response_tokens: {law: lognormal, mean_tokens: 60, sigma: 0.6, cap_tokens: 300}
learning:
  curve: {half_updates: 20}
policy: {preset: sync-colocated}
run: {steps: 25, warmup_steps: 1, replications: 4}
arms:
"""


def raced(directory: Path, arms: dict[str, str], *sets: str, target: float = 0.55) -> Race:
    file = directory / "race.yaml"
    lines = [f"  {name}:\n    policy: {{parts: {{allocation: {part}}}}}" for name, part in arms.items()]
    file.write_text(SMALL + "\n".join(lines) + "\n", encoding="utf-8")
    with local_executor() as runs:
        return race_plans(plans(load(str(file), sets=list(sets))), target, runs)


def test_a_strategy_gains_nothing_on_itself(tmp_path: Path) -> None:
    race = raced(tmp_path, {"one": "{use: uniform}", "same": "{use: uniform}"})
    for used in USED:
        gain = race.difference_at(race.arms[1], used)
        assert (gain.mean, gain.low, gain.high) == (0.0, 0.0, 0.0)
    ratio = race.over_first(race.arms[1], "rollouts")
    assert ratio is not None
    assert ratio.mean == pytest.approx(1.0)


def strategies() -> list[str]:
    """Parts that decide by rewards, with defaults for all their parameters."""
    return [
        name
        for name, cls in parts_of("allocation").items()
        if hasattr(cls, "observe") and all(field.default is not MISSING for field in fields(cls))  # type: ignore[arg-type]
    ]


@pytest.mark.parametrize("name", strategies())
def test_where_rewards_teach_nothing_no_strategy_ends_higher(name: str, tmp_path: Path) -> None:
    """The null effect of DataFlex-RL: after as many steps success is the same, whatever was allocated."""
    race = raced(tmp_path, {"uniform": "{use: uniform}", name: f"{{use: {name}}}"}, NULL)
    ends = [success(arm, -1) for arm in race.arms]
    assert ends[0].mean == pytest.approx(ends[1].mean, abs=1e-9)
    assert success(race.arms[0], 0).mean < ends[0].mean


def test_throwing_groups_away_costs_rollouts_and_saves_training(tmp_path: Path) -> None:
    race = raced(tmp_path, {"uniform": "{use: uniform}", "dapo": "{use: dapo}"})
    uniform, dapo = race.arms
    assert wasted(uniform)["filtered"] == 0
    assert 0.05 < wasted(dapo)["filtered"] < 0.6
    fewer = race.over_first(dapo, "trained_tokens")
    assert fewer is not None
    assert fewer.low is not None
    assert fewer.low > 1


def test_what_is_told_of_a_race(tmp_path: Path) -> None:
    race = raced(tmp_path, {"uniform": "{use: uniform}", "dapo": "{use: dapo}"}, target=0.7)
    text = as_text(race)
    assert "ESTIMATE" in text
    assert "uniform: 4 of 4 runs do not reach 0.7 in 25 steps" in text
    assert '"estimate": true' in json_text(race.to_dict())
    for figure in save_figures(race, tmp_path):
        assert figure.stat().st_size > 10_000


def test_which_prompts_got_the_samples_is_told(tmp_path: Path) -> None:
    """Uniform sampling gives in proportion to how many prompts there are: the untrained population's law, at first."""
    race = raced(tmp_path, {"uniform": "{use: uniform}", "dapo": "{use: dapo}"}, NULL, "run.steps=8")
    shares = [band_shares(arm, "samples") for arm in race.arms]
    for found in shares:
        assert sum(found.values()) == pytest.approx(1)
        assert found["unknown"] == 0
    table = as_text(race).partition("by success of their prompt")[2]
    assert table.partition("uniform")[2].split()[0] == f"{100 * shares[0]['never']:.1f}"
    told = json.loads(json_text(race.to_dict()))["arms"]["dapo"]["share_by_success_band"]
    assert told["samples"] == shares[1]


def test_what_a_race_saves_is_a_report(tmp_path: Path) -> None:
    scenario, out = tmp_path / "race.yaml", tmp_path / "out"
    scenario.write_text(SMALL + "  one: {}\n", encoding="utf-8")
    words = [str(scenario), "--out", str(out), "--set", "run.replications=1", "--set", "run.steps=4", "--workers", "1"]
    done = CliRunner().invoke(app, ["race", *words])
    assert done.exit_code == 0, done.output
    assert {path.name for path in out.glob("*.png")} >= {"progress.png", "allotted_samples.png", "allotted_tokens.png"}
    page = write_report(out).read_text(encoding="utf-8")
    assert "Which prompts got the samples" in page
    assert f"rlsim race {scenario}" in page


def test_a_race_needs_a_learning_section(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="learning"):
        raced(tmp_path, {"uniform": "{use: uniform}"}, "learning=null")


def test_the_default_is_uniform() -> None:
    assert parts_of("allocation")["uniform"] is UniformGroups
