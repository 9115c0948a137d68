"""slime: flags on the command line of train.py and train_async.py."""

from __future__ import annotations

from rlsim.frameworks.codecs import BALANCE, GPUS, MODEL, SAMPLE_UPDATES, SHARED_GPUS
from rlsim.frameworks.mapping import PROGRAM, SAME, Codec, Framework, Key, Mark, Mode, Row, same

_NODES = (Key("actor-num-nodes", 1), Key("actor-num-gpus-per-node", 8))
_SHARED = Row(_NODES, ("trainer.gpus", "rollout.gpus"), SHARED_GPUS)
_APART = (Row(_NODES, ("trainer.gpus",), GPUS), same("rollout-num-gpus", "rollout.gpus"))
_INTERVAL = same("update-weights-interval", "policy.update_weights_interval", 1)
_COLOCATED = Mark("colocate", True, False)


def _some(groups: int | None, partial: bool) -> tuple[int | None, bool]:
    if groups is None and not partial:
        raise ValueError("over_sampling_batch_size or partial_rollout, or the preset slime-sync")
    return groups, partial


_APRIL = (
    Row(
        (Key("over-sampling-batch-size", None), Key("partial-rollout", False)),
        ("policy.over_sampling_batch_size", "policy.partial_rollout"),
        Codec(SAME.read, _some, SAME.words),
    ),
)

SLIME = Framework(
    name="slime",
    version="624b824",
    format="flags",
    command="python3 {program}",
    rows=(
        Row((Key("hf-checkpoint"),), ("model",), MODEL),
        Row(
            (Key("rollout-batch-size"), Key("n-samples-per-prompt", 1), Key("global-batch-size", None)),
            ("workload.prompts_per_step", "workload.group_size", "trainer.updates_per_step"),
            SAMPLE_UPDATES,
        ),
        same("rollout-max-prompt-len", "workload.prompt_tokens.cap_tokens"),
        same("rollout-max-response-len", "workload.response_tokens.cap_tokens"),
        same("rollout-max-context-len", "rollout.max_model_len"),
        same("rollout-num-gpus-per-engine", "rollout.tensor_parallel", 1),
        same("sglang-max-running-requests", "rollout.max_num_seqs"),
        same("sglang-mem-fraction-static", "rollout.gpu_memory_utilization"),
        same("tensor-model-parallel-size", "trainer.tensor_parallel", 1),
        same("pipeline-model-parallel-size", "trainer.pipeline_parallel", 1),
        same("context-parallel-size", "trainer.context_parallel", 1),
        same("max-tokens-per-gpu", "trainer.micro_batch_tokens"),
        same("use-kl-loss", "trainer.reference", False),
        Row((Key("balance-data", False),), ("trainer.balance",), BALANCE),
        Row(
            (Key("recompute-granularity", None),),
            ("trainer.activation_recompute",),
            Codec(
                lambda kind: (kind is not None,), lambda kept: ("full" if kept else None,), "full or selective: true"
            ),
        ),
    ),
    modes=(
        Mode(
            "slime-fully-async",
            (
                Mark(PROGRAM, "train_async.py"),
                Mark("rollout-function-path", "fully_async_rollout.generate_rollout_fully_async"),
            ),
            (*_APART, _INTERVAL, same("sglang-server-concurrency", "policy.sglang_server_concurrency", 512)),
        ),
        Mode(
            "slime-train-async",
            (Mark(PROGRAM, "train_async.py"),),
            (*_APART, _INTERVAL),
        ),
        Mode("slime-april", (Mark("partial-rollout"), _COLOCATED), (*_APRIL, _SHARED), True, "train.py"),
        Mode("slime-april", (Mark("over-sampling-batch-size"), _COLOCATED), (*_APRIL, _SHARED), True, "train.py"),
        Mode("slime-sync", (_COLOCATED,), (_SHARED,), True, "train.py"),
        Mode("sync-disaggregated", (), _APART, program="train.py"),
    ),
)
