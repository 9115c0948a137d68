"""OpenRLHF: flags of ``openrlhf.cli.train_ppo_ray``.

Read from OpenRLHF 3c3be62: ``openrlhf/cli/train_ppo_ray.py``, ``openrlhf/utils/seqlen_balancing.py``. Until ed62d0e
flags had underscores for dots and some had other names; until d0e088b a prompt and a response had caps of their own.
"""

from __future__ import annotations

import math
from typing import Any

from rlsim.frameworks.codecs import ENGINE_GPUS, GPUS, MODEL, divided, mini_batches, whole
from rlsim.frameworks.mapping import (
    SAME,
    Codec,
    Condition,
    Flat,
    Framework,
    Key,
    Mark,
    Mode,
    Row,
    Unmodelled,
    legacy,
    lora,
    same,
)

_PROGRAM = "openrlhf.cli.train_ppo_ray"


def _place(role: str) -> tuple[Key, Key]:
    return Key(f"{role}.num_nodes", 1), Key(f"{role}.num_gpus_per_node", 8)


_ENGINES = (Key("vllm.num_engines", None), Key("vllm.tensor_parallel_size", 1))
_WEIGHT = Key("algo.kl.init_coef", 0.01)
_ESTIMATOR = Key("algo.advantage.estimator", "gae")


def _limit(longest: int | None) -> tuple[int]:
    if longest is None:
        raise ValueError("a number: OpenRLHF gives its engines a limit")
    return (longest,)


def _updates(prompts: Any, group: Any, batch: Any) -> tuple[int, int, int]:
    return prompts, group, mini_batches(whole(prompts) * whole(group), batch, prompts, group)


def _batch(prompts: int, group: int, updates: int) -> tuple[int, int, int]:
    return prompts, group, divided(prompts * group, updates, "a number of updates")


def _micro_batch(tokens: Any, dynamic: Any, ring: Any, tensor: Any) -> tuple[int | None, int, int]:
    micro = whole(tokens) * whole(ring) * whole(tensor) if dynamic else None
    return micro, whole(ring), whole(tensor)


def _tokens_per_gpu(micro: int, ring: int, tensor: int) -> tuple[int, bool, int, int]:
    return divided(micro, ring * tensor, "ranks of a sequence"), True, ring, tensor


_ROWS = (
    Row((Key("actor.model_name_or_path"),), ("model",), MODEL),
    Row(
        (Key("rollout.batch_size", 1024), Key("rollout.n_samples_per_prompt", 1), Key("train.batch_size", 128)),
        ("workload.prompts_per_step", "workload.group_size", "trainer.updates_per_step"),
        Codec(_updates, _batch, "updates = prompts x samples / batch in samples"),
    ),
    same("train.max_epochs", "trainer.epochs", 1),
    Row((Key("data.max_len", 2048),), ("rollout.max_model_len",), Codec(SAME.read, _limit, SAME.words)),
    same("rollout.max_new_tokens", "workload.response_tokens.cap_tokens", None),
    legacy("prompt_max_len", "workload.prompt_tokens.cap_tokens"),
    legacy("generate_max_len", "workload.response_tokens.cap_tokens"),
    Row(
        (Key("prompt_max_len", 1024), Key("generate_max_len")),
        ("rollout.max_model_len",),
        Codec(lambda prompt, response: (whole(prompt) + whole(response),), lambda longest: (None, None), "the sum"),
        legacy=True,
    ),
    same("vllm.gpu_memory_utilization", "rollout.gpu_memory_utilization", 0.95),
    same("vllm.enable_prefix_caching", "rollout.enable_prefix_caching", False),
    Row(
        (
            Key("train.max_tokens_per_gpu", 16192),
            Key("train.dynamic_batch_enable", False),
            Key("ds.ring_attn_size", 1),
            Key("ds.tensor_parallel_size", 1),
        ),
        ("trainer.micro_batch_tokens", "trainer.context_parallel", "trainer.tensor_parallel"),
        Codec(_micro_batch, _tokens_per_gpu, "tokens of a micro-batch = tokens of a GPU x ranks of a sequence"),
    ),
    Row(
        (Key("ds.packing_samples", False),),
        ("trainer.packing",),
        Codec(
            lambda on: ("packed" if on else "padded",), lambda kind: (kind == "packed",), "true: packed, false: padded"
        ),
    ),
    same("actor.gradient_checkpointing_enable", "trainer.activation_recompute", False),
    same("ds.adam_offload", "trainer.optimizer_offload", False),
    Row(
        (_WEIGHT,),
        ("trainer.reference",),
        Codec(lambda weight: (weight > 0,), lambda kept: (0.01 if kept else 0.0,), "a weight above 0"),
    ),
    Row(
        (_ESTIMATOR,),
        ("trainer.critic",),
        Codec(lambda name: (name == "gae",), lambda kept: ("gae" if kept else "group_norm",), "gae: with a critic"),
    ),
)
_ACTOR = Row(_place("actor"), ("trainer.gpus",), GPUS)
_GENERATION = Row(_ENGINES, ("rollout.gpus", "rollout.tensor_parallel"), ENGINE_GPUS)


def _with_own_gpus(*values: Any) -> tuple[int | None]:
    """GPUs of the cluster where reference, critic or reward model have their own; None where none has."""
    engines, actor, reference, critic, reward = (math.prod(map(whole, values[at : at + 2])) for at in range(0, 10, 2))
    weight, estimator, with_actor, with_critic, remote = values[10:]
    own = reference * (weight > 0 and not with_actor) + critic * (estimator == "gae")
    own += reward * (not remote and not (with_critic and estimator == "gae"))
    return (engines + actor + own if own else None,)


_OWN_GPUS = Row(
    (
        *_ENGINES,
        *(key for role in ("actor", "ref", "critic", "reward") for key in _place(role)),
        _WEIGHT,
        _ESTIMATOR,
        Key("train.colocate_actor_ref", False),
        Key("train.colocate_critic_reward", False),
        Key("reward.remote_url", None),
    ),
    ("cluster.gpus",),
    Codec(_with_own_gpus, lambda gpus: (None,) * 15, "all roles, those with GPUs of their own included"),
    legacy=True,
)
_ALL = Mark("train.colocate_all", True, False)


def _has_engines(flat: Flat) -> bool:
    return bool(flat.get("vllm.num_engines"))


def _asynchronous(preset: str, partial: bool, *colocated: Mark) -> Mode:
    marks = (Mark("train.async_enable", True), Mark("train.partial_rollout_enable", partial, False), *colocated)
    rows = (_ACTOR, _GENERATION, same("train.async_queue_size", "policy.async_queue_size", 1))
    return Mode(preset, marks, rows if colocated else (*rows, _OWN_GPUS), program=_PROGRAM)


_ASYNCHRONOUS = (("openrlhf-async-partial", True), ("openrlhf-async", False))
_RENAMED = {
    "train.colocate_all": "colocate_all_models",
    "train.async_enable": "async_train",
    "train.partial_rollout_enable": "partial_rollout",
    "train.dynamic_batch_enable": "use_dynamic_batch",
    "train.micro_batch_size": "micro_train_batch_size",
    "train.max_epochs": "max_epochs",
    "train.agent_func_path": "agent_func_path",
    "rollout.n_samples_per_prompt": "n_samples_per_prompt",
    "rollout.micro_batch_size": "micro_rollout_batch_size",
    "rollout.max_new_tokens": "max_new_tokens",
    "data.max_len": "max_len",
    "data.max_images_per_prompt": "max_images_per_prompt",
    "vllm.enable_prefix_caching": "enable_prefix_caching",
    "vllm.enforce_eager": "enforce_eager",
    "actor.model_name_or_path": "pretrain",
    "actor.gradient_checkpointing_enable": "gradient_checkpointing",
    "reward.model_name_or_path": "reward_pretrain",
    "reward.remote_url": "remote_rm_url",
    "critic.model_name_or_path": "critic_pretrain",
    "algo.kl.init_coef": "init_kl_coef",
    "algo.kl.use_loss": "use_kl_loss",
    "algo.advantage.estimator": "advantage_estimator",
    "algo.dynamic_filtering_enable": "dynamic_filtering",
    "ds.adam_offload": "adam_offload",
    "ds.ring_attn_size": "ring_attn_size",
    "ds.packing_samples": "packing_samples",
    "ds.zero_stage": "zero_stage",
    "ds.load_in_4bit": "load_in_4bit",
    "ds.lora.rank": "lora_rank",
    "ds.enable_sleep": "deepspeed_enable_sleep",
}
"""Earlier names, by today's, where they differ in more than the dot."""
_DOTTED = (
    *(key.name for role in ("actor", "ref", "critic", "reward") for key in _place(role)),
    "train.batch_size",
    "train.colocate_actor_ref",
    "train.colocate_critic_reward",
    "train.max_tokens_per_gpu",
    "rollout.batch_size",
    "vllm.num_engines",
    "vllm.tensor_parallel_size",
    "vllm.gpu_memory_utilization",
    "vllm.enable_sleep",
    "vllm.sync_backend",
    "ds.tensor_parallel_size",
)

OPENRLHF = Framework(
    name="openrlhf",
    version="3c3be62",
    format="flags",
    command="python3 -m {program}",
    rows=_ROWS,
    modes=(
        *(_asynchronous(preset, partial, _ALL) for preset, partial in _ASYNCHRONOUS),
        *(_asynchronous(preset, partial) for preset, partial in _ASYNCHRONOUS),
        Mode(
            "sync-colocated",
            (_ALL, Condition("`vllm.num_engines`", _has_engines)),
            (_ACTOR, _GENERATION),
            True,
            _PROGRAM,
        ),
        Mode(
            "sync-disaggregated",
            (Condition("`vllm.num_engines`", _has_engines),),
            (_ACTOR, _GENERATION, _OWN_GPUS),
            program=_PROGRAM,
        ),
        Mode(
            "sync-colocated",
            rows=(_ACTOR,),
            shares_gpus=True,
            program=_PROGRAM,
            notes=("no `vllm.num_engines`: transformers generates, slower than the engine that is simulated",),
        ),
    ),
    unmodelled=(
        lora("ds.lora.rank"),
        Unmodelled("ds.load_in_4bit", "weights of 4 bits"),
        Unmodelled("algo.dynamic_filtering_enable", "groups that it drops are generated and not trained"),
        Unmodelled("rollout.vllm_generate_batch_size", "prompts generated at a time"),
        Unmodelled("train.agent_func_path", "turns; their tools and lengths are not in the file"),
        Unmodelled("reward.model_name_or_path", "a reward model: its time is not in the scenario"),
        Unmodelled("data.max_images_per_prompt", "images"),
        Unmodelled("train.micro_batch_size", "samples of a micro-batch, where its tokens do not decide"),
    ),
    renamed={
        **{older: newer for newer, older in _RENAMED.items()},
        **{name.replace(".", "_"): name for name in _DOTTED},
    },
)
