"""NeMo-RL: one YAML file; the defaults are those of its base recipe, grpo_math_1B.yaml."""

from __future__ import annotations

from rlsim.frameworks.codecs import CARVED_GPUS, KL, MODEL, SAMPLE_UPDATES, SHARED_GPUS
from rlsim.frameworks.mapping import Framework, Key, Mark, Mode, Row, same

_VLLM = "policy.generation.vllm_cfg"
_COLOCATED = "policy.generation.colocated"
_ASYNC = "grpo.async_grpo"
_CLUSTER = (Key("cluster.num_nodes", 1), Key("cluster.gpus_per_node", 1))
_MEGATRON = "policy.megatron_cfg"

NEMO_RL = Framework(
    name="nemo-rl",
    version="7ea279a",
    format="yaml",
    rows=(
        Row((Key("policy.model_name"),), ("model",), MODEL),
        Row(
            (
                Key("grpo.num_prompts_per_step", 32),
                Key("grpo.num_generations_per_prompt", 16),
                Key("policy.train_global_batch_size", 512),
            ),
            ("workload.prompts_per_step", "workload.group_size", "trainer.updates_per_step"),
            SAMPLE_UPDATES,
        ),
        same("data.max_input_seq_length", "workload.prompt_tokens.cap_tokens"),
        same("policy.generation.max_new_tokens", "workload.response_tokens.cap_tokens"),
        same(f"{_VLLM}.max_model_len", "rollout.max_model_len"),
        same(f"{_VLLM}.tensor_parallel_size", "rollout.tensor_parallel", 1),
        same(f"{_VLLM}.pipeline_parallel_size", "rollout.pipeline_parallel", 1),
        same(f"{_VLLM}.expert_parallel_size", "rollout.expert_parallel", 1),
        same(f"{_VLLM}.gpu_memory_utilization", "rollout.gpu_memory_utilization", 0.6),
        same("policy.generation.vllm_kwargs.max_num_seqs", "rollout.max_num_seqs"),
        same(f"{_MEGATRON}.tensor_model_parallel_size", "trainer.tensor_parallel", 1),
        same(f"{_MEGATRON}.pipeline_model_parallel_size", "trainer.pipeline_parallel", 1),
        same(f"{_MEGATRON}.context_parallel_size", "trainer.context_parallel", 1),
        same(f"{_MEGATRON}.activation_checkpointing", "trainer.activation_recompute", False),
        Row((Key("loss_fn.reference_policy_kl_penalty", 0.01),), ("trainer.reference",), KL),
        same("policy.sequence_packing.train_mb_tokens", "trainer.micro_batch_tokens"),
    ),
    modes=(
        Mode(
            "nemo-rl-async",
            (Mark(f"{_ASYNC}.enabled", True, False), Mark(f"{_COLOCATED}.enabled", False, True)),
            (
                Row(
                    (
                        *_CLUSTER,
                        Key(f"{_COLOCATED}.resources.num_nodes", None),
                        Key(f"{_COLOCATED}.resources.gpus_per_node", None),
                    ),
                    ("trainer.gpus", "rollout.gpus"),
                    CARVED_GPUS,
                ),
                same(f"{_ASYNC}.max_trajectory_age_steps", "policy.max_trajectory_age_steps", 1),
                same(f"{_ASYNC}.in_flight_weight_updates", "policy.in_flight_weight_updates", False),
                same(
                    f"{_ASYNC}.recompute_kv_cache_after_weight_updates",
                    "policy.recompute_kv_cache_after_weight_updates",
                    False,
                ),
            ),
        ),
        Mode(
            "nemo-rl-sync",
            (Mark(f"{_COLOCATED}.enabled", True, True),),
            (Row(_CLUSTER, ("trainer.gpus", "rollout.gpus"), SHARED_GPUS),),
            shares_gpus=True,
        ),
    ),
)
