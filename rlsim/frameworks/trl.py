"""TRL: fields of GRPOConfig and AsyncGRPOConfig, as flags or in YAML."""

from __future__ import annotations

from rlsim.frameworks.codecs import KL, MODEL, TRL_BATCH
from rlsim.frameworks.mapping import SAME, Codec, Framework, Key, Mark, Mode, Row, same

_PROCESSES = Key("num_processes", 1)
_BATCH = Row(
    (
        Key("per_device_train_batch_size", 8),
        Key("gradient_accumulation_steps", 1),
        Key("steps_per_generation", None),
        _PROCESSES,
        Key("num_generations", 8),
        Key("num_iterations", 1),
    ),
    (
        "workload.prompts_per_step",
        "workload.group_size",
        "trainer.updates_per_step",
        "trainer.gpus",
        "trainer.epochs",
    ),
    TRL_BATCH,
)
_SHARED = Row((_PROCESSES,), ("rollout.gpus",), Codec(lambda gpus: (gpus,), SAME.write, "the training processes"))
_ENGINE = (
    same("vllm_tensor_parallel_size", "rollout.tensor_parallel", 1),
    same("vllm_gpu_memory_utilization", "rollout.gpu_memory_utilization", 0.3),
    same("vllm_max_model_length", "rollout.max_model_len", None),
    same("max_completion_length", "workload.response_tokens.cap_tokens", 256),
)
_LAUNCH = "accelerate launch --num_processes={num_processes} {program}"

TRL = Framework(
    name="trl",
    version="f2cd577",
    format="flags",
    command=_LAUNCH,
    rows=(
        Row((Key("model_name_or_path"),), ("model",), MODEL),
        _BATCH,
        same("max_prompt_length", "workload.prompt_tokens.cap_tokens"),
        same("gradient_checkpointing", "trainer.activation_recompute"),
        Row((Key("beta", 0.0),), ("trainer.reference",), KL),
    ),
    modes=(
        Mode(
            "trl-async-grpo",
            (Mark("max_staleness"),),
            (
                same("max_staleness", "policy.max_staleness", 4),
                same("max_inflight_tasks", "policy.max_inflight_tasks", -1),
                same("queue_maxsize", "policy.queue_maxsize", 1024),
                same("weight_sync_steps", "policy.weight_sync_steps", 1),
                same("max_completion_length", "workload.response_tokens.cap_tokens", 2048),
            ),
            program="async_grpo.py",
        ),
        Mode("trl-server", (Mark("vllm_mode", "server"),), _ENGINE, program="grpo.py"),
        Mode(
            "trl-colocate",
            (Mark("vllm_mode", "colocate", "colocate"),),
            (*_ENGINE, _SHARED),
            shares_gpus=True,
            program="grpo.py",
        ),
    ),
)
