from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

BASE = """\
name: x
model: Llama-3.1-8B
cluster: {device: H100-SXM, gpus: 16}
rollout:
  gpus: 16
  step_time: {source: roofline}
trainer:
  gpus: 16
  mfu: 0.4
workload:
  prompts_per_step: 64
  group_size: 32
  prompt_tokens: 120
  response_tokens:
    law: lognormal
    mean_tokens: 1019
    sigma: 0.8
    cap_tokens: 4096
policy:
  preset: sync-colocated
  max_staleness: 0
run:
  steps: 4
"""

ARMS = """\
arms:
  as-written:
  fast:
    trainer:
      mfu: 0.5
    policy:
      preset: one-step-off
  heavy:
    workload:
      response_tokens:
        law: pareto
        tail_index: 1.5
    rollout: {tensor_parallel: 2}
"""


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., str]:
    """Writes a scenario file and returns its path."""

    def write(text: str, name: str = "x.yaml") -> str:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


@pytest.fixture
def base() -> str:
    return BASE


@pytest.fixture
def with_arms() -> str:
    return BASE + ARMS
