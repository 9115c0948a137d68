"""ROLL: one YAML file of the RLVR or the agentic pipeline; lists of devices say who runs where."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from rlsim.frameworks.codecs import MODEL, NOT, divided, mini_batches, whole
from rlsim.frameworks.mapping import (
    Backend,
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
    same,
)

_TRAIN, _INFER, _ENVIRONMENTS = "actor_train", "actor_infer", "train_env_manager"
_MEGATRON = f"{_TRAIN}.strategy_args.strategy_config"
_ENGINE = f"{_INFER}.strategy_args.strategy_config"
_STRATEGY = f"{_TRAIN}.strategy_args.strategy_name"
_DEVICES = (Key(f"{_TRAIN}.device_mapping"), Key(f"{_INFER}.device_mapping"))
_GPUS = ("trainer.gpus", "rollout.gpus")
_LISTS = re.compile(r"list\(range\(\s*(\d+)\s*,\s*(\d+)\s*\)\)|(?:list\()?\[([\d,\s]*)\]\)?")


def mapped_devices(mapping: Any) -> frozenset[int]:
    """Devices of a ``device_mapping``: a list, ``list(range(a,b))`` or their sum, which is read and not run."""
    if isinstance(mapping, Sequence) and not isinstance(mapping, str) and mapping:
        return frozenset(whole(device + 1) - 1 for device in mapping)
    text = re.sub(r"\s", "", str(mapping))
    numbers: set[int] = set()
    for part in text.split("+"):
        match = _LISTS.fullmatch(part)
        if match is None:
            raise ValueError("a list of devices, or list(range(first,end))")
        listed = [int(number) for number in (match[3] or "").split(",") if number]
        numbers.update(listed if match[1] is None else range(int(match[1]), int(match[2])))
    if not numbers:
        raise ValueError("a list of devices, or list(range(first,end))")
    return frozenset(numbers)


def devices(first: int, count: int) -> str:
    """A ``device_mapping``."""
    return f"list(range({first},{first + count}))"


def _placed(shared: bool) -> Row:
    codec = Codec(
        lambda train, infer: (len(mapped_devices(train)), len(mapped_devices(infer))),
        lambda train, infer: (devices(0, train), devices(0 if shared else train, infer)),
        "devices listed, rollout's among the trainer's" if shared else "devices listed, the training ones first",
    )
    return Row(_DEVICES, _GPUS, codec)


def _is_agentic(flat: Flat) -> bool:
    return any(key.startswith(f"{_ENVIRONMENTS}.") for key in flat)


def _is_asynchronous(flat: Flat) -> bool:
    ratio = flat.get("async_generation_ratio", 0)
    return isinstance(ratio, int | float) and ratio > 0


def _is_shared(flat: Flat) -> bool:
    try:
        train, infer = (mapped_devices(flat.get(key.name)) for key in _DEVICES)
    except ValueError:
        return True
    return bool(train & infer)


_AGENTIC = Condition("environments of train_env_manager", _is_agentic, ((f"{_ENVIRONMENTS}.tags", ["environment"]),))
_ASYNCHRONOUS = Condition("async_generation_ratio above 0", _is_asynchronous)
_SHARED = Condition("devices in common", _is_shared)


def _updates(
    prompts: int, group: int, device: Any, accumulation: Any, mapping: Any, *split: Any
) -> tuple[int | None, int, Any, Any, Any, Any]:
    """Mini-batches by the ranks that hold data, and the split of the training devices."""
    gpus = len(mapped_devices(mapping))
    strategy, tensor, pipeline, context, experts, ulysses = split
    if "megatron" not in str(strategy):
        tensor, pipeline, context, experts = 1, 1, ulysses, 1
    ranks = divided(gpus, math.prod(whole(size) for size in (tensor, pipeline, context)), "a split of the devices")
    placed = gpus, tensor, pipeline, context, experts
    if device is None:
        return None, *placed
    mini = whole(device) * whole(accumulation) * ranks
    try:
        return mini_batches(prompts * group, mini), *placed
    except Partial as error:
        raise Partial((prompts, group, None, *placed), str(error)) from None


def _batch(prompts: Any, group: Any, *rest: Any) -> tuple[Any, ...]:
    return prompts, group, *_updates(whole(prompts), whole(group), *rest)


def _environment_batch(trajectories: Any, group: Any, *rest: Any) -> tuple[Any, ...]:
    prompts = divided(whole(trajectories), whole(group), "train_env_manager.group_size")
    return prompts, group, *_updates(prompts, group, *rest)


def _batch_keys(
    prompts: int, group: int, updates: int, gpus: int, tensor: int, pipeline: int, context: int, experts: int
) -> tuple[Any, ...]:
    ranks = divided(gpus, tensor * pipeline * context, "a split of the training devices")
    accumulation = divided(prompts * group, updates * ranks, "updates x data-parallel ranks")
    strategy = "megatron_train"
    return prompts, group, 1, accumulation, devices(0, gpus), strategy, tensor, pipeline, context, experts, 1


def _environment_batch_keys(prompts: int, group: int, *rest: int) -> tuple[Any, ...]:
    return prompts * group, *_batch_keys(prompts, group, *rest)[1:]


def _batch_row(group: Key, codec: Codec) -> Row:
    return Row(
        (
            Key("rollout_batch_size"),
            group,
            Key(f"{_TRAIN}.training_args.per_device_train_batch_size", None),
            Key(f"{_TRAIN}.training_args.gradient_accumulation_steps", 1),
            Key(f"{_TRAIN}.device_mapping"),
            Key(_STRATEGY, "megatron_train"),
            Key(f"{_MEGATRON}.tensor_model_parallel_size", 1),
            Key(f"{_MEGATRON}.pipeline_model_parallel_size", 1),
            Key(f"{_MEGATRON}.context_parallel_size", 1),
            Key(f"{_MEGATRON}.expert_model_parallel_size", 1),
            Key(f"{_TRAIN}.model_args.ulysses_size", 1),
        ),
        (
            "workload.prompts_per_step",
            "workload.group_size",
            "trainer.updates_per_step",
            "trainer.gpus",
            "trainer.tensor_parallel",
            "trainer.pipeline_parallel",
            "trainer.context_parallel",
            "trainer.expert_parallel",
        ),
        codec,
    )


_WORDS = "updates = prompts x group / (device batch x accumulation x data-parallel ranks)"
_PROMPTS = _batch_row(Key("num_return_sequences_in_group", 1), Codec(_batch, _batch_keys, _WORDS))
_TRAJECTORIES = _batch_row(
    Key(f"{_ENVIRONMENTS}.group_size", 1), Codec(_environment_batch, _environment_batch_keys, f"trajectories; {_WORDS}")
)
_RATIO = same("async_generation_ratio", "policy.async_generation_ratio")
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
        same("prompt_length", "workload.prompt_tokens.cap_tokens"),
        same("response_length", "workload.response_tokens.cap_tokens"),
        legacy(f"{_INFER}.generating_args.max_new_tokens", "workload.response_tokens.cap_tokens"),
        same("ppo_epochs", "trainer.epochs", 1),
        same("num_gpus_per_node", "cluster.gpus_per_node", 8),
        Row(
            (Key("enable_reference", False), Key("use_kl_loss", False), Key("init_kl_coef", 0.2)),
            ("trainer.reference",),
            Codec(
                lambda enabled, loss, weight: (bool(enabled or loss or weight),),
                lambda kept: (kept, False, 0.0),
                "enabled, a KL loss, or a KL weight above 0",
            ),
        ),
        Row(
            (Key(f"{_TRAIN}.model_args.disable_gradient_checkpointing", False),),
            ("trainer.activation_recompute",),
            NOT,
        ),
        legacy(f"{_TRAIN}.max_tokens_per_microbatch_in_train", "trainer.micro_batch_tokens"),
        Row(
            (Key(f"{_MEGATRON}.zero_optimization.offload_optimizer.device"),),
            ("trainer.optimizer_offload",),
            Codec(lambda place: (place == "cpu",), lambda kept: ("cpu" if kept else "none",), "cpu: true"),
            legacy=True,
        ),
    ),
    engines=(
        Backend(
            "SGLang",
            (
                legacy(f"{_ENGINE}.tp_size", "rollout.tensor_parallel"),
                legacy(f"{_INFER}.num_gpus_per_worker", "rollout.tensor_parallel"),
                legacy(f"{_ENGINE}.mem_fraction_static", "rollout.gpu_memory_utilization"),
                legacy(f"{_ENGINE}.max_running_requests", "rollout.max_num_seqs"),
            ),
            (Mark(f"{_INFER}.strategy_args.strategy_name", "sglang"),),
        ),
        Backend(
            "vLLM",
            (
                Row(
                    (Key(f"{_ENGINE}.tensor_parallel_size", None), Key(f"{_INFER}.num_gpus_per_worker", 1)),
                    ("rollout.tensor_parallel",),
                    Codec(
                        lambda ranks, workers: (workers if ranks is None else ranks,),
                        lambda ranks: (None, ranks),
                        "tensor_parallel_size, else num_gpus_per_worker",
                    ),
                ),
                same(f"{_ENGINE}.gpu_memory_utilization", "rollout.gpu_memory_utilization"),
                same(f"{_ENGINE}.max_model_len", "rollout.max_model_len"),
                same(f"{_ENGINE}.max_num_seqs", "rollout.max_num_seqs"),
                same(f"{_ENGINE}.max_num_batched_tokens", "rollout.max_num_batched_tokens"),
            ),
        ),
    ),
    unmodelled=(
        Unmodelled(f"{_TRAIN}.model_args.lora_rank", "LoRA: trained and sent as full weights here"),
        Unmodelled("max_actions_per_traj", "several turns: give them under workload.turns", (None, 0, 1)),
        Unmodelled("sequence_length", "tokens of a whole trajectory: give its turns under workload.turns", (None,)),
        Unmodelled("use_additional_prompts", "prompts beyond the batch"),
    ),
    modes=(
        Mode(
            "roll-agentic",
            (_AGENTIC, _ASYNCHRONOUS),
            (
                _TRAJECTORIES,
                _RATIO,
                same(f"{_ENVIRONMENTS}.num_env_groups", "policy.num_env_groups", None),
                same(f"{_ENVIRONMENTS}.group_size_redundancy", "policy.group_size_redundancy", 0),
                _placed(shared=False),
            ),
        ),
        Mode("sync-colocated", (_AGENTIC, _SHARED), (_TRAJECTORIES, _placed(shared=True)), shares_gpus=True),
        Mode("sync-disaggregated", (_AGENTIC,), (_TRAJECTORIES, _placed(shared=False))),
        Mode("roll-rlvr-async", (_ASYNCHRONOUS,), (_PROMPTS, _RATIO, _EXPAND, _placed(shared=False))),
        Mode(
            "roll-rlvr-sync-queue",
            (_SHARED,),
            (_PROMPTS, _placed(shared=True), _ADDITIONAL, _EXPAND),
            shares_gpus=True,
        ),
        Mode("sync-disaggregated", (), (_PROMPTS, _placed(shared=False))),
    ),
)
