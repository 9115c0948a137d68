"""prime-rl: one TOML file. Its names move quickly; earlier ones are read as well.

AReaL: one YAML file.
"""

from __future__ import annotations

from rlsim.frameworks.codecs import ACTOR_BACKEND, ALLOCATION, GPUS, KL, MODEL, ROLLOUT_BACKEND, SAMPLES
from rlsim.frameworks.mapping import Framework, Key, Mode, Row, legacy, same

_EACH = Key("deployment.gpus_per_node", 8)
_BY_NODES = (
    Row((Key("deployment.num_train_nodes"), _EACH), ("trainer.gpus",), GPUS, legacy=True),
    Row((Key("deployment.num_infer_nodes"), _EACH), ("rollout.gpus",), GPUS, legacy=True),
)

PRIME_RL = Framework(
    name="prime-rl",
    version="559b447",
    format="toml",
    rows=(
        Row((Key("model.name"),), ("model",), MODEL),
        Row(
            (Key("orchestrator.batch_size", 128), Key("orchestrator.group_size")),
            ("workload.prompts_per_step", "workload.group_size"),
            SAMPLES,
        ),
        same("orchestrator.train.sampling.max_completion_tokens", "workload.response_tokens.cap_tokens"),
        legacy("orchestrator.sampling.max_tokens", "workload.response_tokens.cap_tokens"),
        same("inference.model.max_model_len", "rollout.max_model_len"),
        legacy("orchestrator.seq_len", "rollout.max_model_len"),
        legacy("seq_len", "rollout.max_model_len"),
        same("inference.vllm.tensor_parallel_size", "rollout.tensor_parallel", 1),
        legacy("inference.parallel.tp", "rollout.tensor_parallel"),
        same("inference.vllm.gpu_memory_utilization", "rollout.gpu_memory_utilization"),
        same("inference.vllm.max_num_seqs", "rollout.max_num_seqs"),
        same("trainer.model.cp", "trainer.context_parallel", 1),
        same("trainer.model.tp", "trainer.tensor_parallel", 1),
        same("orchestrator.max_off_policy_steps", "policy.max_off_policy_steps", 8),
    ),
    modes=(
        Mode(
            "prime-rl",
            (),
            (
                *_BY_NODES,
                same("deployment.num_train_gpus", "trainer.gpus"),
                same("deployment.num_infer_gpus", "rollout.gpus"),
            ),
        ),
    ),
)


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
