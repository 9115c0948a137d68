"""Parameters that are fitted to published numbers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from evidence.fit_published import fit_published
from rlsim.core.errors import ParameterError
from rlsim.scenario.document import load

TEXT = """
name: one slot, one sample
model: Qwen3-0.6B
cluster: {device: H100-SXM, gpus: 2}
rollout: {gpus: 1, step_time: {source: roofline, offset_seconds: 0.001}}
trainer: {gpus: 1, mfu: 0.4}
workload: {prompts_per_step: 1, group_size: 1, prompt_tokens: 1, response_tokens: 1000}
policy: {preset: sync-disaggregated}
run: {steps: 3, warmup_steps: 1, replications: 1}
published:
  - quantity: generation_seconds
    value: 10.0
    calibrated: true
    fitted: [rollout.step_time.offset_seconds]
    source: s
    grade: P
  - {step_seconds: 15.0, calibrated: true, fitted: [trainer.fixed_seconds_per_step], source: s, grade: P}
"""


def test_each_row_gets_its_own_parameter(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(TEXT)
    lines = list(fit_published(load(tmp_path / "s.yaml"), None))
    offset = last(lines, "rollout.step_time.offset_seconds")
    fixed = last(lines, "trainer.fixed_seconds_per_step")
    changed = TEXT.replace("offset_seconds: 0.001", f"offset_seconds: {offset}")
    changed = changed.replace("mfu: 0.4", f"mfu: 0.4, fixed_seconds_per_step: {fixed}")
    (tmp_path / "s.yaml").write_text(changed)
    again = list(fit_published(load(tmp_path / "s.yaml"), None))
    assert len(again) == 2, "both numbers come out at once"


def test_a_row_that_fits_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(TEXT.replace("calibrated: true", "calibrated: false"))
    with pytest.raises(ParameterError, match="calibrated"):
        list(fit_published(load(tmp_path / "s.yaml"), None))


def last(lines: list[str], key: str) -> float:
    return float(next(re.search(r"= ([\d.e-]+):", line)[1] for line in reversed(lines) if line.startswith(key)))  # type: ignore[index]
