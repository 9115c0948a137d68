"""ROLL: one YAML file of the RLVR pipeline."""

from __future__ import annotations

from rlsim.frameworks.codecs import APART_DEVICES, MODEL, NOT, ROLL_BATCH, SHARED_DEVICES
from rlsim.frameworks.mapping import Codec, Framework, Key, Mark, Mode, Row, same

_TRAIN, _INFER = "actor_train", "actor_infer"
_MEGATRON = f"{_TRAIN}.strategy_args.strategy_config"
_VLLM = f"{_INFER}.strategy_args.strategy_config"
_DEVICES = (Key(f"{_TRAIN}.device_mapping"), Key(f"{_INFER}.device_mapping"))
_GPUS = ("trainer.gpus", "rollout.gpus")

_EXPAND = same("is_num_return_sequences_expand", "policy.is_num_return_sequences_expand", False)
_ADDITIONAL = Row(
    (Key("is_use_additional_prompts", False), Key("max_additional_running_prompts", 16)),
    ("policy.max_additional_running_prompts",),
    Codec(
        lambda used, most: (most if used else 0,),
        lambda most: (most > 0, most or 16),
        "0 without is_use_additional_prompts",
    ),
)

ROLL = Framework(
    name="roll",
    version="8eb27cc",
    format="yaml",
    rows=(
        Row((Key("pretrain"),), ("model",), MODEL),
        Row(
            (
                Key("rollout_batch_size"),
                Key("num_return_sequences_in_group"),
                Key(f"{_TRAIN}.training_args.per_device_train_batch_size"),
                Key(f"{_TRAIN}.training_args.gradient_accumulation_steps", 1),
                Key(f"{_TRAIN}.device_mapping"),
                Key(f"{_MEGATRON}.tensor_model_parallel_size", 1),
                Key(f"{_MEGATRON}.pipeline_model_parallel_size", 1),
                Key(f"{_MEGATRON}.context_parallel_size", 1),
            ),
            (
                "workload.prompts_per_step",
                "workload.group_size",
                "trainer.updates_per_step",
                "trainer.gpus",
                "trainer.tensor_parallel",
                "trainer.pipeline_parallel",
                "trainer.context_parallel",
            ),
            ROLL_BATCH,
        ),
        same("prompt_length", "workload.prompt_tokens.cap_tokens"),
        same("response_length", "workload.response_tokens.cap_tokens"),
        same("ppo_epochs", "trainer.epochs", 1),
        same("num_gpus_per_node", "cluster.gpus_per_node", 8),
        same(f"{_INFER}.num_gpus_per_worker", "rollout.tensor_parallel", 1),
        same(f"{_VLLM}.gpu_memory_utilization", "rollout.gpu_memory_utilization"),
        same(f"{_VLLM}.max_model_len", "rollout.max_model_len"),
        same(f"{_VLLM}.max_num_seqs", "rollout.max_num_seqs"),
        same(f"{_VLLM}.max_num_batched_tokens", "rollout.max_num_batched_tokens"),
        Row(
            (Key(f"{_TRAIN}.model_args.disable_gradient_checkpointing", False),),
            ("trainer.activation_recompute",),
            NOT,
        ),
    ),
    modes=(
        Mode(
            "roll-rlvr-sync-queue",
            (Mark("async_generation_ratio", 0, 0),),
            (Row(_DEVICES, _GPUS, SHARED_DEVICES), _ADDITIONAL, _EXPAND),
            shares_gpus=True,
        ),
        Mode(
            "roll-rlvr-async",
            (),
            (
                same("async_generation_ratio", "policy.async_generation_ratio"),
                _EXPAND,
                Row(_DEVICES, _GPUS, APART_DEVICES),
            ),
        ),
    ),
)
