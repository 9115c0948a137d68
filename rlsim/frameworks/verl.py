"""verl: Hydra keys, as on the command line of its scripts."""

from __future__ import annotations

from rlsim.frameworks.codecs import BALANCE, GPUS, MODEL, NOT, REFERENCE, SHARED_GPUS, UPDATES
from rlsim.frameworks.mapping import Backend, Codec, Condition, Flat, Framework, Key, Mark, Mode, Row, same

_ROLLOUT, _ACTOR = "actor_rollout_ref.rollout", "actor_rollout_ref.actor"
_TRAINER_NODES = (Key("trainer.nnodes", 1), Key("trainer.n_gpus_per_node", 8))
_ASYNC = "async_training"
_MAIN = "verl.trainer.main_ppo"
_OLD_LOG_PROB = Row((Key("algorithm.rollout_correction.bypass_mode", False),), ("trainer.old_log_prob",), NOT)

_ROWS = (
    Row((Key("actor_rollout_ref.model.path"),), ("model",), MODEL),
    same(f"{_ROLLOUT}.n", "workload.group_size", 1),
    same("data.max_prompt_length", "workload.prompt_tokens.cap_tokens", 512),
    same("data.max_response_length", "workload.response_tokens.cap_tokens", 512),
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
    same(f"{_ACTOR}.ppo_max_token_len_per_gpu", "trainer.micro_batch_tokens", 16384),
    same("actor_rollout_ref.model.enable_gradient_checkpointing", "trainer.activation_recompute", True),
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


def _cycle(mini: int, batches: int, trigger: int) -> tuple[int, int, int, int]:
    return mini, batches, trigger, mini * batches * trigger


def _parts(mini: int | None, batches: int, trigger: int, prompts: int) -> tuple[int, int, int]:
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
    ),
    Codec(_cycle, _parts, "prompts = mini-batch x require_batches x trigger: a step ends with a parameter sync"),
)


def _streamed(batch: int, mini: int, syncs: int) -> tuple[int, int, int]:
    if batch != mini * syncs:
        raise ValueError("train_batch_size = parameter_sync_step x ppo_mini_batch_size")
    return batch, mini, syncs


def _mini_batches(prompts: int, mini: int | None, syncs: int) -> tuple[int, int, int]:
    return _streamed(prompts, prompts // syncs if mini is None else mini, syncs)


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
        ("workload.prompts_per_step", "policy.ppo_mini_batch_size", "policy.parameter_sync_step"),
        Codec(_streamed, _mini_batches, "prompts = mini-batch x parameter_sync_step: a step ends with a sync"),
    ),
    same(f"{_V1}.separate_async.num_warmup_batches", "policy.num_warmup_batches", 1),
    *_OFF_POLICY,
)
_COLOCATE = (same(f"{_V1}.colocate_async.num_warmup_batches", "policy.num_warmup_batches", 1), *_OFF_POLICY)

_MEGATRON = f"{_ACTOR}.megatron"


def _on_megatron(flat: Flat) -> bool:
    """By the strategy that the file names; else by the configuration that it starts from, or by Megatron's own keys."""
    strategy = flat.get(f"{_ACTOR}.strategy", flat.get("model_engine"))
    if strategy is not None:
        return "megatron" in str(strategy)
    return "megatron" in str(flat.get("config-name", "")) or any(key.startswith(f"{_MEGATRON}.") for key in flat)


_TRAINERS = (
    Backend(
        "FSDP",
        (
            same(f"{_ACTOR}.ulysses_sequence_parallel_size", "trainer.context_parallel", 1),
            same(f"{_ACTOR}.fsdp_config.optimizer_offload", "trainer.optimizer_offload", False),
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
            same(f"{_MEGATRON}.optimizer_offload", "trainer.optimizer_offload", False),
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

VERL = Framework(
    name="verl",
    version="1dda039",
    format="hydra",
    command="python3 -m {program}",
    rows=_ROWS,
    trainers=_TRAINERS,
    modes=(
        Mode(
            "verl-fully-async",
            (Mark(_ASYNC),),
            (
                _FULLY_ASYNC,
                _APART,
                _standalone("rollout", 1),
                same(f"{_ASYNC}.staleness_threshold", "policy.staleness_threshold", 0.1),
                same(f"{_ASYNC}.partial_rollout", "policy.partial_rollout", True),
                same(f"{_ASYNC}.concurrent_samples_per_replica", "policy.concurrent_samples_per_replica", 16),
                Row((Key("algorithm.rollout_correction.bypass_mode", True),), ("trainer.old_log_prob",), NOT),
            ),
            program="verl.experimental.fully_async_policy.fully_async_main",
        ),
        Mode(
            "verl-one-step-off",
            (Mark("rollout.nnodes"),),
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
