"""A small saved comparison whose names and texts are as hostile as a file may make them."""

from __future__ import annotations

from pathlib import Path

from rlsim.scenario.document import load
from rlsim.studies.compare import Comparison, run_comparison
from rlsim.studies.save import save_comparison, save_provenance

ROOT = Path(__file__).parents[2]
HOSTILE = '</pre><script>document.title="run"</script><img src="http://example.invalid/x.png" onerror="alert(1)">'
COMMAND = f"rlsim compare '{HOSTILE}'"

ARMS = """
arms:
  plain:
    published:
      - {{step_seconds: 92.8, source: 'source {hostile}', grade: A, notes: '{hostile}'}}
  'arm {hostile}':
    policy: {{preset: areal, max_head_offpolicyness: 1, max_concurrent_rollouts: 8}}
    rollout: {{gpus: 8}}
    trainer: {{gpus: 8}}
"""
OVERLAY = """
name: 'Name {hostile}'
description: '{hostile}'
workload: {{prompts_per_step: 4, group_size: 4}}
trainer: {{updates_per_step: 1}}
run: {{steps: 3, warmup_steps: 1, replications: 2}}
sensitivity:
  - {{key: workload.response_tokens.sigma, values: [0.6], reason: 'reason {hostile}'}}
learning: {{curve: {{half_updates: 60}}}}
"""


def saved_comparison(directory: Path) -> tuple[Path, Comparison]:
    """Two arms of the quickstart with little in them, one of them hostile; the directory and what was compared."""
    hostile = HOSTILE.replace("'", "''")
    scenario, overlay = directory / "scenario.yaml", directory / "overlay.yaml"
    common = (ROOT / "scenarios" / "quickstart.yaml").read_text(encoding="utf-8").partition("\narms:")[0]
    scenario.write_text(common + ARMS.format(hostile=hostile), encoding="utf-8")
    overlay.write_text(OVERLAY.format(hostile=hostile), encoding="utf-8")
    out = directory / "out"
    told = run_comparison(load(scenario, [overlay]), out, workers=1)
    save_comparison(out, told)
    save_provenance(out, COMMAND)
    return out, told
