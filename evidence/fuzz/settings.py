"""Whole values of ``--set``."""

SETTINGS = (
    "run.steps=3",
    "trainer.mfu=0.5",
    "workload.response_tokens.high_tokens=40",
    "workload.prompt_tokens={law: uniform, low_tokens: 1, high_tokens: 9}",
    "rollout.step_time.per_sequence_seconds=0.001",
    "policy.preset=one-step-off",
    "sync.base_seconds=0.01",
    "cluster.gpus=8",
    "arms.on-policy={}",
    "model=Qwen2.5-1.5B",
)
