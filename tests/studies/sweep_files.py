"""Small scenarios to sweep and to plan, and commands on them in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TEXT = """\
name: small
seed: 3
model: Qwen3-0.6B
cluster: {device: H100-SXM, gpus: 16}
rollout:
  gpus: 2
  max_num_seqs: 8
  step_time: {source: coefficients, base_seconds: 0.01, per_sequence_seconds: 0.0005}
trainer: {gpus: 2, mfu: 0.4}
workload:
  prompts_per_step: 8
  group_size: 4
  prompt_tokens: 100
  response_tokens: {law: lognormal, mean_tokens: 300, sigma: 0.8, cap_tokens: 2000}
policy: {preset: sync-disaggregated}
run: {steps: 3, warmup_steps: 1, replications: 2}
"""
ARMS = """\
arms:
  fresh: {}
  one-off: {policy: {preset: one-step-off}}
"""


def written(folder: Path, more: str = "", *changes: tuple[str, str]) -> Path:
    """The scenario file, with some text replaced and some added."""
    text = TEXT
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    path = folder / "small.yaml"
    path.write_text(text + more)
    return path


def command(*arguments: str) -> list[str]:
    """The command line of a process that runs rlsim."""
    return [sys.executable, "-c", "from rlsim.cli.main import main; main()", *arguments]


ENVIRONMENT = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200", "TERM": "dumb", "PYTHONPATH": str(ROOT)}


def rlsim(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return subprocess.run(
        command(*arguments), cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False
    )


def told(*arguments: str) -> dict[str, Any]:
    """What a command that succeeds says in JSON."""
    done = rlsim(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found
