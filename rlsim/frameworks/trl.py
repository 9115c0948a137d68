"""TRL: fields of GRPOConfig and AsyncGRPOConfig, as flags, in YAML or as keyword arguments in Python.

Read from TRL f2cd577: ``trl/trainer/grpo_config.py``, ``trl/trainer/base_config.py``,
``trl/experimental/async_grpo/async_grpo_config.py``, ``trl/scripts/vllm_serve.py``. Until 406d406 a completion had 256
tokens and ``vllm_mode`` was ``server``; until 035c3ff there was ``max_prompt_length``, 512 tokens; 69ad852 had
``vllm_device`` and one engine on a GPU of its own, and a KL weight of 0.04.
"""

from __future__ import annotations

from typing import Any

from rlsim.frameworks.codecs import KL, MODEL, divided, whole
from rlsim.frameworks.mapping import (
    PROGRAM,
    SAME,
    Codec,
    Condition,
    Flat,
    Framework,
    Key,
    Mark,
    Mode,
    Partial,
    Row,
    Unmodelled,
    legacy,
    lora,
    same,
)


def _batch(
    device: Any, accumulation: Any, steps: Any, total: Any, processes: Any, group: Any, optimised: Any
) -> tuple[Any, ...]:
    """Prompts, group, updates, processes, epochs; None for what the number of processes would tell."""
    try:
        each = None if processes is None else whole(device) * whole(processes)
        if total is None:
            steps = whole(steps or accumulation)
            total = each and each * steps
        elif each is not None:
            steps = divided(whole(total), each, "device batch x processes")
        if steps is not None and steps < whole(accumulation):  # several generations make up an update
            total = total and total * divided(accumulation, steps, "steps_per_generation")
            steps = accumulation
        prompts = total and divided(whole(total), whole(group), "num_generations")
        updates = steps and divided(steps, accumulation, "gradient_accumulation_steps")
    except ValueError as error:
        raise Partial((None, group, None, processes, optimised), str(error)) from None
    return prompts, group, updates, processes, optimised


def _steps(prompts: int, group: int, updates: int, processes: int, epochs: int) -> tuple[Any, ...]:
    device = divided(prompts * group, updates * processes, "trainer GPUs x updates")
    return device, 1, updates, None, processes, group, epochs


def _served(tensor: Any, data: Any) -> tuple[int | None, int | None]:
    if tensor is None and data is None:
        return None, None
    return whole(tensor or 1) * whole(data or 1), whole(tensor or 1)


def _offloaded(key: str, path: str) -> Row:
    """A device of DeepSpeed's in accelerate's configuration or flags."""
    codec = Codec(
        lambda device: (device not in (None, "none"),), lambda on: ("cpu" if on else "none",), "not none: true"
    )
    return Row((Key(key),), (path,), codec, legacy=True)


_PROCESSES = Key("num_processes", None)
_ROWS = (
    Row((Key("model_name_or_path"),), ("model",), MODEL),
    *(Row((Key(key),), ("model",), MODEL, legacy=True) for key in ("model", "(server).model")),
    Row(
        (
            Key("per_device_train_batch_size", 8),
            Key("gradient_accumulation_steps", 1),
            Key("steps_per_generation", None),
            Key("generation_batch_size", None),
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
        Codec(
            _batch,
            _steps,
            "prompts x group = generation_batch_size, or device batch x steps_per_generation x processes;"
            " updates = steps / accumulation",
        ),
    ),
    same("gradient_checkpointing", "trainer.activation_recompute", True),
    *(
        _offloaded(f"{under}offload_{what}_device", path)
        for under in ("deepspeed_config.", "")
        for what, path in (("optimizer", "trainer.optimizer_offload"), ("param", "trainer.weights_offload"))
    ),
    legacy("fsdp_config.fsdp_offload_params", "trainer.optimizer_offload"),
)


def _lengths(completion: int, *prompt: int) -> tuple[Row, ...]:
    """Caps and their defaults."""
    return (
        same("max_completion_length", "workload.response_tokens.cap_tokens", completion),
        same("max_prompt_length", "workload.prompt_tokens.cap_tokens", *prompt),
    )


def _common(completion: int, *prompt: int, weight: float = 0.0) -> tuple[Row, ...]:
    return (
        *_lengths(completion, *prompt),
        Row((Key("beta", weight),), ("trainer.reference",), KL),
        same("vllm_tensor_parallel_size", "rollout.tensor_parallel", 1),
        same("vllm_max_model_length", "rollout.max_model_len", None),
    )


_SHARED = (
    Row((_PROCESSES,), ("rollout.gpus",), Codec(SAME.read, SAME.write, "the training processes")),
    same("vllm_gpu_memory_utilization", "rollout.gpu_memory_utilization", 0.3),
)
_SERVER = (
    Row(
        (Key("(server).tensor_parallel_size", None), Key("(server).data_parallel_size", None)),
        ("rollout.gpus", "rollout.tensor_parallel"),
        Codec(_served, lambda gpus, tensor: (None, None), "of `trl vllm-serve`: GPUs = tensor x data"),
        legacy=True,
    ),
    legacy("(server).max_model_len", "rollout.max_model_len"),
    legacy("(server).gpu_memory_utilization", "rollout.gpu_memory_utilization"),
    same("vllm_gpu_memory_utilization", "rollout.gpu_memory_utilization", 0.9),
)
_OLDER_KEYS = ("max_prompt_length", "torch_dtype", "vllm_guided_decoding_regex", "vllm_importance_sampling_cap")
_SERVER_KEYS = (
    "vllm_server_host",
    "vllm_server_port",
    "vllm_server_base_url",
    "vllm_server_timeout",
    "server_ip",
)


def _older(flat: Flat) -> bool:
    return any(key in flat for key in (*_OLDER_KEYS, "vllm_device"))


def _serves(flat: Flat) -> bool:
    if "vllm_mode" in flat:
        return bool(flat["vllm_mode"] == "server")
    return any(key in _SERVER_KEYS or key.startswith("(server).") for key in flat) or (
        _older(flat) and bool(flat.get("use_vllm"))
    )


_OLDER = Condition(f"keys of TRL before 1.0 ({', '.join(f'`{key}`' for key in _OLDER_KEYS)})", _older)
_NEWER = Condition("none of them", lambda flat: not _older(flat))
_SERVES = Condition(
    "`vllm_mode` = `server`, the default before 1.0, or keys of a server",
    _serves,
    (("use_vllm", True), ("vllm_mode", "server")),
)
_VLLM = Condition(
    "`use_vllm`", lambda flat: bool(flat.get("use_vllm")), (("use_vllm", True), ("vllm_mode", "colocate"))
)
_ASYNC = Condition(
    "`max_staleness`, or AsyncGRPOConfig",
    lambda flat: "max_staleness" in flat or any(word in str(flat.get(PROGRAM)) for word in ("async_grpo", "AsyncGRPO")),
)

TRL = Framework(
    name="trl",
    version="f2cd577",
    format="flags",
    command="accelerate launch --num_processes={num_processes} {program}",
    rows=_ROWS,
    modes=(
        Mode(
            "trl-async-grpo",
            (_ASYNC,),
            (
                same("max_staleness", "policy.max_staleness", 4),
                same("max_inflight_tasks", "policy.max_inflight_tasks", -1),
                same("queue_maxsize", "policy.queue_maxsize", 1024),
                same("weight_sync_steps", "policy.weight_sync_steps", 1),
                *_lengths(2048),
                *_SERVER[:-1],
            ),
            program="async_grpo.py",
        ),
        Mode("trl-server", (_NEWER, _SERVES), (*_common(512), *_SERVER), program="grpo.py"),
        Mode(
            "trl-server",
            (Mark("vllm_device"), Condition("no `vllm_mode`", lambda flat: "vllm_mode" not in flat)),
            (
                *_common(256, 512, weight=0.04),
                Row(
                    (Key("vllm_device"),),
                    ("rollout.gpus",),
                    Codec(lambda device: (1,), lambda gpus: ("auto",), "one engine on a GPU of its own"),
                ),
                same("vllm_gpu_memory_utilization", "rollout.gpu_memory_utilization", 0.9),
            ),
            program="grpo.py",
        ),
        Mode("trl-server", (_OLDER, _SERVES), (*_common(256, 512), *_SERVER), program="grpo.py"),
        Mode("trl-colocate", (_NEWER, _VLLM), (*_common(512), *_SHARED), True, "grpo.py"),
        Mode("trl-colocate", (_OLDER, _VLLM), (*_common(256, 512), *_SHARED), True, "grpo.py"),
        Mode(
            "trl-colocate",
            rows=(*_common(512), *_SHARED),
            shares_gpus=True,
            program="grpo.py",
            notes=("use_vllm is not set: transformers generates, slower than the engine that is simulated",),
        ),
    ),
    unmodelled=(
        lora("use_peft"),
        lora("peft_config"),
        Unmodelled("max_tool_calling_iterations", "turns; their tools and lengths are not in the file"),
        Unmodelled("sync_ref_model", "a reference model that follows"),
        Unmodelled("load_in_4bit", "weights of 4 bits"),
    ),
    renamed={"vllm_max_model_len": "vllm_max_model_length"},
    hyphens=True,
    companions=("(launcher).config_file", "config_file", "config"),
    processes="num_processes",
    calls=("GRPOConfig", "GRPOTrainer", "AsyncGRPOConfig", "AsyncGRPOTrainer"),
)
