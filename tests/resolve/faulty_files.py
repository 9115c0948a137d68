"""A scenario file to put faults into, and what a user is told of them."""

from __future__ import annotations

from pathlib import Path

from rlsim.core.errors import ScenarioError
from rlsim.resolve import ResolveError, resolve
from rlsim.scenario.document import load

TEXT = """\
name: bad input
model: Llama-3.1-8B
cluster:
  device: H100-SXM
  gpus: 16
rollout:
  gpus: 8
  max_num_seqs: 64
  step_time:
    source: profile
    profile: llama-3.1-8b_h100-sxm_tp1
trainer:
  gpus: 8
  mfu: 0.4
workload:
  prompts_per_step: 8
  group_size: 4
  prompt_tokens: 120
  response_tokens:
    law: lognormal
    mean_tokens: 900
    sigma: 0.8
    cap_tokens: 4096
policy:
  preset: sync-disaggregated
run:
  steps: 2
  warmup_steps: 1
"""


def faults_of(path: Path | str, arm: str | None = None, sets: tuple[str, ...] = ()) -> tuple[str, ...]:
    """What a user is told; an empty answer when the scenario is fine."""
    try:
        document = load(path, sets=sets)
        resolve(document.resolve(arm))
    except ResolveError as error:
        return document.scenario_error(error.errors, arm).faults
    except ScenarioError as error:
        return error.faults
    return ()


def written(folder: Path, *changes: tuple[str, str], name: str = "bad.yaml") -> Path:
    """The scenario file with some text replaced."""
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path
