"""verl: Hydra keys, as on the command line of its scripts."""

from __future__ import annotations

from typing import Any

from rlsim.frameworks.codecs import BALANCE, EITHER, GPUS, MODEL, NOT, RECOMPUTE, REFERENCE, SHARED_GPUS, UPDATES, whole
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
    same,
)


def _micro_batch(
    dynamic: Any, tokens: Any, samples: Any, unpadded: Any, prompt: Any, response: Any
) -> tuple[int, str, int, int]:
    longest = whole(prompt) + whole(response)
    packing = "packed" if unpadded else "padded"
    size = whole(tokens) if dynamic or samples is None else whole(samples) * longest
    return size, packing, prompt, response


def _micro_batch_keys(
    tokens: int, packing: str, prompt: int, response: int
) -> tuple[bool, int, int | None, bool, int, int]:
    return True, tokens, None, packing == "packed", prompt, response


_ROLLOUT, _ACTOR = "actor_rollout_ref.rollout", "actor_rollout_ref.actor"
MICRO_BATCH = Row(
    (
        Key(f"{_ACTOR}.use_dynamic_bsz", False),
        Key(f"{_ACTOR}.ppo_max_token_len_per_gpu", 16384),
        Key(f"{_ACTOR}.ppo_micro_batch_size_per_gpu", None),
        Key("actor_rollout_ref.model.use_remove_padding", True),
        Key("data.max_prompt_length", 512),
        Key("data.max_response_length", 512),
    ),
    (
        "trainer.micro_batch_tokens",
        "trainer.packing",
        "workload.prompt_tokens.cap_tokens",
        "workload.response_tokens.cap_tokens",
    ),
    Codec(
        _micro_batch,
        _micro_batch_keys,
        "tokens of a dynamic micro-batch, else samples x longest; padded: neither dynamic nor without padding",
    ),
)
_TRAINER_NODES = (Key("trainer.nnodes", 1), Key("trainer.n_gpus_per_node", 8))
_ASYNC = "async_training"
_MAIN = "verl.trainer.main_ppo"
_OLD_LOG_PROB = Row((Key("algorithm.rollout_correction.bypass_mode", False),), ("trainer.old_log_prob",), NOT)

_ROWS = (
    Row((Key("actor_rollout_ref.model.path"),), ("model",), MODEL),
    same(f"{_ROLLOUT}.n", "workload.group_size", 1),
    same(f"{_ROLLOUT}.tensor_model_parallel_size", "rollout.tensor_parallel", 2),
    same(f"{_ROLLOUT}.pipeline_model_parallel_size", "rollout.pipeline_parallel", 1),
    same(f"{_ROLLOUT}.data_parallel_size", "rollout.data_parallel", 1),
    same(f"{_ROLLOUT}.expert_parallel_size", "rollout.expert_parallel", 1),
    same(f"{_ROLLOUT}.max_num_seqs", "rollout.max_num_seqs", 1024),
    same(f"{_ROLLOUT}.max_num_batched_tokens", "rollout.max_num_batched_tokens", 8192),
    same(f"{_ROLLOUT}.max_model_len", "rollout.max_model_len", None),
    same(f"{_ROLLOUT}.gpu_memory_utilization", "rollout.gpu_memory_utilization", 0.5),
    same(f"{_ROLLOUT}.enable_prefix_caching", "rollout.enable_prefix_caching", True),
    same(f"{_ROLLOUT}.enable_chunked_prefill", "rollout.enable_chunked_prefill", True),
    same(f"{_ROLLOUT}.scheduling_policy", "rollout.scheduling_policy", "fcfs"),
    same(f"{_ACTOR}.ppo_epochs", "trainer.epochs", 1),
    MICRO_BATCH,
    Row((Key("trainer.balance_batch", True),), ("trainer.balance",), BALANCE),
    Row(
        (Key(f"{_ACTOR}.use_kl_loss", False), Key("algorithm.use_kl_in_reward", False)),
        ("trainer.reference",),
        REFERENCE,
    ),
    Row(
        (Key("algorithm.adv_estimator", "gae"),),
        ("trainer.critic",),
        Codec(lambda name: (name == "gae",), lambda kept: ("gae" if kept else "grpo",), "gae: with a critic"),
    ),
)

_BATCH = Row(
    (Key("data.train_batch_size", 1024), Key(f"{_ACTOR}.ppo_mini_batch_size", 256)),
    ("workload.prompts_per_step", "trainer.updates_per_step"),
    UPDATES,
)
_SHARED = Row(_TRAINER_NODES, ("trainer.gpus", "rollout.gpus"), SHARED_GPUS)
_APART = Row(_TRAINER_NODES, ("trainer.gpus",), GPUS)


def _standalone(section: str, nodes: int) -> Row:
    return Row((Key(f"{section}.nnodes", nodes), Key(f"{section}.n_gpus_per_node", 8)), ("rollout.gpus",), GPUS)


def _cycle(mini: Any, batches: Any, trigger: Any) -> tuple[int, ...]:
    updates = whole(batches) * whole(trigger)
    return mini, batches, trigger, whole(mini) * updates, updates


def _parts(mini: int | None, batches: int, trigger: int, prompts: int, updates: int) -> tuple[int, int, int]:
    if prompts % (batches * trigger) or mini not in (None, prompts // (batches * trigger)):
        raise ValueError("ppo_mini_batch_size x require_batches x trigger_parameter_sync_step prompts a step")
    return prompts // (batches * trigger), batches, trigger


_FULLY_ASYNC = Row(
    (
        Key(f"{_ACTOR}.ppo_mini_batch_size", 256),
        Key(f"{_ASYNC}.require_batches", 1),
        Key(f"{_ASYNC}.trigger_parameter_sync_step", 4),
    ),
    (
        "policy.ppo_mini_batch_size",
        "policy.require_batches",
        "policy.trigger_parameter_sync_step",
        "workload.prompts_per_step",
        "trainer.updates_per_step",
    ),
    Codec(_cycle, _parts, "prompts = mini-batch x require_batches x trigger: a step ends with a parameter sync"),
)


def _streamed(batch: int, mini: int, syncs: int) -> tuple[int, int, int, int]:
    if batch != mini * syncs:
        raise ValueError("train_batch_size = parameter_sync_step x ppo_mini_batch_size")
    return batch, mini, syncs, syncs


def _mini_batches(prompts: int, mini: int | None, syncs: int, updates: int) -> tuple[int, int, int]:
    return _streamed(prompts, prompts // syncs if mini is None else mini, syncs)[:3]


_V1 = "trainer.v1"
_OFF_POLICY = (
    same(f"{_V1}.sampler.max_off_policy_threshold", "policy.max_off_policy_threshold", 8),
    same(f"{_V1}.sampler.max_off_policy_strategy", "policy.max_off_policy_strategy", "drop"),
)
_SEPARATE = (
    Row(
        (
            Key("data.train_batch_size", 1024),
            Key(f"{_ACTOR}.ppo_mini_batch_size", 256),
            Key(f"{_V1}.separate_async.parameter_sync_step", 4),
        ),
        (
            "workload.prompts_per_step",
            "policy.ppo_mini_batch_size",
            "policy.parameter_sync_step",
            "trainer.updates_per_step",
        ),
        Codec(_streamed, _mini_batches, "prompts = mini-batch x parameter_sync_step: a step ends with a sync"),
    ),
    same(f"{_V1}.separate_async.num_warmup_batches", "policy.num_warmup_batches", 1),
    *_OFF_POLICY,
)
_COLOCATE = (same(f"{_V1}.colocate_async.num_warmup_batches", "policy.num_warmup_batches", 1), *_OFF_POLICY)

_MEGATRON = f"{_ACTOR}.megatron"
_CPU_OPTIMIZER = Key(f"{_ACTOR}.optim.override_optimizer_config.optimizer_cpu_offload", False)


def _on_megatron(flat: Flat) -> bool:
    """By the strategy that the file names; else by the configuration that it starts from, or by Megatron's own keys."""
    strategy = flat.get(f"{_ACTOR}.strategy", flat.get("model_engine"))
    if strategy is not None:
        return "megatron" in str(strategy)
    return "megatron" in str(flat.get("config-name", "")) or any(key.startswith(f"{_MEGATRON}.") for key in flat)


def _fully_async(flat: Flat) -> bool:
    return "fully_async" in str(flat.get(PROGRAM, "")) or any(key.startswith(f"{_ASYNC}.") for key in flat)


def _one_step_off(flat: Flat) -> bool:
    return "one_step_off" in str(flat.get(PROGRAM, "")) or "rollout.nnodes" in flat


_TRAINERS = (
    Backend(
        "FSDP",
        (
            same(f"{_ACTOR}.ulysses_sequence_parallel_size", "trainer.context_parallel", 1),
            same(f"{_ACTOR}.fsdp_config.optimizer_offload", "trainer.optimizer_offload", False),
            same(f"{_ACTOR}.fsdp_config.param_offload", "trainer.weights_offload", False),
            same("actor_rollout_ref.model.enable_gradient_checkpointing", "trainer.activation_recompute", True),
        ),
        (Condition("no key of Megatron's", lambda flat: not _on_megatron(flat)),),
        (f"{_ACTOR}.fsdp_config.", f"{_ACTOR}.ulysses_sequence_parallel_size"),
    ),
    Backend(
        "Megatron",
        (
            same(f"{_MEGATRON}.tensor_model_parallel_size", "trainer.tensor_parallel", 1),
            same(f"{_MEGATRON}.pipeline_model_parallel_size", "trainer.pipeline_parallel", 1),
            same(f"{_MEGATRON}.context_parallel_size", "trainer.context_parallel", 1),
            same(f"{_MEGATRON}.expert_model_parallel_size", "trainer.expert_parallel", 1),
            Row((Key(f"{_MEGATRON}.optimizer_offload", False), _CPU_OPTIMIZER), ("trainer.optimizer_offload",), EITHER),
            same(f"{_MEGATRON}.param_offload", "trainer.weights_offload", False),
            Row(
                (Key(f"{_MEGATRON}.override_transformer_config.recompute_granularity", None),),
                ("trainer.activation_recompute",),
                RECOMPUTE,
            ),
        ),
        (
            Condition(
                "strategy megatron, or a configuration or keys of Megatron's",
                _on_megatron,
                ((f"{_ACTOR}.strategy", "megatron"),),
            ),
        ),
        (f"{_MEGATRON}.",),
    ),
)

_ENGINES = tuple(
    Backend(name, (), (Mark(f"{_ROLLOUT}.name", key, "vllm"),), (f"{_ROLLOUT}.engine_kwargs.{key}.",))
    for key, name in (("vllm", "vLLM"), ("sglang", "SGLang"), ("trtllm", "TensorRT-LLM"), ("hf", "Transformers"))
)
_UNMODELLED = (
    Unmodelled("actor_rollout_ref.model.lora_rank", "LoRA: trained and sent as full weights here"),
    Unmodelled("actor_rollout_ref.model.lora.rank", "LoRA: trained and sent as full weights here"),
    Unmodelled("actor_rollout_ref.model.mtp.enable", "a multi-token prediction head"),
    Unmodelled(f"{_ROLLOUT}.mtp.enable", "speculative decoding"),
    Unmodelled(f"{_ROLLOUT}.quantization", "weights of the engine in another type"),
    Unmodelled(f"{_ROLLOUT}.multi_turn.enable", "several turns: give them under workload.turns"),
    Unmodelled(f"{_ROLLOUT}.multi_turn.max_assistant_turns", "several turns: give them under workload.turns"),
    Unmodelled("data.gen_batch_size", "prompts of a generation batch, of which some are filtered out", (None,)),
    Unmodelled("algorithm.filter_groups.enable", "dynamic sampling: needs a learning section"),
    Unmodelled("reward_model.enable", "a reward model on GPUs: give its time under workload.reward"),
)

VERL = Framework(
    name="verl",
    version="1dda039",
    format="hydra",
    command="python3 -m {program}",
    rows=_ROWS,
    trainers=_TRAINERS,
    engines=_ENGINES,
    unmodelled=_UNMODELLED,
    modes=(
        Mode(
            "verl-fully-async",
            (Condition("program fully_async_main, or keys of async_training", _fully_async),),
            (
                _FULLY_ASYNC,
                _APART,
                _standalone("rollout", 1),
                Row((Key(f"{_ASYNC}.use_rollout_log_probs"),), ("trainer.old_log_prob",), NOT, legacy=True),
                same(f"{_ASYNC}.staleness_threshold", "policy.staleness_threshold", 0.1),
                same(f"{_ASYNC}.partial_rollout", "policy.partial_rollout", True),
                same(f"{_ASYNC}.concurrent_samples_per_replica", "policy.concurrent_samples_per_replica", 16),
                Row((Key("algorithm.rollout_correction.bypass_mode", True),), ("trainer.old_log_prob",), NOT),
            ),
            program="verl.experimental.fully_async_policy.fully_async_main",
        ),
        Mode(
            "verl-one-step-off",
            (Condition("program of one_step_off_policy, or rollout.nnodes", _one_step_off),),
            (_BATCH, _APART, _standalone("rollout", 1), _OLD_LOG_PROB),
            program="verl.experimental.one_step_off_policy.main_ppo",
        ),
        Mode(
            "verl-v1-separate-async",
            (Mark(f"{_V1}.trainer_mode", "separate_async", "sync"),),
            (*_SEPARATE, _APART, _standalone(_ROLLOUT, 0), _OLD_LOG_PROB),
            program=_MAIN,
        ),
        Mode(
            "verl-v1-colocate-async",
            (Mark(f"{_V1}.trainer_mode", "colocate_async", "sync"),),
            (*_COLOCATE, _BATCH, _SHARED, _OLD_LOG_PROB),
            shares_gpus=True,
            program=_MAIN,
        ),
        Mode(
            "verl-v1-sync",
            (Mark("trainer.use_v1", True),),
            (_BATCH, _SHARED, _OLD_LOG_PROB),
            shares_gpus=True,
            program=_MAIN,
        ),
        Mode(
            "verl-sync",
            (Mark("trainer.use_v1", False, False),),
            (_BATCH, _SHARED, _OLD_LOG_PROB),
            shares_gpus=True,
            program=_MAIN,
        ),
    ),
)
