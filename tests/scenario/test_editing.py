"""A scenario that was changed is written as its own file: comments stay, and only what differs is changed."""

from __future__ import annotations

from pathlib import Path

from rlsim.scenario.document import load
from rlsim.scenario.editing import Original, write_edited
from rlsim.scenario.override import override
from rlsim.scenario.schema import Scenario

BASE = """\
# of the run on Monday
name: a run   # as in the tracker
model: Qwen2.5-1.5B
cluster: {device: A100-SXM-80GB, gpus: 4}
rollout: {gpus: 2, step_time: {source: roofline, scale: 1.2}}
trainer:
  gpus: 2
  mfu: 0.5  # a guess
workload:
  prompts_per_step: 8
  group_size: 4
  prompt_tokens: 96
  response_tokens: {law: lognormal, mean_tokens: 500, sigma: 1.0, cap_tokens: 2048}
policy: {preset: sync-disaggregated}
run: {steps: 4, warmup_steps: 1, replications: 2}
"""
CHANGES = {
    "trainer.mfu": 0.37,
    "trainer.seconds_per_update": 0.12,
    "workload.prompt_tokens": 101,
    "workload.response_tokens": {"law": "lognormal", "mean_tokens": 300.0, "sigma": 1.0, "cap_tokens": 2048},
    "rollout.step_time": {"source": "roofline"},
    "switching": {"sleep_seconds": 0.0},
}


def edited(folder: Path, text: str = BASE, arm: str | None = None) -> tuple[Scenario, str, Scenario]:
    """The changed scenario, the text it is written as in another folder, and what that loads as."""
    (folder / "base").mkdir()
    (folder / "out").mkdir()
    (folder / "base" / "base.yaml").write_text(text)
    original = Original(load(folder / "base" / "base.yaml"), arm)
    changed, file = override(original.scenario(), CHANGES), folder / "out" / "scenario.yaml"
    write_edited(changed, file, original, {"trainer.mfu": "0.3 to 0.4", "trainer.gone": "never"}, ["Fitted."])
    return changed, file.read_text(), load(file).resolve()


def test_comments_and_untouched_lines_stay(tmp_path: Path) -> None:
    changed, text, again = edited(tmp_path)
    assert again == changed
    lines = text.splitlines()
    assert lines[0] == "# Fitted."
    kept = ("# of the run on Monday", "name: a run   # as in the tracker", "policy: {preset: sync-disaggregated}")
    assert [line for line in kept if line not in lines] == []
    assert "  mfu: 0.37  # 0.3 to 0.4" in lines
    assert "  prompt_tokens: 101" in lines
    assert "scale" not in text
    assert len(lines) < len(BASE.splitlines()) + 16


def test_an_arm_is_written_without_the_others(tmp_path: Path) -> None:
    arms = "arms:\n  slow: {trainer: {mfu: 0.1, epochs: 2}}\n  other: {policy: {preset: sync-colocated}}\n"
    changed, text, again = edited(tmp_path, BASE + arms, "slow")
    assert again == changed
    assert again.trainer.epochs == 2
    assert "arms" not in text


def test_a_file_that_is_extended_is_named_from_the_new_folder(tmp_path: Path) -> None:
    shared = "trainer: {epochs: 3, seconds_per_update: 0.5}\nswitching: {sleep_seconds: 2.0}\n"
    (tmp_path / "shared.yaml").write_text(shared)
    changed, text, again = edited(tmp_path, BASE + "extends: ../shared.yaml\n")
    assert again == changed
    assert (again.trainer.epochs, again.switching.sleep_seconds) == (3, 0.0)
    assert "extends: ../shared.yaml" in text


def test_a_mapping_that_two_keys_share_is_written_out(tmp_path: Path) -> None:
    length = "{law: lognormal, mean_tokens: 500, sigma: 1.0, cap_tokens: 2048}"
    shared = BASE.replace("prompt_tokens: 96", f"prompt_tokens: &length {length}")
    changed, _, again = edited(tmp_path, shared.replace(f"response_tokens: {length}", "response_tokens: *length"))
    assert again == changed
    assert again.workload.prompt_tokens.fields == {"tokens": 101}


def test_without_a_file_only_what_differs_from_the_defaults_is_written(tmp_path: Path) -> None:
    scenario = load(_written(tmp_path, BASE)).resolve()
    write_edited(scenario, tmp_path / "scenario.yaml")
    text = (tmp_path / "scenario.yaml").read_text()
    assert load(tmp_path / "scenario.yaml").resolve() == scenario
    assert len(text.splitlines()) < 32
    assert "learning" not in text


def _written(folder: Path, text: str) -> Path:
    (folder / "base.yaml").write_text(text)
    return folder / "base.yaml"
