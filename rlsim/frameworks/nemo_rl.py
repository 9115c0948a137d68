"""NeMo-RL: a YAML recipe over those that it names; the defaults are those of its base recipe, grpo_math_1B.yaml."""

from __future__ import annotations

from typing import Any

from rlsim.frameworks.codecs import CARVED_GPUS, KL, MODEL, SAMPLE_UPDATES, SHARED_GPUS, whole
from rlsim.frameworks.mapping import Backend, Codec, Framework, Key, Mark, Mode, Row, Unmodelled, legacy, same

_GENERATION = "policy.generation"
_VLLM = f"{_GENERATION}.vllm_cfg"
_COLOCATED = f"{_GENERATION}.colocated"
_ASYNC = "grpo.async_grpo"
_CLUSTER = (Key("cluster.num_nodes", 1), Key("cluster.gpus_per_node", 1))
_MEGATRON, _DTENSOR = "policy.megatron_cfg", "policy.dtensor_cfg"
_CARVED = Row(
    (*_CLUSTER, Key(f"{_COLOCATED}.resources.num_nodes", None), Key(f"{_COLOCATED}.resources.gpus_per_node", None)),
    ("trainer.gpus", "rollout.gpus"),
    CARVED_GPUS,
)


def _replica(tensor: Any, experts: Any) -> tuple[int, int, int]:
    """Expert ranks beyond the tensor ranks are data-parallel ranks of one replica."""
    return whole(tensor), whole(experts), max(1, whole(experts) // whole(tensor))


def _replica_keys(tensor: int, experts: int, data: int) -> tuple[int, int]:
    if data != max(1, experts // tensor):
        raise ValueError("data_parallel = expert_parallel / tensor_parallel, or 1")
    return tensor, experts


def _micro_batch(packs: Any, packed: Any, dynamic: Any, bound: Any, samples: Any, longest: Any) -> tuple[Any, str]:
    """Tokens of a micro-batch: packed, padded up to a bound of tokens, or a number of padded samples."""
    if packs:
        return packed, "packed"
    padded = samples * longest if isinstance(samples, int) and isinstance(longest, int) else None
    return (bound if dynamic else padded), "padded"


_MICRO_BATCH = Row(
    (
        Key("policy.sequence_packing.enabled", True),
        Key("policy.sequence_packing.train_mb_tokens", None),
        Key("policy.dynamic_batching.enabled", False),
        Key("policy.dynamic_batching.train_mb_tokens", None),
        Key("policy.train_micro_batch_size", None),
        Key("policy.max_total_sequence_length", None),
    ),
    ("trainer.micro_batch_tokens", "trainer.packing"),
    Codec(
        _micro_batch,
        lambda tokens, packing: (packing == "packed", tokens, packing != "packed", tokens, None, None),
        "packed, else padded up to the bound of dynamic batching, else samples x longest",
    ),
)

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
        same(f"{_GENERATION}.max_new_tokens", "workload.response_tokens.cap_tokens"),
        _MICRO_BATCH,
        Row((Key("loss_fn.reference_policy_kl_penalty", 0.01),), ("trainer.reference",), KL),
    ),
    trainers=(
        Backend(
            "Megatron",
            (
                same(f"{_MEGATRON}.tensor_model_parallel_size", "trainer.tensor_parallel", 1),
                same(f"{_MEGATRON}.pipeline_model_parallel_size", "trainer.pipeline_parallel", 1),
                same(f"{_MEGATRON}.context_parallel_size", "trainer.context_parallel", 1),
                same(f"{_MEGATRON}.expert_model_parallel_size", "trainer.expert_parallel", 1),
                same(f"{_MEGATRON}.activation_checkpointing", "trainer.activation_recompute", False),
                same(f"{_MEGATRON}.optimizer.optimizer_cpu_offload", "trainer.optimizer_offload", False),
            ),
            (Mark(f"{_MEGATRON}.enabled", True, False),),
            (f"{_MEGATRON}.",),
        ),
        Backend(
            "DTensor",
            (
                same(f"{_DTENSOR}.tensor_parallel_size", "trainer.tensor_parallel", 1),
                same(f"{_DTENSOR}.context_parallel_size", "trainer.context_parallel", 1),
                legacy(f"{_DTENSOR}.expert_parallel_size", "trainer.expert_parallel"),
                same(f"{_DTENSOR}.activation_checkpointing", "trainer.activation_recompute", False),
                same(f"{_DTENSOR}.cpu_offload", "trainer.optimizer_offload", False),
            ),
            (),
            (f"{_DTENSOR}.", "policy.optimizer.", "policy.scheduler."),
        ),
    ),
    engines=(
        Backend(
            "vLLM",
            (
                same(f"{_VLLM}.max_model_len", "rollout.max_model_len"),
                legacy("policy.max_total_sequence_length", "rollout.max_model_len"),
                Row(
                    (Key(f"{_VLLM}.tensor_parallel_size", 1), Key(f"{_VLLM}.expert_parallel_size", 1)),
                    ("rollout.tensor_parallel", "rollout.expert_parallel", "rollout.data_parallel"),
                    Codec(_replica, _replica_keys, "expert ranks beyond the tensor ranks are data-parallel"),
                ),
                same(f"{_VLLM}.pipeline_parallel_size", "rollout.pipeline_parallel", 1),
                same(f"{_VLLM}.gpu_memory_utilization", "rollout.gpu_memory_utilization", 0.6),
                same(f"{_GENERATION}.vllm_kwargs.max_num_seqs", "rollout.max_num_seqs"),
                same(f"{_GENERATION}.vllm_kwargs.max_num_batched_tokens", "rollout.max_num_batched_tokens"),
                same(f"{_VLLM}.enable_prefix_caching", "rollout.enable_prefix_caching", True),
            ),
            (Mark(f"{_GENERATION}.backend", "vllm", "vllm"),),
            (f"{_VLLM}.", f"{_GENERATION}.vllm_kwargs."),
        ),
        Backend(
            "SGLang",
            (
                legacy(f"{_GENERATION}.sglang_cfg.tp_size", "rollout.tensor_parallel"),
                legacy(f"{_GENERATION}.sglang_cfg.mem_fraction_static", "rollout.gpu_memory_utilization"),
                legacy(f"{_GENERATION}.sglang_cfg.max_running_requests", "rollout.max_num_seqs"),
                legacy(f"{_GENERATION}.sglang_cfg.context_length", "rollout.max_model_len"),
            ),
            (Mark(f"{_GENERATION}.backend", "sglang"),),
            (f"{_GENERATION}.sglang_cfg.",),
        ),
        Backend("Megatron inference", (), (), (f"{_GENERATION}.mcore_generation_config.",)),
    ),
    unmodelled=(
        Unmodelled(f"{_DTENSOR}.lora_cfg.enabled", "LoRA: trained and sent as full weights here"),
        Unmodelled(f"{_MEGATRON}.peft.enabled", "LoRA: trained and sent as full weights here"),
        Unmodelled("policy.draft.enabled", "speculative decoding"),
        Unmodelled("grpo.use_dynamic_sampling", "dynamic sampling: needs a learning section"),
        Unmodelled("grpo.max_rollout_turns", "several turns: give them under workload.turns", (None, 0, 1)),
        Unmodelled(f"{_MEGATRON}.fp8_cfg.enabled", "training in 8 bits"),
        Unmodelled(f"{_VLLM}.precision", "data type of the engine", (None, "bfloat16", "auto", "float16")),
        Unmodelled(f"{_VLLM}.kv_cache_dtype", "data type of the KV cache", (None, "auto", "bfloat16")),
    ),
    modes=(
        Mode(
            "nemo-rl-async",
            (Mark(f"{_ASYNC}.enabled", True, False), Mark(f"{_COLOCATED}.enabled", False, True)),
            (
                _CARVED,
                same(f"{_ASYNC}.max_trajectory_age_steps", "policy.max_trajectory_age_steps", 1),
                same(f"{_ASYNC}.in_flight_weight_updates", "policy.in_flight_weight_updates", False),
                same(
                    f"{_ASYNC}.recompute_kv_cache_after_weight_updates",
                    "policy.recompute_kv_cache_after_weight_updates",
                    False,
                ),
            ),
        ),
        Mode("sync-disaggregated", (Mark(f"{_COLOCATED}.enabled", False, True),), (_CARVED,)),
        Mode(
            "nemo-rl-sync",
            (),
            (Row(_CLUSTER, ("trainer.gpus", "rollout.gpus"), SHARED_GPUS),),
            shares_gpus=True,
        ),
    ),
)
