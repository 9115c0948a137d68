"""slime: flags on the command line of train.py and train_async.py, and the rows that miles shares.

Read from slime 624b824: ``slime/utils/arguments.py``, ``slime/backends/sglang_utils/arguments.py``,
``slime/ray/placement_group.py`` and ``slime/utils/dp_schedule.py``.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from rlsim.frameworks.codecs import (
    ALL_OFFLOADED,
    BALANCE,
    GPUS,
    MODEL,
    NOT,
    RECOMPUTE,
    checkpoint_name,
    divided,
    mini_batches,
    nodes_of,
    whole,
)
from rlsim.frameworks.mapping import (
    SAME,
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
    runs,
    same,
)

NODES = (Key("actor-num-nodes", 1), Key("actor-num-gpus-per-node", 8))
COLOCATED = Mark("colocate", True, False)
TRAIN, TRAIN_ASYNC = runs("train.py"), runs("train_async.py")


def _sourced_model(scripts: list[str]) -> str | None:
    """The model after which a script of a folder ``models`` is named."""
    names = [PurePath(script) for script in scripts]
    return next((checkpoint_name(name.stem) for name in names if name.parent.name == "models"), None)


def _shared_gpus(nodes: Any, each: Any, rollout: Any) -> tuple[int, int]:
    actor = whole(nodes) * whole(each)
    return actor, actor if rollout is None else whole(rollout)


def _shared_nodes(trainer: int, rollout: int) -> tuple[int, int, int | None]:
    return *nodes_of(trainer), None if rollout == trainer else rollout


def _updates(prompts: Any, group: Any, mini: Any, updates: Any) -> tuple[int, int, int]:
    samples = whole(prompts) * whole(group)
    if mini is None:
        return prompts, group, 1 if updates is None else whole(updates)
    return prompts, group, mini_batches(samples, mini, prompts, group)


def _global_batch(prompts: int, group: int, updates: int) -> tuple[int, int, int, None]:
    return prompts, group, divided(prompts * group, updates, "a number of updates"), None


def _micro_batch(tokens: Any, dynamic: Any, context: Any) -> tuple[int | None, int]:
    return whole(tokens) * whole(context) if dynamic and tokens is not None else None, whole(context)


def _tokens_per_gpu(micro: int, context: int) -> tuple[int, bool, int]:
    return divided(micro, context, "context-parallel ranks"), True, context


def _engine_split(gpus: Any, stages: Any) -> tuple[int, int]:
    return divided(whole(gpus), whole(stages), "pipeline stages"), stages


SHARED = Row(
    (*NODES, Key("rollout-num-gpus", None)),
    ("trainer.gpus", "rollout.gpus"),
    Codec(_shared_gpus, _shared_nodes, "nodes x GPUs of a node, for both roles unless rollout-num-gpus says more"),
)
APART = (Row(NODES, ("trainer.gpus",), GPUS), same("rollout-num-gpus", "rollout.gpus"))
INTERVAL = same("update-weights-interval", "policy.update_weights_interval", 1)

ROWS = (
    Row((Key("hf-checkpoint"),), ("model",), MODEL),
    Row(
        (Key("(sourced)"),),
        ("model",),
        Codec(lambda scripts: (_sourced_model(scripts),), lambda name: (None,), "the model whose script is sourced"),
        legacy=True,
    ),
    Row(
        (
            Key("rollout-batch-size"),
            Key("n-samples-per-prompt", 1),
            Key("global-batch-size", None),
            Key("num-steps-per-rollout", None),
        ),
        ("workload.prompts_per_step", "workload.group_size", "trainer.updates_per_step"),
        Codec(_updates, _global_batch, "updates = prompts x samples / mini-batch in samples, or steps a rollout"),
    ),
    same("rollout-max-prompt-len", "workload.prompt_tokens.cap_tokens"),
    same("rollout-max-response-len", "workload.response_tokens.cap_tokens"),
    same("rollout-max-context-len", "rollout.max_model_len"),
    Row((Key("sglang-context-length"),), ("rollout.max_model_len",), legacy=True),
    Row(
        (Key("rollout-num-gpus-per-engine", 1), Key("sglang-pp-size", 1)),
        ("rollout.tensor_parallel", "rollout.pipeline_parallel"),
        Codec(_engine_split, lambda tensor, stages: (tensor * stages, stages), "GPUs of an engine = tensor x pipeline"),
    ),
    same("sglang-ep-size", "rollout.expert_parallel", 1),
    same("sglang-max-running-requests", "rollout.max_num_seqs"),
    same("sglang-mem-fraction-static", "rollout.gpu_memory_utilization"),
    Row((Key("sglang-disable-radix-cache", False),), ("rollout.enable_prefix_caching",), NOT),
    Row(
        (Key("max-tokens-per-gpu", None), Key("use-dynamic-batch-size", False), Key("context-parallel-size", 1)),
        ("trainer.micro_batch_tokens", "trainer.context_parallel"),
        Codec(_micro_batch, _tokens_per_gpu, "tokens of a micro-batch = tokens of a GPU x context-parallel ranks"),
    ),
    Row(
        (Key("use-kl-loss", False), Key("kl-coef", 0.0)),
        ("trainer.reference",),
        Codec(
            lambda loss, weight: (bool(loss) or weight not in (0, None),),
            lambda kept: (kept, 0.0),
            "a KL term of either kind",
        ),
    ),
    Row(
        (Key("advantage-estimator", "grpo"),),
        ("trainer.critic",),
        Codec(lambda name: (name == "ppo",), lambda kept: ("ppo" if kept else "grpo",), "ppo: with a critic"),
    ),
    Row((Key("use-rollout-logprobs", False),), ("trainer.old_log_prob",), NOT),
    Row((Key("balance-data", False),), ("trainer.balance",), BALANCE),
)


def _some(groups: int | None, partial: bool) -> tuple[int | None, bool]:
    if groups is None and not partial:
        raise ValueError("over_sampling_batch_size or partial_rollout, or the preset slime-sync")
    return groups, partial


_APRIL = Row(
    (Key("over-sampling-batch-size", None), Key("partial-rollout", False)),
    ("policy.over_sampling_batch_size", "policy.partial_rollout"),
    Codec(SAME.read, _some, SAME.words),
)


def synchronous(shared: Row) -> tuple[Mode, ...]:
    """The modes of train.py; ``shared``: the GPUs where both roles have the same."""
    return (
        Mode("slime-april", (Mark("partial-rollout"), COLOCATED), (_APRIL, shared), True, "train.py"),
        Mode("slime-april", (Mark("over-sampling-batch-size"), COLOCATED), (_APRIL, shared), True, "train.py"),
        Mode("slime-sync", (COLOCATED,), (shared,), True, "train.py"),
        Mode("sync-disaggregated", (), APART, program="train.py"),
    )


TRAIN_ASYNC_MODE = Mode("slime-train-async", (TRAIN_ASYNC,), (*APART, INTERVAL))


def fully_async_function(name: str) -> Condition:
    """A rollout function that keeps groups in flight; ``name`` is what an export writes."""

    def holds(flat: Flat) -> bool:
        function = str(flat.get("rollout-function-path", ""))
        return function.endswith(("generate_rollout_fully_async", "FullyAsyncRolloutFn"))

    return Condition("a fully asynchronous `rollout-function-path`", holds, (("rollout-function-path", name),))


TRAINERS = (
    Backend(
        "Megatron",
        (
            same("tensor-model-parallel-size", "trainer.tensor_parallel", 1),
            same("pipeline-model-parallel-size", "trainer.pipeline_parallel", 1),
            same("expert-model-parallel-size", "trainer.expert_parallel", 1),
            same("optimizer-cpu-offload", "trainer.optimizer_offload", False),
            Row((Key("recompute-granularity", None),), ("trainer.activation_recompute",), RECOMPUTE),
        ),
        (Mark("train-backend", "megatron", "megatron"),),
        ("recompute-", "expert-", "virtual-pipeline", "optimizer-offload"),
    ),
    Backend(
        "FSDP",
        (
            Row(
                (Key("fsdp-cpu-offload", False),),
                ("trainer.optimizer_offload", "trainer.weights_offload"),
                ALL_OFFLOADED,
            ),
            same("gradient-checkpointing", "trainer.activation_recompute", False),
        ),
        (Mark("train-backend", "fsdp"),),
        ("fsdp-",),
    ),
)

UNMODELLED = (
    Unmodelled("over-sampling-batch-size", "groups a submission; simulated with colocate and train.py alone"),
    Unmodelled("partial-rollout", "simulated with colocate and train.py alone"),
    Unmodelled("dynamic-sampling-filter-path", "groups that it drops are generated and not trained"),
    Unmodelled("sglang-server-concurrency", "requests in flight an engine"),
    Unmodelled("sglang-dp-size", "ranks of data-parallel attention in an engine", (None, 1)),
    Unmodelled("sglang-speculative-algorithm", "speculative decoding"),
    Unmodelled("prefill-num-servers", "prefill on servers of its own"),
    Unmodelled("sglang-config", "engines that differ, in a file of their own"),
    Unmodelled("rollout-external-engine-addrs", "engines outside of the cluster"),
    Unmodelled("custom-generate-function-path", "a generation of its own: turns and tools are not in the file"),
    Unmodelled("debug-train-only", "no rollout runs"),
    Unmodelled("debug-rollout-only", "no training runs"),
    Unmodelled("loss-type", "another loss than that of a policy", (None, "policy_loss")),
    Unmodelled("micro-batch-size", "samples of a micro-batch, where its tokens do not decide", (None,)),
)
RENAMED = {
    "sglang-pipeline-parallel-size": "sglang-pp-size",
    "sglang-expert-parallel-size": "sglang-ep-size",
    "sglang-data-parallel-size": "sglang-dp-size",
}
_OF_MILES = (
    "fully-async",
    "max-weight-staleness",
    "rollout-submission-granularity",
    "async-max-concurrent-samples",
    "async-data-buffer-capacity-factor",
    "async-unused-samples-handler",
    "pause-generation-mode",
)

SLIME = Framework(
    name="slime",
    version="624b824",
    format="flags",
    command="python3 {program}",
    rows=ROWS,
    trainers=TRAINERS,
    modes=(
        Mode(
            "slime-fully-async",
            (TRAIN_ASYNC, fully_async_function("slime.rollout.fully_async_rollout.generate_rollout_fully_async")),
            (*APART, INTERVAL, same("sglang-server-concurrency", "policy.sglang_server_concurrency", 512)),
        ),
        TRAIN_ASYNC_MODE,
        *synchronous(SHARED),
    ),
    unmodelled=(*UNMODELLED, *(Unmodelled(key, "a key of miles: import with --from miles") for key in _OF_MILES)),
    renamed=RENAMED,
)
