"""Small runs for the tests of results."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from rlsim.executor.run import FinishedRun
from rlsim.resolve import ResolvedScenario, resolve
from rlsim.scenario.document import load
from rlsim.sim.simulation import simulate

QUICKSTART = Path(__file__).parents[2] / "scenarios" / "quickstart.yaml"
SMALL = (
    "cluster.gpus=4",
    "rollout.gpus=2",
    "trainer.gpus=2",
    "trainer.updates_per_step=2",
    "workload.prompts_per_step=4",
    "workload.group_size=4",
    "workload.response_tokens.mean_tokens=200",
    "workload.response_tokens.cap_tokens=600",
    "switching.wake_seconds=0.2",
    "switching.sleep_seconds=0.1",
    "run.steps=5",
    "run.warmup_steps=1",
)
TURNS = (
    "workload.turns.count=3",
    "workload.turns.tool_latency_seconds=2.0",
    "workload.turns.tool_output_tokens=30",
    "workload.reward.latency_seconds=0.5",
)
PRESETS = {
    "sync-colocated": (),
    "sync-disaggregated": (),
    "nemo-rl-sync": (),
    "nemo-rl-async": (),
    "one-step-off": (),
    "areal": ("policy.max_head_offpolicyness=1", "policy.max_concurrent_rollouts=6"),
    "pipelinerl": ("policy.llm_max_rollouts=12", "policy.ring_buffer_groups=4"),
    "slime-april": ("policy.over_sampling_batch_size=6",),
    "copris": ("policy.partial_rollout_pool_size=24",),
}


@cache
def small_plan(preset: str = "sync-colocated", extra: tuple[str, ...] = ()) -> ResolvedScenario:
    sets = [f"policy.preset={preset}", *SMALL, *PRESETS[preset], *extra]
    return resolve(load(QUICKSTART, sets=sets).resolve("on-policy colocated"))


@cache
def small_run(preset: str = "sync-colocated", replication: int = 0, extra: tuple[str, ...] = ()) -> FinishedRun:
    return simulate(small_plan(preset, extra), replication)
