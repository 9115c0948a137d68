"""SkyRL: keys of SkyRLTrainConfig on the command line of its entry points.

Read from SkyRL a956457: ``skyrl/train/config/config.py``, ``skyrl/train/utils/utils.py``; the older names are those of
``skyrl-train/skyrl_train/config/ppo_base_config.yaml`` before 6dc221f.
"""

from __future__ import annotations

import math
from typing import Any

from rlsim.frameworks.codecs import ALL_OFFLOADED, GPUS, MODEL, REFERENCE, UPDATES, divided, whole
from rlsim.frameworks.mapping import (
    PROGRAM,
    Backend,
    Codec,
    Condition,
    Flat,
    Framework,
    Key,
    Mark,
    Mode,
    Row,
    Unmodelled,
    lora,
    same,
)

_PLACES, _ENGINE, _POLICY = "trainer.placement", "generator.inference_engine", "trainer.policy"
_ALGORITHM, _ASYNC = "trainer.algorithm", "trainer.fully_async"
_BASE = "skyrl.train.entrypoints.main_base"


def _engine_gpus(engines: Any, *split: Any) -> tuple[int, ...]:
    return math.prod(map(whole, (engines, *split))), *split


def _engines(gpus: int, *split: int) -> tuple[int, ...]:
    return divided(gpus, math.prod(split), "GPUs of an engine"), *split


_GENERATION = (
    Key(f"{_ENGINE}.num_engines", 1),
    Key(f"{_ENGINE}.tensor_parallel_size", 1),
    Key(f"{_ENGINE}.pipeline_parallel_size", 1),
    Key(f"{_ENGINE}.data_parallel_size", 1),
)
_POLICY_PLACE = (Key(f"{_PLACES}.policy_num_nodes", 1), Key(f"{_PLACES}.policy_num_gpus_per_node", 1))
_KL = (Key(f"{_ALGORITHM}.use_kl_loss", True), Key(f"{_ALGORITHM}.use_kl_in_reward", False))
_MOVED = (
    "backend",
    "weight_sync_backend",
    "run_engines_locally",
    "enable_prefix_caching",
    "enable_chunked_prefill",
    "max_num_batched_tokens",
    "enforce_eager",
    "gpu_memory_utilization",
    "max_num_seqs",
    "engine_init_kwargs.max_model_len",
)

_ROWS = (
    Row((Key(f"{_POLICY}.model.path", "Qwen/Qwen2.5-1.5B-Instruct"),), ("model",), MODEL),
    Row(
        _GENERATION,
        ("rollout.gpus", "rollout.tensor_parallel", "rollout.pipeline_parallel", "rollout.data_parallel"),
        Codec(_engine_gpus, _engines, "GPUs = engines x tensor x pipeline x data"),
    ),
    Row(_POLICY_PLACE, ("trainer.gpus",), GPUS),
    same(f"{_ENGINE}.expert_parallel_size", "rollout.expert_parallel", 1),
    same(f"{_ENGINE}.max_num_seqs", "rollout.max_num_seqs", 1024),
    same(f"{_ENGINE}.max_num_batched_tokens", "rollout.max_num_batched_tokens", 8192),
    same(f"{_ENGINE}.gpu_memory_utilization", "rollout.gpu_memory_utilization", 0.8),
    same(f"{_ENGINE}.enable_prefix_caching", "rollout.enable_prefix_caching", True),
    same(f"{_ENGINE}.engine_init_kwargs.max_model_len", "rollout.max_model_len", None),
    same("generator.n_samples_per_prompt", "workload.group_size", 5),
    same("trainer.max_prompt_length", "workload.prompt_tokens.cap_tokens", 512),
    same("generator.sampling_params.max_generate_length", "workload.response_tokens.cap_tokens", 1024),
    same("trainer.update_epochs_per_batch", "trainer.epochs", 1),
    Row(
        (Key("trainer.max_tokens_per_microbatch", -1),),
        ("trainer.micro_batch_tokens",),
        Codec(lambda tokens: (tokens if tokens > 0 else None,), lambda tokens: (tokens,), "the same; -1: by samples"),
    ),
    Row(_KL, ("trainer.reference",), REFERENCE),
    Row(
        (Key(f"{_ALGORITHM}.advantage_estimator", "grpo"),),
        ("trainer.critic",),
        Codec(lambda name: (name == "gae",), lambda kept: ("gae" if kept else "grpo",), "gae: with a critic"),
    ),
)

_BATCH = Row(
    (Key("trainer.train_batch_size", 1024), Key("trainer.policy_mini_batch_size", 256)),
    ("workload.prompts_per_step", "trainer.updates_per_step"),
    UPDATES,
)


def _megatron(key: str) -> str:
    return f"{_POLICY}.megatron_config.{key}"


_TRAINERS = (
    Backend(
        "Megatron",
        (
            same(_megatron("tensor_model_parallel_size"), "trainer.tensor_parallel", 1),
            same(_megatron("pipeline_model_parallel_size"), "trainer.pipeline_parallel", 1),
            same(_megatron("context_parallel_size"), "trainer.context_parallel", 1),
            same(_megatron("expert_model_parallel_size"), "trainer.expert_parallel", 1),
            same(_megatron("optimizer_config_kwargs.optimizer_cpu_offload"), "trainer.optimizer_offload", False),
            Row(
                (Key(_megatron("transformer_config_kwargs.recompute_granularity"), "full"),),
                ("trainer.activation_recompute",),
                Codec(
                    lambda kind: (kind is not None,),
                    lambda kept: ("full" if kept else None,),
                    "full or selective: true",
                ),
            ),
        ),
        (Mark("trainer.strategy", "megatron", "fsdp"),),
        (f"{_POLICY}.megatron_config.", "trainer.ref.megatron_config."),
    ),
    Backend(
        "FSDP",
        (
            same(f"{_POLICY}.sequence_parallel_size", "trainer.context_parallel", 1),
            Row(
                (Key(f"{_POLICY}.fsdp_config.cpu_offload", False),),
                ("trainer.optimizer_offload", "trainer.weights_offload"),
                ALL_OFFLOADED,
            ),
            same("trainer.gradient_checkpointing", "trainer.activation_recompute", True),
        ),
        (),
        (f"{_POLICY}.fsdp_config.", "trainer.ref.fsdp_config.", "trainer.critic.fsdp_config."),
    ),
)


def _with_own_gpus(*values: Any) -> tuple[int | None]:
    """GPUs of the cluster where the reference model or the critic has its own; None where neither has."""
    ends = ((0, 4), (4, 6), (6, 8), (8, 10))
    engines, policy, reference, critic = (math.prod(map(whole, values[first:last])) for first, last in ends)
    together, loss, reward, path = values[10:]
    own = reference * bool(not together and (loss or reward)) + critic * bool(path)
    return (engines + policy + own if own else None,)


_OWN_GPUS = Row(
    (
        *_GENERATION,
        *_POLICY_PLACE,
        Key(f"{_PLACES}.ref_num_nodes", 1),
        Key(f"{_PLACES}.ref_num_gpus_per_node", 1),
        Key(f"{_PLACES}.critic_num_nodes", 1),
        Key(f"{_PLACES}.critic_num_gpus_per_node", 1),
        Key(f"{_PLACES}.colocate_policy_ref", True),
        *_KL,
        Key("trainer.critic.model.path", None),
    ),
    ("cluster.gpus",),
    Codec(_with_own_gpus, lambda gpus: (None,) * 14, "all roles, if reference or critic has GPUs of its own"),
    legacy=True,
)


def _is_fully_async(flat: Flat) -> bool:
    return flat.get(f"{_ASYNC}.enabled", False) is True or "fully_async" in str(flat.get(PROGRAM, ""))


SKYRL = Framework(
    name="skyrl",
    version="a956457",
    format="hydra",
    command="python -m {program}",
    rows=_ROWS,
    trainers=_TRAINERS,
    modes=(
        Mode(
            "skyrl-fully-async",
            (
                Condition(
                    f"`{_ASYNC}.enabled`, or a program with `fully_async` in its name",
                    _is_fully_async,
                    ((f"{_ASYNC}.enabled", True), (f"{_PLACES}.colocate_all", False)),
                ),
            ),
            (
                same("trainer.policy_mini_batch_size", "workload.prompts_per_step", 256),
                Row(
                    (Key("trainer.policy_mini_batch_size", 256),),
                    ("trainer.updates_per_step",),
                    Codec(lambda mini: (1,), lambda updates: (None,), "1: a step is one mini-batch"),
                    legacy=True,
                ),
                same(f"{_ASYNC}.max_staleness_steps", "policy.max_staleness_steps", 4),
                same(f"{_ASYNC}.num_parallel_generation_workers", "policy.num_parallel_generation_workers", 768),
                same(f"{_ASYNC}.clear_kv_cache_on_weight_sync", "policy.clear_kv_cache_on_weight_sync", False),
                _OWN_GPUS,
            ),
            program="examples.train.fully_async.main_fully_async",
        ),
        Mode(
            "one-step-off",
            (
                Condition(
                    "a program `main_async`",
                    lambda flat: str(flat.get(PROGRAM, "")).endswith(("main_async", "main_async.py")),
                    ((PROGRAM, "examples.train.async.main_async"), (f"{_PLACES}.colocate_all", False)),
                ),
            ),
            (_BATCH, _OWN_GPUS),
        ),
        Mode("sync-disaggregated", (Mark(f"{_PLACES}.colocate_all", False, True),), (_BATCH, _OWN_GPUS), program=_BASE),
        Mode("sync-colocated", (), (_BATCH,), shares_gpus=True, program=_BASE),
    ),
    unmodelled=(
        lora(f"{_POLICY}.model.lora.rank"),
        Unmodelled(f"{_ALGORITHM}.dynamic_sampling.type", "groups that it drops are generated and not trained"),
        Unmodelled("generator.max_turns", "turns; their tools and lengths are not in the file", (None, 1)),
        Unmodelled(f"{_ENGINE}.run_engines_locally", "engines outside of the cluster", (None, True)),
        Unmodelled(f"{_ENGINE}.enable_pd", "prefill on engines of its own"),
        Unmodelled("trainer.mtp.enabled", "speculative decoding"),
        Unmodelled(
            "trainer.micro_train_batch_size_per_gpu", "samples of a micro-batch, where its tokens do not decide"
        ),
        Unmodelled("generator.rate_limit.enabled", "a limit on the requests in flight"),
    ),
    renamed={
        f"generator.{older}": f"{_ENGINE}.{newer}"
        for older, newer in (
            ("num_inference_engines", "num_engines"),
            ("inference_engine_tensor_parallel_size", "tensor_parallel_size"),
            ("inference_engine_pipeline_parallel_size", "pipeline_parallel_size"),
            ("inference_engine_expert_parallel_size", "expert_parallel_size"),
            ("inference_engine_data_parallel_size", "data_parallel_size"),
            *((name, name) for name in _MOVED),
        )
    },
)
