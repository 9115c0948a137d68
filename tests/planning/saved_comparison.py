"""A small saved comparison whose names and texts are as hostile as a file may make them."""

from __future__ import annotations

from pathlib import Path

from rlsim.planning.comparison import Comparison, run_comparison
from rlsim.planning.save import save_comparison, save_provenance
from rlsim.scenario.source import load

ROOT = Path(__file__).parents[2]
HOSTILE = '</pre><script>document.title="run"</script><img src="http://example.invalid/x.png" onerror="alert(1)">'
COMMAND = f"rlsim compare '{HOSTILE}'"

OVERLAY = """
name: 'Name {hostile}'
description: '{hostile}'
workload: {{prompts_per_step: 4, group_size: 4}}
trainer: {{updates_per_step: 1}}
run: {{steps: 3, warmup_steps: 1, replications: 2}}
sensitivity:
  - {{key: workload.response_tokens.sigma, values: [0.6], reason: 'reason {hostile}'}}
learning: {{curve: {{half_updates: 60}}}}
arms:
  'arm {hostile}':
    policy: {{preset: areal, max_head_offpolicyness: 1, max_concurrent_rollouts: 8}}
    rollout: {{gpus: 8}}
    trainer: {{gpus: 8}}
"""


def saved_comparison(directory: Path) -> tuple[Path, Comparison]:
    """Five arms of the quickstart with little in them, one of them hostile; the directory and what was compared."""
    overlay = directory / "overlay.yaml"
    overlay.write_text(OVERLAY.format(hostile=HOSTILE.replace("'", "''")))
    small = "arms.over-sample + partial.policy.over_sampling_batch_size=6"
    document = load(ROOT / "scenarios" / "quickstart.yaml", [overlay], [small])
    out = directory / "out"
    told = run_comparison(document, out, workers=1)
    save_comparison(out, told)
    save_provenance(out, COMMAND)
    return out, told
