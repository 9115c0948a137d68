"""Three small spaces: split and seats; policy, split and tensor parallelism; device, split and group size for money."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sweep_files import written

from rlsim.scenario.document import load
from rlsim.studies.optimize.candidates import Candidates
from rlsim.studies.optimize.scoring import Evaluator
from rlsim.studies.optimize.study import OptimizeRequest, optimize_request
from rlsim.studies.runs.executor import RunExecutor

BALANCED = (("prompts_per_step: 8", "prompts_per_step: 16"), ("mfu: 0.4", "mfu: 0.02"))
"""Rollout and trainer take about as long, so that the best split is none of the ends."""
ROOFLINE = (("{source: coefficients, base_seconds: 0.01, per_sequence_seconds: 0.0005}", "{source: roofline}"),)
ONE_OFF = (("preset: sync-disaggregated", "preset: one-step-off"),)
POLICIES = """\
arms:
  sync: {}
  one-off: {policy: {preset: one-step-off}}
  areal: {policy: {preset: areal, max_head_offpolicyness: 2, max_concurrent_rollouts: 32}}
"""


@dataclass(frozen=True)
class Problem:
    """A scenario and its space."""

    changes: tuple[tuple[str, str], ...]
    axes: tuple[str, ...]
    more: str = ""
    budget: tuple[str, ...] = ()
    objective: str = "step_seconds"

    def asked(self, folder: Path, **others: Sequence[str] | int) -> OptimizeRequest:
        """The question, and whatever else it is to say."""
        document = load(written(folder, self.more, *self.changes))
        return optimize_request(document, self.axes, (), self.budget, self.objective, **others)  # type: ignore[arg-type]


PROBLEMS = {
    "seats": Problem((*BALANCED, *ONE_OFF), ("split={gpus: 16, step: 1}", "rollout.max_num_seqs=2,4,8,16")),
    "policies": Problem(
        (*BALANCED, *ROOFLINE), ("split={gpus: 16, step: 2}", "rollout.tensor_parallel=1,2"), more=POLICIES
    ),
    "money": Problem(
        (*BALANCED, *ROOFLINE, *ONE_OFF),
        ("cluster.device=H20,H100-SXM,A100-SXM-80GB", "split={gpus: [8, 12], step: 1}", "workload.group_size=4,8"),
        budget=("max_usd_per_hour=30",),
        objective="usd_per_million_trained_tokens",
    ),
}


def evaluator(asked: OptimizeRequest, runs: RunExecutor) -> Evaluator:
    """One that has simulated nothing yet."""
    return Evaluator(Candidates(asked.space, asked.search.limits), asked.search.objective, runs)
