"""A small scenario with a case, whose numbers are known by hand: engine steps of 10 ms, responses of 50 tokens."""

from __future__ import annotations

from pathlib import Path

SCENARIO = """
name: small
model: Qwen2.5-0.5B
cluster: {device: H100-SXM, gpus: 2}
rollout:
  gpus: 1
  max_num_seqs: 64
  kv_blocks: 20000
  enable_prefix_caching: false
  step_time: {source: coefficients, base_seconds: 0.01}
trainer: {gpus: 1, mfu: 0.4}
sync: {link_bytes_per_second: 1.0e+9, base_seconds: 0.25}
workload: {prompts_per_step: 4, group_size: 2, prompt_tokens: 40, response_tokens: 50}
policy: {preset: sync-disaggregated}
run: {steps: 3, warmup_steps: 1, replications: 3}
"""
CASE = """
case:
  id: T1
  question: Does an engine of half the speed take twice as long?
  source: by hand
  observed: twice as long
  measure: generation_seconds
  arm: slow
  over: fast
  direction: above
  size: 2
  assumptions: [none]
arms:
  fast: {}
  slow: {rollout: {step_time: {base_seconds: 0.02}}}
"""


def written(directory: Path, more: str = CASE, *changes: tuple[str, str]) -> Path:
    """The scenario with more below it, and with texts replaced, in a file."""
    text = SCENARIO + more
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    file = directory / "case.yaml"
    file.write_text(text, encoding="utf-8")
    return file
