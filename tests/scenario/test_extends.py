"""Settings that scenarios share by ``extends``."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlsim.core.errors import ScenarioError
from rlsim.scenario.document import load

SHARED = """
framework: shared
rollout: {max_num_seqs: 64, step_time: {source: roofline, offset_seconds: 0.002}}
trainer: {mfu: 0.25, balance: lpt}
"""
SCENARIO = """
extends: shared/one.yaml
name: short
model: Qwen3-0.6B
cluster: {device: H100-SXM, gpus: 2}
rollout: {gpus: 1}
trainer: {gpus: 1}
workload: {prompts_per_step: 1, group_size: 1, prompt_tokens: 1, response_tokens: 10}
policy: {preset: sync-disaggregated}
run: {steps: 2}
arms:
  as shared: {}
  own: {trainer: {mfu: 0.5}, rollout: {step_time: {source: coefficients, base_seconds: 0.01}}}
  other: {extends: shared/two.yaml}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "one.yaml").write_text(SHARED)
    (tmp_path / "shared" / "two.yaml").write_text(SHARED.replace("0.25", "0.75"))
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    return tmp_path / "scenario.yaml"


def test_what_a_scenario_leaves_unsaid_is_shared(file: Path) -> None:
    scenario = load(file).resolve("as shared")
    assert (scenario.trainer.mfu, scenario.rollout.max_num_seqs, scenario.framework) == (0.25, 64, "shared")


def test_what_a_scenario_or_its_arm_says_wins_key_by_key(file: Path) -> None:
    scenario = load(file).resolve("own")
    assert (scenario.trainer.mfu, scenario.trainer.balance) == (0.5, "lpt")
    assert (scenario.rollout.step_time.source, scenario.rollout.step_time.offset_seconds) == ("coefficients", 0.002)


def test_a_file_has_the_arms_of_the_one_that_it_extends_unless_it_has_its_own(file: Path) -> None:
    shared = "rollout: {step_time: {source: roofline}}\ntrainer: {mfu: 0.25}\n"
    (file.parent / "few.yaml").write_text(f"extends: scenario-alone.yaml\nrun: {{steps: 5}}\n{shared}")
    (file.parent / "own.yaml").write_text(
        f"extends: scenario-alone.yaml\narms: {{mine: {{run: {{steps: 7}}}}}}\n{shared}"
    )
    alone = SCENARIO.replace("extends: shared/one.yaml\n", "").replace("  other: {extends: shared/two.yaml}\n", "")
    (file.parent / "scenario-alone.yaml").write_text(alone)
    few, own = load(file.parent / "few.yaml"), load(file.parent / "own.yaml")
    assert {name: few.resolve(name).run.steps for name in few.arms()} == {"as shared": 5, "own": 5}
    assert few.resolve("own").trainer.mfu == 0.5
    assert {name: own.resolve(name).run.steps for name in own.arms()} == {"mine": 7}


def test_an_arm_may_extend_another_file(file: Path) -> None:
    assert load(file).resolve("other").trainer.mfu == 0.75


def test_what_is_set_on_the_command_line_wins(file: Path) -> None:
    assert load(file, sets=["trainer.mfu=0.9"]).resolve("as shared").trainer.mfu == 0.9


@pytest.mark.parametrize("named", ["shared/none.yaml", "3", "shared/chain.yaml"])
def test_a_file_that_cannot_be_shared_is_refused(file: Path, named: str) -> None:
    (file.parent / "shared" / "chain.yaml").write_text("extends: one.yaml\n")
    file.write_text(SCENARIO.replace("shared/one.yaml", named))
    with pytest.raises(ScenarioError):
        load(file).resolve("as shared")
