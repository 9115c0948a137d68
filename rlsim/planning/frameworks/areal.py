"""AReaL: one YAML file."""

from __future__ import annotations

from rlsim.planning.frameworks.codecs import ACTOR_BACKEND, ALLOCATION, KL, MODEL, ROLLOUT_BACKEND
from rlsim.planning.frameworks.mapping import Framework, Key, Mode, Row, legacy, same

_SPLIT = ("rollout.gpus", "rollout.tensor_parallel", "rollout.pipeline_parallel")
_RANKS = ("trainer.gpus", "trainer.tensor_parallel", "trainer.pipeline_parallel", "trainer.context_parallel")

AREAL = Framework(
    name="areal",
    version="cbff54d",
    format="yaml",
    rows=(
        Row((Key("actor.path"),), ("model",), MODEL),
        Row((Key("rollout.backend"),), _SPLIT, ROLLOUT_BACKEND),
        Row((Key("actor.backend"),), _RANKS, ACTOR_BACKEND),
        Row((Key("allocation_mode"),), _SPLIT + _RANKS, ALLOCATION, legacy=True),
        same("cluster.n_gpus_per_node", "cluster.gpus_per_node", 8),
        same("train_dataset.batch_size", "workload.prompts_per_step"),
        same("gconfig.n_samples", "workload.group_size", 1),
        same("train_dataset.max_length", "workload.prompt_tokens.cap_tokens"),
        same("gconfig.max_new_tokens", "workload.response_tokens.cap_tokens"),
        same("vllm.max_model_len", "rollout.max_model_len"),
        same("vllm.max_num_seqs", "rollout.max_num_seqs"),
        same("vllm.gpu_memory_utilization", "rollout.gpu_memory_utilization"),
        legacy("sglang.max_running_requests", "rollout.max_num_seqs"),
        same("actor.ppo_n_minibatches", "trainer.updates_per_step"),
        same("actor.mb_spec.max_tokens_per_mb", "trainer.micro_batch_tokens"),
        same("actor.gradient_checkpointing", "trainer.activation_recompute"),
        same("actor.recompute_logprob", "trainer.old_log_prob", False),
        Row((Key("actor.kl_ctl"),), ("trainer.reference",), KL),
        same("rollout.max_head_offpolicyness", "policy.max_head_offpolicyness", 0),
        same("rollout.max_concurrent_rollouts", "policy.max_concurrent_rollouts", None),
    ),
    modes=(Mode("areal"),),
)
